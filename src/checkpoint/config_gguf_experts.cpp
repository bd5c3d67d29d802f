#include "checkpoint/config_gguf_experts.h"

#include <algorithm>
#include <utility>

namespace reprise::checkpoint {
namespace {

constexpr int64_t kSigmoid = 2;  // of expert_gating_func; 1 is softmax, and so is 0 or nothing

class ArchFields {
 public:
  ArchFields(const GgufFile& file, const std::string& arch, Json& out) : file_(file), arch_(arch), out_(out) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  Result<std::optional<int64_t>> get(std::string_view name) const { return file_.integer(key(name)); }
  // The number, under another name; required ones are named when they are missing.
  Status copy(std::string_view name, const char* to, bool required = true) {
    ASSIGN_OR_RETURN(const auto v, get(name));
    if (!v && required) return invalid("{}: metadata \"{}\" is missing", file_.source(), key(name));
    if (v) out_[to] = *v;
    return Status::ok();
  }
  const GgufFile& file() const { return file_; }
  Json& out() { return out_; }

 private:
  const GgufFile& file_;
  const std::string& arch_;
  Json& out_;
};

// Experts behind the first layers, chosen among the best of some groups, beside shared ones.
Status add_deepseek(ArchFields& r) {
  RETURN_IF_ERROR(r.copy("leading_dense_block_count", "first_k_dense_replace", false));
  if (!r.out().contains("first_k_dense_replace")) r.out()["first_k_dense_replace"] = 0;
  RETURN_IF_ERROR(r.copy("expert_shared_count", "n_shared_experts", false));
  if (!r.out().contains("n_shared_experts")) r.out()["n_shared_experts"] = 0;
  ASSIGN_OR_RETURN(const auto scale, r.file().number(r.key("expert_weights_scale")));
  r.out()["routed_scaling_factor"] = scale.value_or(0) == 0 ? 1.0 : *scale;
  ASSIGN_OR_RETURN(const auto groups, r.get("expert_group_count"));
  if (groups.value_or(0) > 0) {
    r.out()["n_group"] = *groups;
    RETURN_IF_ERROR(r.copy("expert_group_used_count", "topk_group"));
  }
  if (r.out()["architectures"][0] == "DeepseekV2ForCausalLM")
    r.out()["topk_method"] = groups.value_or(1) > 1 ? "group_limited_greedy" : "greedy";
  return Status::ok();
}

// Layers without experts are those that have no tensors of them; nothing when no layer has any.
Json dense_layers(const GgufFile& file, const Json& out) {
  constexpr int64_t kMostLayers = 1000;
  const auto layers = std::min(kMostLayers, out["num_hidden_layers"].get<int64_t>());
  Json dense = Json::array();
  for (int64_t l = 0; l < layers; ++l)
    if (!file.find(fmt::format("blk.{}.ffn_down_exps.weight", l))) dense.push_back(static_cast<uint64_t>(l));
  return static_cast<int64_t>(dense.size()) < layers ? dense : Json::array();
}

}  // namespace

Result<GgufFamily> family_with_experts(const GgufFile& file, const std::string& arch, GgufFamily family) {
  Json none;
  const ArchFields r(file, arch, none);
  ASSIGN_OR_RETURN(const auto count, r.get("expert_count"));
  if (arch == "llama" && count.value_or(0) > 0) return GgufFamily{"MixtralForCausalLM", "mixtral"};
  if (arch != "deepseek2") return family;
  ASSIGN_OR_RETURN(const auto gating, r.get("expert_gating_func"));
  if (gating.value_or(0) < 0 || gating.value_or(0) > kSigmoid)
    return error(Code::Unsupported, "{}: metadata \"{}\" is {}; allowed: 1 (softmax), 2 (sigmoid)", file.source(),
                 r.key("expert_gating_func"), *gating);
  return gating.value_or(0) == kSigmoid ? GgufFamily{"DeepseekV3ForCausalLM", "deepseek_v3"} : family;
}

Status add_experts_from_gguf(const GgufFile& file, const std::string& arch, Json& out) {
  ArchFields r(file, arch, out);
  const bool of_experts = arch == "qwen2moe" || arch == "qwen3moe" || arch == "deepseek2";
  ASSIGN_OR_RETURN(const auto count, r.get("expert_count"));
  if (count.value_or(0) <= 0)
    return of_experts ? invalid("{}: metadata \"{}\" is missing", file.source(), r.key("expert_count")) : Status::ok();
  if (!of_experts && arch != "llama")
    return error(Code::Unsupported,
                 "{}: a mixture of {} experts of architecture \"{}\" cannot be read from GGUF; allowed: llama, "
                 "qwen2moe, qwen3moe, deepseek2",
                 file.source(), *count, arch);
  out[arch == "llama" ? "num_local_experts" : arch == "deepseek2" ? "n_routed_experts" : "num_experts"] = *count;
  RETURN_IF_ERROR(r.copy("expert_used_count", "num_experts_per_tok"));
  if (arch == "llama") return Status::ok();  // an expert has feed_forward_length
  RETURN_IF_ERROR(r.copy("expert_feed_forward_length", "moe_intermediate_size"));
  // Files of Qwen say nothing of it: Qwen3's weights are normalised.
  ASSIGN_OR_RETURN(const auto normalised, file.boolean(r.key("expert_weights_norm")));
  out["norm_topk_prob"] = normalised.value_or(arch == "qwen3moe");
  if (arch != "deepseek2") out["mlp_only_layers"] = dense_layers(file, out);
  if (arch == "qwen2moe") return r.copy("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
  return arch == "deepseek2" ? add_deepseek(r) : Status::ok();
}

Status add_latent_from_gguf(const GgufFile& file, const std::string& arch, Json& out) {
  if (arch != "deepseek2") return Status::ok();
  ArchFields r(file, arch, out);
  out["num_key_value_heads"] = out["num_attention_heads"];  // newer files say 1: of latents there is one
  ASSIGN_OR_RETURN(const auto rank, r.get("attention.q_lora_rank"));
  out["q_lora_rank"] = rank.value_or(0) > 0 ? Json(*rank) : Json(nullptr);
  RETURN_IF_ERROR(r.copy("attention.kv_lora_rank", "kv_lora_rank"));
  RETURN_IF_ERROR(r.copy("rope.dimension_count", "qk_rope_head_dim"));
  // Newer files have the latent's size as key_length, and a head's under these names.
  ASSIGN_OR_RETURN(auto key, r.get("attention.key_length_mla"));
  ASSIGN_OR_RETURN(auto value, r.get("attention.value_length_mla"));
  if (!key) {
    ASSIGN_OR_RETURN(key, r.get("attention.key_length"));
  }
  if (!value) {
    ASSIGN_OR_RETURN(value, r.get("attention.value_length"));
  }
  const auto rotated = out["qk_rope_head_dim"].get<int64_t>();
  out["head_dim"] = rotated;
  if (!key || !value || *key <= rotated)
    return invalid("{}: metadata \"{}\" and \"{}\" must be given, the first above {}", file.source(),
                   r.key("attention.key_length"), r.key("attention.value_length"), rotated);
  out["qk_nope_head_dim"] = *key - rotated;
  out["v_head_dim"] = *value;
  out["rope_interleave"] = true;
  if (!out.contains("rope_scaling") || out["rope_scaling"]["rope_type"] != "yarn") return Status::ok();
  // YaRN's factor is on the scores alone; the file has a tenth of mscale_all_dim.
  ASSIGN_OR_RETURN(const auto tenth, file.number(r.key("rope.scaling.yarn_log_multiplier")));
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
