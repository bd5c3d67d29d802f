#include "measurement/step_cost.h"

#include <algorithm>
#include <cmath>

namespace reprise::measurement {
namespace {

// Parameters of a layer's attention: queries, keys, values and the output; with latents (absorbed, nn/latent.h)
// queries, perhaps by way of a smaller rank, the latent with its rope, both halves of kv_b_proj for each head, and the
// output.
double attention_weights(const checkpoint::ModelConfigFields& c) {
  const auto hidden = static_cast<double>(c.hidden_size), heads = static_cast<double>(c.num_attention_heads);
  if (!c.latent) {
    const auto kv_heads = static_cast<double>(c.num_key_value_heads);
    return hidden * static_cast<double>(c.head_dim) * (2 * heads + 2 * kv_heads);
  }
  const auto q_rank = static_cast<double>(c.latent->q_lora_rank), kv_rank = static_cast<double>(c.latent->kv_lora_rank);
  const auto nope = static_cast<double>(c.latent->qk_nope_head_dim), value = static_cast<double>(c.latent->v_head_dim);
  const auto rope = static_cast<double>(c.latent->qk_rope_head_dim);
  const double queries = hidden * q_rank + (q_rank > 0 ? q_rank : hidden) * heads * (nope + rope);
  return queries + hidden * (kv_rank + rope) + heads * kv_rank * (nope + value) + heads * value * hidden;
}

std::optional<double> larger(std::optional<double> a, std::optional<double> b) { return a && b ? std::max(*a, *b) : a; }

}  // namespace

double layer_weights(const checkpoint::ModelConfigFields& c) {
  const double hidden = static_cast<double>(c.hidden_size), inner = static_cast<double>(c.intermediate_size);
  const double attention = attention_weights(c);
  const checkpoint::ExpertFields& e = c.experts;
  const double chosen = static_cast<double>(e.per_token * e.intermediate + e.shared_intermediate);
  double sum = 0;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const bool experts = e.at_layer(l);
    sum += attention + 3 * hidden * (experts ? chosen : inner);
    if (experts) sum += hidden * static_cast<double>(e.count);
  }
  return sum;
}

double step_weight_bytes(const engine::Engine& engine, double batch) {
  const auto& c = engine.config();
  const checkpoint::ExpertFields& e = c.experts;
  const auto all = static_cast<double>(engine.weight_bytes_per_step());
  if (e.count == 0) return all;
  const double count = static_cast<double>(e.count);
  const double missed = std::pow(1 - static_cast<double>(e.per_token) / count, batch);
  return all - missed * static_cast<double>(engine.expert_bytes());
}

DType multiplied(const engine::Engine& engine) {
  using enum checkpoint::Quantization;
  const auto& o = engine.options();
  const bool int8 = o.quantization == W8A8Int8 || o.quantization == ModelSlim || o.quantization == CompressedTensors;
  return int8 || o.int8_activations.value_or(false) ? DType::I8 : engine.dtype();
}

see::MachineSpeed between(const see::MachineSpeed& before, const see::MachineSpeed& after) {
  see::MachineSpeed s;
  s.read_GBps_1 = (before.read_GBps_1 + after.read_GBps_1) / 2;
  s.read_GBps_all = (before.read_GBps_all + after.read_GBps_all) / 2;
  s.fp32_gflops = std::max(before.fp32_gflops, after.fp32_gflops);
  s.bf16_gflops = larger(before.bf16_gflops, after.bf16_gflops);
  s.int8_gops = larger(before.int8_gops, after.int8_gops);
  s.other_load = std::max(before.other_load, after.other_load);
  if (before.barrier_ns && after.barrier_ns) s.barrier_ns = std::min(*before.barrier_ns, *after.barrier_ns);
  return s;
}

}  // namespace reprise::measurement
