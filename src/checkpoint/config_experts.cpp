#include "checkpoint/config_experts.h"

#include <algorithm>

#include "checkpoint/limits.h"

namespace reprise::checkpoint {
namespace {

constexpr int64_t kMaxExpertIntermediate = 1 << 22;

// What Hugging Face's configuration classes fill in.
struct ExpertDefaults {
  std::string_view architecture;
  std::string_view count_key, other_count_key;     // files may use either
  int64_t count, per_token, intermediate, shared;  // intermediate 0: intermediate_size, and no key of its own
};
constexpr ExpertDefaults kExpertDefaults[] = {
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

// One of `allowed`, the default where there is none; anything else is an error.
Status read_choice(const FieldReader& in, std::string_view key, std::initializer_list<std::string_view> allowed,
                   std::string_view otherwise, std::string& out) {
  std::optional<std::string> given;
  RETURN_IF_ERROR(in.string(key, given));
  out = given.value_or(std::string(otherwise));
  if (std::find(allowed.begin(), allowed.end(), out) != allowed.end()) return Status::ok();
  return in.wrong(key, Json(out), fmt::format("\"{}\"", fmt::join(allowed, "\", \"")));
}

// Experts in all layers but the first ones, chosen among the best groups, beside shared ones.
Status read_deepseek(const FieldReader& in, ModelConfigFields& out) {
  const bool v3 = out.architecture == "DeepseekV3ForCausalLM";
  ExpertFields& e = out.experts;
  const std::optional<int64_t> none;
  std::optional<int64_t> count = v3 ? 256 : 64;
  RETURN_IF_ERROR(
      in.integer_or_alias("n_routed_experts", v3 ? "num_local_experts" : "num_experts", 1, kMaxExperts, count));
  e.count = *count;
  RETURN_IF_ERROR(
      in.integer("num_experts_per_tok", 1, kMaxExperts, v3 ? std::optional<int64_t>(8) : none, e.per_token));
  RETURN_IF_ERROR(in.integer("moe_intermediate_size", 1, kMaxExpertIntermediate, v3 ? 2048 : 1407, e.intermediate));
  int64_t shared = 0, frequency = 1;
  RETURN_IF_ERROR(in.integer("n_shared_experts", 0, kMaxExperts, v3 ? 1 : 2, shared));
  e.shared_intermediate = shared * e.intermediate;
  RETURN_IF_ERROR(in.integer("first_k_dense_replace", 0, 1000, v3 ? 3 : 0, e.first_layer));
  RETURN_IF_ERROR(in.integer("moe_layer_freq", 1, 1, 1, frequency));
  RETURN_IF_ERROR(in.number("routed_scaling_factor", 0.0, 1e6, v3 ? 2.5 : 1.0, e.scale));
  // null is not absence here: transformers tests the value.
  RETURN_IF_ERROR(in.boolean("norm_topk_prob", v3 && !out.raw_json.contains("norm_topk_prob"), e.normalise));
  std::string method;
  RETURN_IF_ERROR(read_choice(in, "scoring_func", {v3 ? "sigmoid" : "softmax"}, v3 ? "sigmoid" : "softmax", e.score));
  if (v3) {
    RETURN_IF_ERROR(read_choice(in, "topk_method", {"noaux_tc"}, "noaux_tc", method));
    e.group_score = "top2";
    e.choice_bias = true;
  } else {
    RETURN_IF_ERROR(read_choice(in, "topk_method", {"greedy", "group_limited_greedy"}, "greedy", method));
    if (e.normalise)  // the published code and transformers compute different things
      return error(Code::Unsupported, "{}: norm_topk_prob is true; allowed for {}: false", out.source,
                   out.architecture);
  }
  if (method != "greedy") {
    RETURN_IF_ERROR(in.integer("n_group", 1, kMaxExperts, v3 ? 8 : 1, e.groups));
    RETURN_IF_ERROR(in.integer("topk_group", 1, kMaxExperts, v3 ? 4 : 1, e.top_groups));
  }
  const int64_t size = e.count / e.groups;
  if (e.count % e.groups != 0)
    return invalid("{}: n_routed_experts {} is not a multiple of n_group {}", out.source, e.count, e.groups);
  if (e.top_groups > e.groups)
    return invalid("{}: topk_group {} is more than n_group {}", out.source, e.top_groups, e.groups);
  if (v3 && size < 2)
    return invalid("{}: n_group {} leaves groups of one expert; groups are chosen by their best two", out.source,
                   e.groups);
  if (e.per_token > e.top_groups * size)
    return invalid("{}: num_experts_per_tok is {}, but the {} groups chosen have {} experts", out.source, e.per_token,
                   e.top_groups, e.top_groups * size);
  return Status::ok();
}

}  // namespace

bool ExpertFields::at_layer(int64_t layer) const {
  return count > 0 && layer >= first_layer && (layer + 1) % step == 0 &&
         std::find(dense_layers.begin(), dense_layers.end(), layer) == dense_layers.end();
}

Status read_experts(const FieldReader& in, ModelConfigFields& out) {
  if (out.architecture.starts_with("Deepseek")) return read_deepseek(in, out);
  const ExpertDefaults* d = nullptr;
  for (const ExpertDefaults& one : kExpertDefaults)
    if (one.architecture == out.architecture) d = &one;
  if (!d) return Status::ok();
  ExpertFields& e = out.experts;
  std::optional<int64_t> count;
  RETURN_IF_ERROR(in.integer_or_alias(d->count_key, d->other_count_key, 1, kMaxExperts, count));
  e.count = count.value_or(d->count);
  RETURN_IF_ERROR(in.integer("num_experts_per_tok", 1, kMaxExperts, d->per_token, e.per_token));
  if (e.per_token > e.count)
    return invalid("{}: num_experts_per_tok is {}, but {} is {}", out.source, e.per_token, d->count_key, e.count);
  if (d->intermediate == 0) {
    e.intermediate = out.intermediate_size;
    e.normalise = true;
    return Status::ok();
  }
  RETURN_IF_ERROR(in.integer("moe_intermediate_size", 1, kMaxExpertIntermediate, d->intermediate, e.intermediate));
  if (d->shared > 0)
    RETURN_IF_ERROR(
        in.integer("shared_expert_intermediate_size", 1, kMaxExpertIntermediate, d->shared, e.shared_intermediate));
  RETURN_IF_ERROR(in.boolean("norm_topk_prob", false, e.normalise));
  RETURN_IF_ERROR(in.integer("decoder_sparse_step", 1, 1000, 1, e.step));
  return read_dense_layers(in, e);
}

}  // namespace reprise::checkpoint
