#include "checkpoint/gguf_groups.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/limits.h"

namespace reprise::checkpoint {

Status add_expert_sizes(GgufFields& in, bool normalised) {
  RETURN_IF_ERROR(in.copy("expert_feed_forward_length", "moe_intermediate_size"));
  ASSIGN_OR_RETURN(const auto given, in.file().boolean(in.key("expert_weights_norm")));
  in.out()["norm_topk_prob"] = given.value_or(normalised);
  return Status::ok();
}

Status add_grouped_experts(GgufFields& in, bool normalised) {
  RETURN_IF_ERROR(add_expert_sizes(in, normalised));
  RETURN_IF_ERROR(in.copy("leading_dense_block_count", "first_k_dense_replace", false));
  if (!in.out().contains("first_k_dense_replace")) in.out()["first_k_dense_replace"] = 0;
  RETURN_IF_ERROR(in.copy("expert_shared_count", "n_shared_experts", false));
  if (!in.out().contains("n_shared_experts")) in.out()["n_shared_experts"] = 0;
  ASSIGN_OR_RETURN(const auto scale, in.file().number(in.key("expert_weights_scale")));
  in.out()["routed_scaling_factor"] = scale.value_or(0) == 0 ? 1.0 : *scale;
  ASSIGN_OR_RETURN(const auto groups, in.get("expert_group_count"));
  if (groups.value_or(0) <= 0) return Status::ok();
  in.out()["n_group"] = *groups;
  return in.copy("expert_group_used_count", "topk_group");
}

// Nothing when no layer has any.
void add_dense_layers(GgufFields& in) {
  const auto layers = std::min(kMaxLayers, in.out()["num_hidden_layers"].get<int64_t>());
  Json dense = Json::array();
  for (int64_t l = 0; l < layers; ++l)
    if (!in.file().find(fmt::format("blk.{}.ffn_down_exps.weight", l))) dense.push_back(static_cast<uint64_t>(l));
  in.out()["mlp_only_layers"] = static_cast<int64_t>(dense.size()) < layers ? dense : Json::array();
}

Status add_long_factors(GgufFields& in) {
  const GgufFile& file = in.file();
  Json scaling = {{"rope_type", "longrope"}};
  for (const auto& [tensor, to] :
       {std::pair{"rope_factors_short.weight", "short_factor"}, {"rope_factors_long.weight", "long_factor"}}) {
    const StoredTensor* t = file.find(tensor);
    if (!t) return Status::ok();
    const std::span<const uint8_t> bytes = file.bytes(*t);
    if (t->type != StorageType::F32 || t->shape.size() != 1 || bytes.size() % sizeof(float) != 0)
      return invalid("{}: tensor \"{}\" is stored as {}; allowed: a vector of F32", file.source(), tensor,
                     t->type_name);
    std::vector<float> factors(bytes.size() / sizeof(float));
    std::memcpy(factors.data(), bytes.data(), bytes.size());
    scaling[to] = factors;
  }
  ASSIGN_OR_RETURN(const auto original, in.get("rope.scaling.original_context_length"));
  if (!original) return in.missing("rope.scaling.original_context_length");
  scaling["original_max_position_embeddings"] = *original;
  ASSIGN_OR_RETURN(const auto attention, file.number(in.key("rope.scaling.attn_factor")));
  if (attention.value_or(0) > 0) scaling["attention_factor"] = *attention;
  if (in.out().contains("gguf_partial_rotary_factor"))
    scaling["partial_rotary_factor"] = in.out()["gguf_partial_rotary_factor"];
  in.out()["rope_scaling"] = std::move(scaling);
  return Status::ok();
}

Status add_window_pattern(GgufFields& in) {
  const std::string key = in.key("attention.sliding_window_pattern");
  const GgufValue* v = in.file().find_value(key);
  if (!v || v->type != GgufValueType::Array) return Status::ok();
  if (!v->is_array_of(GgufValueType::Bool))
    return invalid("{}: metadata \"{}\" is not a list of booleans", in.file().source(), key);
  Json types = Json::array();
  for (const uint8_t slides : v->bytes) types.push_back(slides ? "sliding_attention" : "full_attention");
  in.out()["layer_types"] = std::move(types);
  return Status::ok();
}

Status add_position_sections(GgufFields& in) {
  const std::string key = in.key("rope.dimension_sections");
  const GgufValue* v = in.file().find_value(key);
  if (!v || v->type != GgufValueType::Array || !GgufValue::is_integer_type(v->element) || v->count < 3 || v->count > 4)
    return invalid("{}: metadata \"{}\" is {}; allowed: three integers, and a fourth of 0", in.file().source(), key,
                   v ? "no such list" : "missing");
  Json sections = Json::array();
  for (uint64_t i = 0; i < v->count; ++i) {
    ASSIGN_OR_RETURN(const int64_t n, v->as_int(i));
    if (i == 3 && n != 0)
      return error(Code::Unsupported, "{}: metadata \"{}\" has a fourth section of {}; allowed: 0", in.file().source(),
                   key, n);
    if (i < 3) sections.push_back(n);
  }
  Json& scaling = in.out()["rope_scaling"];
  if (!scaling.is_object()) scaling = Json{{"rope_type", "default"}};
  scaling["mrope_section"] = std::move(sections);
  return Status::ok();
}

Status add_mamba(GgufFields& in, const MambaNames& names) {
  RETURN_IF_ERROR(in.copy("ssm.time_step_rank", names.heads));
  RETURN_IF_ERROR(in.copy("ssm.group_count", names.groups));
  RETURN_IF_ERROR(in.copy("ssm.state_size", names.state));
  RETURN_IF_ERROR(in.copy("ssm.conv_kernel", names.taps));
  return in.copy("ssm.inner_size", names.inner);
}

Status add_latent(GgufFields& in) {
  const GgufFile& file = in.file();
  Json& out = in.out();
  out["num_key_value_heads"] = out["num_attention_heads"];  // newer files say 1: of latents there is one
  ASSIGN_OR_RETURN(const auto rank, in.get("attention.q_lora_rank"));
  out["q_lora_rank"] = rank.value_or(0) > 0 ? Json(*rank) : Json(nullptr);
  RETURN_IF_ERROR(in.copy("attention.kv_lora_rank", "kv_lora_rank"));
  RETURN_IF_ERROR(in.copy("rope.dimension_count", "qk_rope_head_dim"));
  // Newer files have the latent's size as key_length, and a head's under these names.
  ASSIGN_OR_RETURN(auto key, in.get("attention.key_length_mla"));
  ASSIGN_OR_RETURN(auto value, in.get("attention.value_length_mla"));
  if (!key) {
    ASSIGN_OR_RETURN(key, in.get("attention.key_length"));
  }
  if (!value) {
    ASSIGN_OR_RETURN(value, in.get("attention.value_length"));
  }
  const auto rotated = out["qk_rope_head_dim"].get<int64_t>();
  out["head_dim"] = rotated;
  if (!key || !value || *key <= rotated)
    return invalid("{}: metadata \"{}\" and \"{}\" must be given, the first above {}", file.source(),
                   in.key("attention.key_length"), in.key("attention.value_length"), rotated);
  out["qk_nope_head_dim"] = *key - rotated;
  out["v_head_dim"] = *value;
  out["rope_interleave"] = true;
  if (!out.contains("rope_scaling") || out["rope_scaling"]["rope_type"] != "yarn") return Status::ok();
  // YaRN's factor is on the scores alone; the file has a tenth of mscale_all_dim.
  ASSIGN_OR_RETURN(const auto tenth, file.number(in.key("rope.scaling.yarn_log_multiplier")));
  Json& scaling = out["rope_scaling"];
  if (tenth.value_or(0) == 0) {
    scaling["attention_factor"] = 1.0;
  } else {
    scaling.erase("attention_factor");
    scaling["mscale"] = scaling["mscale_all_dim"] = *tenth * 10;
  }
  return Status::ok();
}

}  // namespace reprise::checkpoint
