#include "checkpoint/config_groups.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/limits.h"

namespace reprise::checkpoint {
namespace {

Status read_dense_layers(const FieldReader& in, ExpertFields& out) {
  const Json* list = in.find("mlp_only_layers");
  if (!list) return Status::ok();
  constexpr std::string_view kAllowed = "a list of layer numbers";
  if (!list->is_array()) return in.wrong("mlp_only_layers", *list, kAllowed);
  for (const Json& layer : *list) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() > kMaxLayers)
      return in.wrong("mlp_only_layers", *list, kAllowed);
    out.dense_layers.push_back(layer.get<int64_t>());
  }
  return Status::ok();
}

}  // namespace

bool ExpertFields::at_layer(int64_t layer) const {
  return count > 0 && layer >= first_layer && (layer + 1) % step == 0 &&
         std::find(dense_layers.begin(), dense_layers.end(), layer) == dense_layers.end();
}

Status read_experts(const FieldReader& in, const ExpertDefaults& d, ModelConfigFields& out) {
  ExpertFields& e = out.experts;
  std::optional<int64_t> count;
  RETURN_IF_ERROR(in.integer_or_alias(d.count_key, d.other_count_key, 1, kMaxExperts, count));
  e.count = count.value_or(d.count);
  RETURN_IF_ERROR(in.integer("num_experts_per_tok", 1, kMaxExperts, d.per_token, e.per_token));
  if (e.per_token > e.count)
    return invalid("{}: num_experts_per_tok is {}, but {} is {}", out.source, e.per_token, d.count_key, e.count);
  if (d.intermediate == 0) {
    e.intermediate = out.intermediate_size;
    e.normalise = true;
    return Status::ok();
  }
  RETURN_IF_ERROR(in.integer("moe_intermediate_size", 1, kMaxIntermediate, d.intermediate, e.intermediate));
  if (d.shared > 0)
    RETURN_IF_ERROR(
        in.integer("shared_expert_intermediate_size", 1, kMaxIntermediate, d.shared, e.shared_intermediate));
  RETURN_IF_ERROR(in.boolean("norm_topk_prob", d.normalise, e.normalise));
  RETURN_IF_ERROR(in.integer("decoder_sparse_step", 1, kMaxLayers, 1, e.step));
  return read_dense_layers(in, e);
}

Status read_unrotated_layers(const FieldReader& in, ModelConfigFields& out) {
  int64_t interval = 0;
  RETURN_IF_ERROR(in.integer("no_rope_layer_interval", 1, kMaxLayers, 4, interval));
  const Json* list = in.find("no_rope_layers");
  if (list && list->is_array() && list->empty()) list = nullptr;
  const std::string allowed = fmt::format("a list of {} numbers 0 or 1", out.num_hidden_layers);
  if (list && (!list->is_array() || static_cast<int64_t>(list->size()) < out.num_hidden_layers))
    return in.wrong("no_rope_layers", *list, allowed);
  for (int64_t l = 0; l < out.num_hidden_layers; ++l) {
    bool turns = (l + 1) % interval != 0;
    if (list) {
      const Json& v = (*list)[static_cast<size_t>(l)];
      if (v != 0 && v != 1) return in.wrong("no_rope_layers", *list, allowed);
      turns = v == 1;
    }
    if (!turns) out.unrotated_layers.push_back(l);
  }
  return Status::ok();
}

Status read_causal(const FieldReader& in, ModelConfigFields& out) {
  bool causal = true;
  RETURN_IF_ERROR(in.boolean("is_causal", true, causal));
  out.both_sides = !causal;
  return Status::ok();
}

Status read_state_layers(const FieldReader& in, ModelConfigFields& out) {
  struct Size {
    std::string_view name;
    int64_t least, most, usual;
  };
  constexpr int64_t kMostTaps = 16;
  const auto read = [&](const Size& s, int64_t& to) {
    RETURN_IF_ERROR(in.integer(s.name, s.least, s.most, s.usual, to));
    out.numbers[std::string(s.name)] = static_cast<double>(to);
    return Status::ok();
  };
  int64_t key_heads = 0, value_heads = 0, size = 0, interval = 0;
  RETURN_IF_ERROR(read({"linear_num_key_heads", 1, kMaxHeads, 16}, key_heads));
  RETURN_IF_ERROR(read({"linear_num_value_heads", 1, kMaxHeads, 32}, value_heads));
  for (const std::string_view name : {"linear_key_head_dim", "linear_value_head_dim"})
    RETURN_IF_ERROR(read({name, 1, kMaxHeadDim, 128}, size));
  RETURN_IF_ERROR(read({"linear_conv_kernel_dim", 2, kMostTaps, 4}, size));
  if (value_heads % key_heads != 0)
    return invalid("{}: linear_num_value_heads {} is not a multiple of linear_num_key_heads {}", out.source,
                   value_heads, key_heads);
  bool gate = true;
  RETURN_IF_ERROR(in.boolean("attn_output_gate", true, gate));
  if (!gate) return in.wrong("attn_output_gate", Json(gate), "true");
  RETURN_IF_ERROR(in.integer("full_attention_interval", 1, kMaxLayers, 4, interval));
  if (in.find("layer_types")) return Status::ok();
  for (int64_t l = 0; l < out.num_hidden_layers; ++l)
    out.layer_types.emplace_back((l + 1) % interval == 0 ? "full_attention" : "linear_attention");
  return Status::ok();
}

