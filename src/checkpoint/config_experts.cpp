#include "checkpoint/config_experts.h"

#include <algorithm>

namespace reprise::checkpoint {
namespace {

constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxIntermediate = 1 << 22;

// What Hugging Face's configuration classes fill in.
struct Defaults {
  std::string_view architecture;
  std::string_view count_key, other_count_key;     // files may use either
  int64_t count, per_token, intermediate, shared;  // intermediate 0: intermediate_size, and no key of its own
};
constexpr Defaults kDefaults[] = {
    {"MixtralForCausalLM", "num_local_experts", "num_experts", 8, 2, 0, 0},
    {"Qwen2MoeForCausalLM", "num_experts", "num_local_experts", 60, 4, 1408, 5632},
    {"Qwen3MoeForCausalLM", "num_experts", "num_local_experts", 128, 8, 768, 0},
};

Status read_dense_layers(const FieldReader& in, ExpertFields& out) {
  const Json* list = in.find("mlp_only_layers");
  if (!list) return Status::ok();
  constexpr std::string_view kAllowed = "a list of layer numbers";
  if (!list->is_array()) return in.wrong("mlp_only_layers", *list, kAllowed);
  for (const Json& layer : *list) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() > 1000)
      return in.wrong("mlp_only_layers", *list, kAllowed);
    out.dense_layers.push_back(layer.get<int64_t>());
  }
  return Status::ok();
}

}  // namespace

bool ExpertFields::at_layer(int64_t layer) const {
  return count > 0 && (layer + 1) % step == 0 &&
         std::find(dense_layers.begin(), dense_layers.end(), layer) == dense_layers.end();
}

Status read_experts(const FieldReader& in, ModelConfigFields& out) {
  const Defaults* d = nullptr;
  for (const Defaults& one : kDefaults)
    if (one.architecture == out.architecture) d = &one;
  if (!d) return Status::ok();
  ExpertFields& e = out.experts;
  std::optional<int64_t> count;
  RETURN_IF_ERROR(in.integer(d->other_count_key, 1, kMaxExperts, count));
  RETURN_IF_ERROR(in.integer(d->count_key, 1, kMaxExperts, count));
  e.count = count.value_or(d->count);
  RETURN_IF_ERROR(in.integer("num_experts_per_tok", 1, kMaxExperts, d->per_token, e.per_token));
  if (e.per_token > e.count)
    return invalid("{}: num_experts_per_tok is {}, but {} is {}", out.source, e.per_token, d->count_key, e.count);
  if (d->intermediate == 0) {
    e.intermediate = out.intermediate_size;
    e.normalise = true;
    return Status::ok();
  }
  RETURN_IF_ERROR(in.integer("moe_intermediate_size", 1, kMaxIntermediate, d->intermediate, e.intermediate));
  if (d->shared > 0)
    RETURN_IF_ERROR(
        in.integer("shared_expert_intermediate_size", 1, kMaxIntermediate, d->shared, e.shared_intermediate));
  RETURN_IF_ERROR(in.boolean("norm_topk_prob", false, e.normalise));
  RETURN_IF_ERROR(in.integer("decoder_sparse_step", 1, 1000, 1, e.step));
  return read_dense_layers(in, e);
}

}  // namespace reprise::checkpoint
