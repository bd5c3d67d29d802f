// Hunyuan, dense and with experts beside an MLP: query and key heads are normed behind the rotation, whose base may be
// multiplied once and for all.
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace reprise::models::hunyuan {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

DecoderTraits traits_of(const ModelConfigFields& f) {
  return {.qkv_bias = f.attention_bias,
          .output_bias = f.attention_bias,
          .qk_norm = true,
          .qk_norm_place = nn::QkNorm::Rotated,
          .q_norm = "query_layernorm",
          .k_norm = "key_layernorm"};
}

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, traits_of(config.fields), in, root);
}

ModelOutputs forward_experts(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const nn::ExpertSpec experts = expert_spec(f.experts);
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) {
    const Tensor y = nn::moe(x, experts, in, p / "mlp");
    return nn::add(y, nn::gated_mlp(x, f.experts.shared_intermediate, false, p / "mlp" / "shared_mlp"));
  };
  return decoder(config, grouped_attention(config, traits_of(f), in), mlp, in, root);
}

constexpr std::string_view kFields[] = {"attention_bias"};
constexpr std::string_view kFieldsMoe[] = {"attention_bias",   "num_experts",       "num_local_experts",
                                           "moe_topk",         "num_shared_expert", "moe_intermediate_size",
                                           "norm_topk_prob",   "use_cla",           "moe_layer_num_skipped",
                                           "use_mixed_mlp_moe"};

// A number, or a list with the same one for every layer.
Status same_in_all(const FieldReader& in, std::string_view key, int64_t most, int64_t usual, int64_t& out) {
  const Json* v = in.find(key);
  if (!v || !v->is_array()) return in.integer(key, 1, most, usual, out);
  if (v->empty()) return in.wrong(key, *v, "an integer, or a list of the same one for all layers");
  for (const Json& each : *v)
    if (!each.is_number_unsigned() || each != v->front() || each < 1 ||
        each.get<uint64_t>() > static_cast<uint64_t>(most))
      return in.wrong(key, *v, fmt::format("an integer from 1 to {}, or a list of the same one for all layers", most));
  out = v->front().get<int64_t>();
  return Status::ok();
}

Status read_moe(const FieldReader& in, ModelConfigFields& out) {
  checkpoint::ExpertFields& e = out.experts;
  RETURN_IF_ERROR(same_in_all(in, "num_experts", checkpoint::kMaxExperts, 1, e.count));
  RETURN_IF_ERROR(same_in_all(in, "moe_topk", e.count, 1, e.per_token));
  RETURN_IF_ERROR(
      same_in_all(in, "moe_intermediate_size", checkpoint::kMaxIntermediate, out.intermediate_size, e.intermediate));
  int64_t shared = 1;
  RETURN_IF_ERROR(same_in_all(in, "num_shared_expert", 1, 1, shared));
  if (e.intermediate != out.intermediate_size)
    return invalid("{}: moe_intermediate_size {}; allowed: intermediate_size {}", out.source, e.intermediate,
                   out.intermediate_size);
  e.shared_intermediate = shared * e.intermediate;
  e.normalise = true;
  bool shares = false, normalise = true;
  RETURN_IF_ERROR(in.boolean("use_cla", false, shares));
  if (shares) return in.wrong("use_cla", Json(true), "false: no layer reads another one's keys and values here");
  RETURN_IF_ERROR(in.boolean("norm_topk_prob", true, normalise));
  if (!normalise) return in.wrong("norm_topk_prob", Json(false), "true");
  int64_t skipped = 0;
  return in.integer("moe_layer_num_skipped", 0, 0, 0, skipped);
}

constexpr checkpoint::GgufTensorName kTensors[] = {{"attn_q_norm.", "self_attn.query_layernorm."},
                                                   {"attn_k_norm.", "self_attn.key_layernorm."}};
constexpr checkpoint::GgufTensorName kMoeTensors[] = {{"attn_q_norm.", "self_attn.query_layernorm."},
                                                      {"attn_k_norm.", "self_attn.key_layernorm."},
                                                      {"ffn_gate_shexp.", "mlp.shared_mlp.gate_proj."},
                                                      {"ffn_up_shexp.", "mlp.shared_mlp.up_proj."},
                                                      {"ffn_down_shexp.", "mlp.shared_mlp.down_proj."}};
constexpr checkpoint::NameRule kMoeNames[] = {
    {checkpoint::NameRule::At::End, ".mlp.gate.wg.weight", ".mlp.gate.weight"}};

Status add_moe(checkpoint::GgufFields& in) {
  RETURN_IF_ERROR(in.copy("expert_used_count", "moe_topk"));
  RETURN_IF_ERROR(in.copy("expert_feed_forward_length", "moe_intermediate_size"));
  return in.copy("expert_shared_count", "num_shared_expert");
}

constexpr checkpoint::SizeDefaults kSizes{
    .vocab = 290943, .hidden = 4096, .intermediate = 11008, .layers = 32, .heads = 32, .positions = 2048, .eps = 1e-5};

}  // namespace

const ModelSpec kHunyuan{.family = {.architecture = "HunYuanDenseV1ForCausalLM",
                                    .model_type = "hunyuan_v1_dense",
                                    .sizes = kSizes,
                                    .fields = kFields,
                                    .gguf = {.name = "hunyuan-dense", .tensors = kTensors},
                                    .fixed_ntk = true},
                         .forward = forward,
                         .qk_norm = true};

const ModelSpec kHunyuanMoe{
    .family = {.architecture = "HunYuanMoEV1ForCausalLM",
               .model_type = "hunyuan_v1_moe",
               .sizes = kSizes,
               .fields = kFieldsMoe,
               .read = read_moe,
               .gguf = {.name = "hunyuan-moe", .experts = "num_experts", .add = add_moe, .tensors = kMoeTensors},
               .names = kMoeNames,
               .fixed_ntk = true},
    .forward = forward_experts,
    .qk_norm = true};

}  // namespace reprise::models::hunyuan
