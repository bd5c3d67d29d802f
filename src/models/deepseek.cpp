// DeepSeek-V2 and V3: multi-head latent attention; the first layers have a gated MLP, the others experts and shared
// experts.
#include <cmath>

#include "models/experts.h"
#include "models/model.h"
#include "models/rope.h"
#include "nn/latent.h"

namespace reprise::models {
namespace {

nn::LatentSpec latent_spec(const ModelConfig& config) {
  const auto& f = config.fields;
  const checkpoint::LatentFields& l = *f.latent;
  nn::LatentSpec s;
  s.heads = f.num_attention_heads;
  s.q_rank = l.q_lora_rank;
  s.kv_rank = l.kv_lora_rank;
  s.nope = l.qk_nope_head_dim;
  s.rope = l.qk_rope_head_dim;
  s.value = l.v_head_dim;
  s.bias = f.attention_bias;
  s.interleaved = l.rope_interleave;
  s.scale = latent_score_factor(config) / std::sqrt(static_cast<double>(l.qk_nope_head_dim + l.qk_rope_head_dim));
  return s;
}

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  if (!f.latent) {
    in.tokens.tracer()->fail(invalid("{}: the sizes of latent attention (kv_lora_rank, ...) are missing", f.source));
    return {in.tokens, in.tokens};
  }
  const nn::ParamScope model = root / "model";
  Tensor table = (model / "embed_tokens").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
  Tensor x = nn::embedding(table, in.tokens);
  Tensor rope = nn::rope_table(in.positions, rope_spec(config));
  const nn::LatentSpec attention = latent_spec(config);
  nn::ExpertSpec experts = expert_spec(f.experts);
  if (experts.normalise) experts.eps = 1e-20;  // a sum of sigmoids may be 0
  for (int64_t l = 0; l < f.num_hidden_layers; ++l) {
    const nn::ParamScope p = model / "layers" / l;
    Tensor h = nn::rms_norm(x, p / "input_layernorm", f.rms_norm_eps);
    x = nn::add(x, nn::latent_attention(h, attention, rope, in, l, p / "self_attn"));
    h = nn::rms_norm(x, p / "post_attention_layernorm", f.rms_norm_eps);
    const nn::ParamScope mlp = p / "mlp";
    if (!f.experts.at_layer(l)) {
      x = nn::add(x, nn::gated_mlp(h, f.intermediate_size, f.mlp_bias, mlp));
      continue;
    }
    Tensor y = nn::moe(h, experts, in, mlp);
    if (f.experts.shared_intermediate > 0)
      y = nn::add(y, nn::gated_mlp(h, f.experts.shared_intermediate, f.mlp_bias, mlp / "shared_experts"));
    x = nn::add(x, y);
  }
  x = nn::rms_norm(nn::rows(x, in.last_rows), model / "norm", f.rms_norm_eps);
  Tensor head =
      f.tie_word_embeddings ? table : (root / "lm_head").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
  return {x, nn::linear_f32(x, head, nn::Shard::Column)};
}

}  // namespace

const ModelSpec kDeepseekV2{"DeepseekV2ForCausalLM", forward}, kDeepseekV3{"DeepseekV3ForCausalLM", forward};

}  // namespace reprise::models