namespace {

// [least, most] of a row's step, or none; the second may be infinite.
Status read_step_limit(const FieldReader& in, ModelConfigFields& out) {
  constexpr std::string_view kName = "time_step_limit", kAllowed = "null, two numbers from 0 on, the second no smaller";
  double& least = out.numbers["mamba.least_step"] = 0;
  double& most = out.numbers["mamba.most_step"] = 0;
  const Json* limit = in.find(kName);
  if (!limit) return Status::ok();
  if (!limit->is_array() || limit->size() != 2 || !(*limit)[0].is_number()) return in.wrong(kName, *limit, kAllowed);
  least = (*limit)[0].get<double>();
  const Json& top = (*limit)[1];
  const bool none = top.is_object() && top.size() == 1 && top.value("__float__", "") == "Infinity";
  if (!none && !top.is_number()) return in.wrong(kName, *limit, kAllowed);
  most = none ? 0 : top.get<double>();
  if (!(least >= 0) || !std::isfinite(least) || (!none && !(most > 0 && most >= least)))
    return in.wrong(kName, *limit, kAllowed);
  if (!std::isfinite(most)) most = 0;
  return Status::ok();
}

}  // namespace

Status read_mamba(const FieldReader& in, const MambaFields& f, ModelConfigFields& out) {
  constexpr int64_t kMostTaps = 16;
  const auto read = [&](std::string_view name, int64_t least, int64_t most, int64_t usual, const char* to) {
    int64_t value = 0;
    RETURN_IF_ERROR(in.integer(name, least, most, usual > 0 ? std::optional<int64_t>(usual) : std::nullopt, value));
    out.numbers[to] = static_cast<double>(value);
    return Status::ok();
  };
  RETURN_IF_ERROR(read(f.heads, 1, kMaxHeads, f.usual_heads, "mamba.heads"));
  RETURN_IF_ERROR(read(f.head, 1, kMaxHeadDim, f.usual_head, "mamba.head"));
  RETURN_IF_ERROR(read(f.groups, 1, kMaxHeads, f.usual_groups, "mamba.groups"));
  RETURN_IF_ERROR(read(f.state, 1, kMaxHeadDim, f.usual_state, "mamba.state"));
  RETURN_IF_ERROR(read(f.taps, 2, kMostTaps, 4, "mamba.taps"));
  const auto heads = static_cast<int64_t>(out.number("mamba.heads")),
             groups = static_cast<int64_t>(out.number("mamba.groups"));
  if (heads % groups != 0)
    return invalid("{}: {} {} is not a multiple of {} {}", out.source, f.heads, heads, f.groups, groups);
  bool conv = true, proj = false;
  RETURN_IF_ERROR(in.boolean(f.conv_bias, true, conv));
  RETURN_IF_ERROR(in.boolean(f.proj_bias, false, proj));
  out.numbers["mamba.conv_bias"] = conv ? 1 : 0;
  out.numbers["mamba.proj_bias"] = proj ? 1 : 0;
  return read_step_limit(in, out);
}

Status read_latent(const FieldReader& in, const LatentDefaults& d, ModelConfigFields& out) {
  LatentFields l;
  std::optional<int64_t> rank;
  RETURN_IF_ERROR(in.integer("q_lora_rank", 1, kMaxHidden, rank));
  if (!rank && !out.raw_json.contains("q_lora_rank")) rank = d.q_lora_rank;
  l.q_lora_rank = rank.value_or(0);
  RETURN_IF_ERROR(in.integer("kv_lora_rank", 1, kMaxHidden, d.kv_lora_rank, l.kv_lora_rank));
  RETURN_IF_ERROR(in.integer("qk_nope_head_dim", 1, kMaxHeadDim, d.qk_nope_head_dim, l.qk_nope_head_dim));
  RETURN_IF_ERROR(in.integer("qk_rope_head_dim", 2, kMaxHeadDim, d.qk_rope_head_dim, l.qk_rope_head_dim));
  RETURN_IF_ERROR(in.integer("v_head_dim", 1, kMaxHeadDim, d.v_head_dim, l.v_head_dim));
  // null is not absence here: transformers tests the value.
  RETURN_IF_ERROR(in.boolean("rope_interleave", !out.raw_json.contains("rope_interleave"), l.rope_interleave));
  out.head_dim = l.qk_rope_head_dim;
  out.latent = l;
  return Status::ok();
}

}  // namespace reprise::checkpoint
