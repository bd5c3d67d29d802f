#include "models/decoder.h"

#include <algorithm>

#include "models/draft_head.h"
#include "models/image_step.h"
#include "models/pooling.h"
#include "models/rope.h"

namespace reprise::models {

LayerAttention grouped_attention(const ModelConfig& config, DecoderTraits traits, nn::StepInputs& in) {
  return [&config, &in, traits](Tensor x, Tensor rope, int64_t layer, const nn::ParamScope& p) {
    const auto& f = config.fields;
    nn::AttentionSpec spec;
    spec.heads = f.num_attention_heads;
    spec.kv_heads = f.num_key_value_heads;
    spec.head_dim = f.head_dim;
    spec.window = f.window_of_layer(layer);
    spec.chunk = f.chunk_of_layer(layer);
    spec.both_sides = f.both_sides;
    // transformers counts a window of both sides without the row itself.
    if (f.both_sides && spec.window > 0)
      spec.window = (traits.window_of_both_sides ? spec.window / 2 : spec.window) + 1;
    spec.qkv_bias = traits.qkv_bias;
    spec.output_bias = traits.output_bias;
    spec.qk_norm_eps = traits.qk_norm ? f.rms_norm_eps : 0;
    spec.qk_norm = traits.qk_norm_place;
    spec.norm = traits.qk_norm_kind;
    spec.q_norm = traits.q_norm;
    spec.k_norm = traits.k_norm;
    const bool turns = !traits.rotates_windows_only || spec.window > 0;
    const auto& still = f.unrotated_layers;
    spec.rotation =
        turns && std::find(still.begin(), still.end(), layer) == still.end() ? traits.rotation : nn::Rotation::None;
    spec.query_factor = traits.query_factor;
    spec.scale = traits.score_scale;
    spec.softcap = traits.score_cap;
    spec.fused = traits.fused;
    spec.sinks = traits.sinks;
    return nn::attention(x, spec, rope, in, layer, p / "self_attn");
  };
}

ModelOutputs decoder(const ModelConfig& config, const LayerAttention& attention, const LayerMlp& mlp,
                     nn::StepInputs& in, const nn::ParamScope& root, const DecoderShape& s) {
  const auto& f = config.fields;
  const nn::ParamScope model = root / "model";
  const auto norm = [&](Tensor x, const nn::ParamScope& p, std::string_view name) {
    return name.empty() ? x : s.norm(x, p / name, f.rms_norm_eps);
  };
  Tensor table = (model / "embed_tokens").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
  Tensor x = with_images(nn::scale(nn::embedding(table, in.tokens), s.embedding_scale), in);
  const Tensor rope = image_rope_table(config, in);
  const Tensor sliding = f.sliding_rope ? nn::rope_table(in.positions, rope_spec(config, true)) : rope;
  RowKeeper keeper(in);
  for (int64_t l = 0; l < f.num_hidden_layers; ++l) {
    keeper.see(x, l);
    const nn::ParamScope p = model / "layers" / l;
    const Tensor h = norm(x, p, s.before_attention);
    Tensor a = norm(attention(h, f.window_of_layer(l) > 0 ? sliding : rope, l, p), p, s.after_attention);
    if (s.parallel) {
      x = nn::add(nn::add(x, nn::scale(a, s.residual_scale)), nn::scale(mlp(h, l, p), s.residual_scale));
      continue;
    }
    x = nn::add(x, nn::scale(a, s.residual_scale));
    if (s.one_branch) continue;
    x = nn::add(x, nn::scale(norm(mlp(norm(x, p, s.before_mlp), l, p), p, s.after_mlp), s.residual_scale));
    x = with_deep_rows(config, x, l, in);
  }
  if (!config.generates()) {
    const bool classifier = config.pooling.classifier;
    const nn::ParamScope head = classifier              ? root / "score"
                                : f.tie_word_embeddings ? model / "embed_tokens"
                                                        : root / "lm_head";
    const int64_t rows_of_head = classifier ? 2 : f.vocab_size;
    return pooled_outputs(config,
                          {x, [&](Tensor rows) { return s.norm(rows, model / "norm", f.rms_norm_eps); },
                           [&](int64_t token) {
                             return head.rows("weight", token, 1, rows_of_head, {Dim(1), Dim(f.hidden_size)});
                           }},
                          in, root);
  }
  // Only the rows whose logits are wanted go through the norm and the head.
  if (keeper.keeps(f.num_hidden_layers)) {
    x = s.norm(x, model / "norm", f.rms_norm_eps);
    keeper.see(x, f.num_hidden_layers);
    x = nn::index_select(x, in.last_rows);
  } else {
    x = s.norm(nn::index_select(x, in.last_rows), model / "norm", f.rms_norm_eps);
  }
  keeper.write();
  Tensor head =
      f.tie_word_embeddings ? table : (root / "lm_head").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
  Tensor logits = nn::scale(nn::linear_f32(x, head, nn::Shard::Column), s.logit_scale);
  return {.hidden = x, .logits = s.logit_cap > 0 ? nn::softcap(logits, s.logit_cap) : logits};
}

ModelOutputs dense_decoder(const ModelConfig& config, const DecoderTraits& traits, nn::StepInputs& in,
                           const nn::ParamScope& root) {
  const auto& f = config.fields;
  const nn::MlpSpec spec{f.intermediate_size, traits.mlp_bias, traits.fused, f.hidden_act};
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) { return nn::gated_mlp(x, spec, p / "mlp"); };
  return decoder(config, grouped_attention(config, traits, in), mlp, in, root, traits.shape);
}

}  // namespace reprise::models
