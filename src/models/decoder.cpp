#include "models/decoder.h"

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
    spec.qkv_bias = traits.qkv_bias;
    spec.output_bias = traits.output_bias;
    spec.qk_norm_eps = traits.qk_norm ? f.rms_norm_eps : 0;
    return nn::attention(x, spec, rope, in, layer, p / "self_attn");
  };
}

ModelOutputs decoder(const ModelConfig& config, const LayerAttention& attention, const LayerMlp& mlp,
                     nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const nn::ParamScope model = root / "model";
  Tensor table = (model / "embed_tokens").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
  Tensor x = nn::embedding(table, in.tokens);
  Tensor rope = nn::rope_table(in.positions, rope_spec(config));
  for (int64_t l = 0; l < f.num_hidden_layers; ++l) {
    const nn::ParamScope p = model / "layers" / l;
    Tensor h = nn::rms_norm(x, p / "input_layernorm", f.rms_norm_eps);
    x = nn::add(x, attention(h, rope, l, p));
    h = nn::rms_norm(x, p / "post_attention_layernorm", f.rms_norm_eps);
    x = nn::add(x, mlp(h, l, p));
  }
  // Only the rows whose logits are wanted go through the norm and the head.
  x = nn::rms_norm(nn::index_select(x, in.last_rows), model / "norm", f.rms_norm_eps);
  Tensor head =
      f.tie_word_embeddings ? table : (root / "lm_head").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
  return {x, nn::linear_f32(x, head, nn::Shard::Column)};
}

ModelOutputs dense_decoder(const ModelConfig& config, const DecoderTraits& traits, nn::StepInputs& in,
                           const nn::ParamScope& root) {
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) {
    return nn::gated_mlp(x, config.fields.intermediate_size, traits.mlp_bias, p / "mlp");
  };
  return decoder(config, grouped_attention(config, traits, in), mlp, in, root);
}

}  // namespace reprise::models
