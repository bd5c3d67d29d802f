// Nemotron-H: a layer is one mixer behind a norm: Mamba-2's, attention without positions, an MLP, or experts. Neither
// of the last two has a gate: its inner numbers are squared where they are above 0.
#include <algorithm>
#include <array>
#include <iterator>

#include "checkpoint/config_groups.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"
#include "models/experts.h"
#include "models/state_layers.h"

namespace reprise::models::nemotron_h {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

Tensor plain_mlp(Tensor x, int64_t size, bool bias, const nn::ParamScope& p) {
  const Dim hidden = x.dim(-1);
  const Tensor inner = nn::activate(nn::linear(x, p / "up_proj", size, bias, nn::Shard::Column), "relu_squared");
  return nn::linear(inner, p / "down_proj", hidden.factor, bias, nn::Shard::Row);
}

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const DecoderTraits traits{
      .qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .rotation = nn::Rotation::None};
  const nn::MambaSpec mamba = mamba_spec(f);
  const LayerAttention attention = grouped_attention(config, traits, in);
  nn::ExpertSpec experts = expert_spec(f.experts);
  experts.gated = false;
  experts.latent = static_cast<int64_t>(f.number("moe_latent_size"));
  if (experts.normalise) experts.eps = 1e-20;
  const auto mixer = [&](Tensor x, Tensor rope, int64_t layer, const nn::ParamScope& p) {
    const std::string_view type = f.layer_types[static_cast<size_t>(layer)];
    if (type == "linear_attention") return nn::mamba_layer(x, mamba, in, layer, p / "mamba");
    if (type == "full_attention") return attention(x, rope, layer, p);
    if (type == "mlp") return plain_mlp(x, f.intermediate_size, f.mlp_bias, p / "mlp");
    return nn::add(nn::moe(x, experts, in, p / "mlp"),
                   plain_mlp(x, f.experts.shared_intermediate, f.mlp_bias, p / "mlp" / "shared_experts"));
  };
  return decoder(config, mixer, nullptr, in, root, {.one_branch = true});
}

constexpr std::string_view kFields[] = {"attention_bias",
                                        "mlp_bias",
                                        "hybrid_override_pattern",
                                        "layers_block_type",
                                        "mamba_num_heads",
                                        "mamba_head_dim",
                                        "n_groups",
                                        "ssm_state_size",
                                        "conv_kernel",
                                        "use_conv_bias",
                                        "use_bias",
                                        "time_step_limit",
                                        "mlp_hidden_act",
                                        "mamba_hidden_act",
                                        "n_routed_experts",
                                        "num_experts",
                                        "num_local_experts",
                                        "n_shared_experts",
                                        "moe_shared_expert_intermediate_size",
                                        "moe_latent_size",
                                        "routed_scaling_factor",
                                        "n_group",
                                        "topk_group",
                                        "norm_topk_prob",
                                        "chunk_size",
                                        "expand",
                                        "layer_norm_epsilon",
                                        "rescale_prenorm_residual",
                                        "attention_head_dim",
                                        "residual_in_fp32"};

// A letter or a word for each layer: M, *, -, E.
Status read_pattern(const FieldReader& in, ModelConfigFields& out) {
  constexpr std::string_view kPattern = "hybrid_override_pattern", kList = "layers_block_type",
                             kAllowed = "a text of M, *, - and E, one for each layer",
                             kWords = "a list of \"linear_attention\", \"full_attention\", \"mlp\", \"moe\"";
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"M", "linear_attention"},     {"*", "full_attention"},        {"-", "mlp"}, {"E", "moe"},
      {"mamba", "linear_attention"}, {"attention", "full_attention"}};
  const auto add = [&](std::string_view word) {
    for (const auto& [name, type] : kNames)
      if (word == name || word == type) return out.layer_types.emplace_back(type), true;
    return false;
  };
  if (const Json* list = in.find(kList)) {
    if (!list->is_array()) return in.wrong(kList, *list, kWords);
    for (const Json& word : *list)
      if (!word.is_string() || !add(word.get<std::string>())) return in.wrong(kList, *list, kWords);
  } else {
    std::optional<std::string> pattern;
    RETURN_IF_ERROR(in.string(kPattern, pattern));
    if (!pattern) return in.absent(kPattern, kAllowed);
    for (const char c : *pattern)
      if (!add(std::string_view(&c, 1))) return in.wrong(kPattern, Json(*pattern), kAllowed);
  }
  const auto layers = static_cast<int64_t>(out.layer_types.size());
  if (layers < 1 || layers > checkpoint::kMaxLayers ||
      (in.find("num_hidden_layers") && layers != out.num_hidden_layers))
    return invalid("{}: {} layers in {}, but num_hidden_layers is {}", out.source, layers,
                   in.find(kList) ? kList : kPattern, out.num_hidden_layers);
  out.num_hidden_layers = layers;
  return Status::ok();
}

Status read_experts(const FieldReader& in, ModelConfigFields& out) {
  checkpoint::ExpertFields& e = out.experts;
  out.numbers["moe_latent_size"] = 0;
  if (std::find(out.layer_types.begin(), out.layer_types.end(), "moe") == out.layer_types.end()) return Status::ok();
  std::optional<int64_t> count = 8, latent;
  RETURN_IF_ERROR(in.integer_or_alias("n_routed_experts", "num_local_experts", 1, checkpoint::kMaxExperts, count));
  e.count = *count;
  RETURN_IF_ERROR(in.integer("num_experts_per_tok", 1, e.count, 2, e.per_token));
  RETURN_IF_ERROR(in.integer("moe_intermediate_size", 1, checkpoint::kMaxIntermediate, 7688, e.intermediate));
  RETURN_IF_ERROR(
      in.integer("moe_shared_expert_intermediate_size", 1, checkpoint::kMaxIntermediate, 7688, e.shared_intermediate));
  RETURN_IF_ERROR(in.integer("moe_latent_size", 1, checkpoint::kMaxHidden, latent));
  out.numbers["moe_latent_size"] = static_cast<double>(latent.value_or(0));
  RETURN_IF_ERROR(in.number("routed_scaling_factor", 0.0, 1e6, 1.0, e.scale));
  RETURN_IF_ERROR(in.boolean("norm_topk_prob", true, e.normalise));
  RETURN_IF_ERROR(in.integer("n_group", 1, e.count, 1, e.groups));
  RETURN_IF_ERROR(in.integer("topk_group", 1, e.groups, 1, e.top_groups));
  e.score = "sigmoid";
  e.group_score = "top2";
  e.choice_bias = true;
  if (e.count % e.groups != 0 || (e.groups > 1 && e.count / e.groups < 2) ||
      e.per_token > e.top_groups * (e.count / e.groups))
    return invalid("{}: n_group {} and topk_group {} do not fit {} experts of which a token goes to {}", out.source,
                   e.groups, e.top_groups, e.count, e.per_token);
  if (out.mlp_bias) return in.wrong("mlp_bias", Json(true), "false with experts");
  return Status::ok();
}

Status read(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(read_pattern(in, out));
  std::string act;
  RETURN_IF_ERROR(in.choice("mlp_hidden_act", {"relu2"}, "relu2", act));
  RETURN_IF_ERROR(in.choice("mamba_hidden_act", {"silu", "swish"}, "silu", act));
  int64_t head = out.head_dim;
  RETURN_IF_ERROR(in.integer("attention_head_dim", out.head_dim, out.head_dim, out.head_dim, head));
  RETURN_IF_ERROR(read_experts(in, out));
  return checkpoint::read_mamba(in,
                                {.heads = "mamba_num_heads",
                                 .head = "mamba_head_dim",
                                 .groups = "n_groups",
                                 .state = "ssm_state_size",
                                 .taps = "conv_kernel",
                                 .conv_bias = "use_conv_bias",
                                 .proj_bias = "use_bias",
                                 .usual_heads = 128,
                                 .usual_head = 64,
                                 .usual_groups = 8,
                                 .usual_state = 128},
                                out);
}

// What a router chooses among. A converter leaves out how many groups count where all experts are one.
Status add_experts(checkpoint::GgufFields& in) {
  if (!in.out().contains("n_routed_experts")) return Status::ok();
  RETURN_IF_ERROR(checkpoint::add_expert_sizes(in, true));
  RETURN_IF_ERROR(in.copy("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"));
  RETURN_IF_ERROR(in.copy("moe_latent_size", "moe_latent_size", false));
  RETURN_IF_ERROR(in.copy_number("expert_weights_scale", "routed_scaling_factor"));
  ASSIGN_OR_RETURN(const auto groups, in.get("expert_group_count"));
  if (groups.value_or(0) <= 1) return Status::ok();
  in.out()["n_group"] = *groups;
  return in.copy("expert_group_used_count", "topk_group");
}

// Which mixer a layer is, its tensors say.
Status add(checkpoint::GgufFields& in) {
  RETURN_IF_ERROR(
      checkpoint::add_mamba(in, {"mamba_num_heads", "n_groups", "ssm_state_size", "conv_kernel", "mamba_head_dim"}));
  Json& out = in.out();
  const auto heads = out["mamba_num_heads"].get<int64_t>(), inner = out["mamba_head_dim"].get<int64_t>();
  if (heads < 1 || inner % heads != 0)
    return invalid("{}: metadata \"{}\" {} is no multiple of \"{}\" {}", in.file().source(), in.key("ssm.inner_size"),
                   inner, in.key("ssm.time_step_rank"), heads);
  out["mamba_head_dim"] = inner / heads;
  Json types = Json::array();
  for (int64_t l = 0; l < std::min(checkpoint::kMaxLayers, out["num_hidden_layers"].get<int64_t>()); ++l) {
    const auto has = [&](std::string_view leaf) { return in.has(fmt::format("blk.{}.{}.weight", l, leaf)); };
    types.push_back(has("ssm_in")         ? "linear_attention"
                    : has("attn_q")       ? "full_attention"
                    : has("ffn_gate_inp") ? "moe"
                                          : "mlp");
  }
  out["layers_block_type"] = std::move(types);
  return add_experts(in);
}

// Mamba-2's names, and those of experts between latent projections.
constexpr auto kGgufTensors = [] {
  using checkpoint::GgufTensorName;
  constexpr GgufTensorName kExperts[] = {{"ffn_up_shexp.", "mlp.shared_experts.up_proj."},
                                         {"ffn_down_shexp.", "mlp.shared_experts.down_proj."},
                                         {"ffn_latent_down.", "mlp.fc1_latent_proj."},
                                         {"ffn_latent_up.", "mlp.fc2_latent_proj."},
                                         // In a layer that predicts a further token the experts have a norm, too.
                                         {"ffn_norm.", "shared_head.experts_norm."},
                                         {"post_attention_norm.", "shared_head.experts_norm."}};
  std::array<GgufTensorName, std::size(kMambaTensors) + std::size(kExperts)> all;
  std::copy(std::begin(kExperts), std::end(kExperts),
            std::copy(std::begin(kMambaTensors), std::end(kMambaTensors), all.begin()));
  return all;
}();

// A layer is one mixer behind a norm, of any kind; here each kind has its own name.
using checkpoint::NameRule;
constexpr NameRule kNames[] = {{NameRule::At::Start, "backbone.", "model."},
                               {NameRule::At::Start, "model.embeddings.", "model.embed_tokens."},
                               {NameRule::At::Start, "model.norm_f.", "model.norm."},
                               {NameRule::At::InLayer, ".norm.weight", ".input_layernorm.weight"},
                               {NameRule::At::InLayer, ".mixer.q_proj.", ".self_attn.q_proj."},
                               {NameRule::At::InLayer, ".mixer.k_proj.", ".self_attn.k_proj."},
                               {NameRule::At::InLayer, ".mixer.v_proj.", ".self_attn.v_proj."},
                               {NameRule::At::InLayer, ".mixer.o_proj.", ".self_attn.o_proj."},
                               {NameRule::At::InLayer, ".mixer.in_proj.", ".mamba.in_proj."},
                               {NameRule::At::InLayer, ".mixer.conv1d.", ".mamba.conv1d."},
                               {NameRule::At::InLayer, ".mixer.A_log", ".mamba.A_log"},
                               {NameRule::At::InLayer, ".mixer.D", ".mamba.D"},
                               {NameRule::At::InLayer, ".mixer.dt_bias", ".mamba.dt_bias"},
                               {NameRule::At::InLayer, ".mixer.norm.", ".mamba.norm."},
                               {NameRule::At::InLayer, ".mixer.out_proj.", ".mamba.out_proj."},
                               {NameRule::At::InLayer, ".mixer.", ".mlp."}};

constexpr std::string_view kUnread[] = {"mtp."};

}  // namespace

const ModelSpec kNemotronH{.family = {.architecture = "NemotronHForCausalLM",
                                      .model_type = "nemotron_h",
                                      .sizes = {.vocab = 131072,
                                                .hidden = 4096,
                                                .intermediate = 21504,
                                                .layers = 52,
                                                .heads = 32,
                                                .kv_heads = 8,
                                                .head_dim = 128,
                                                .positions = 4096,
                                                .eps = 1e-5},
                                      .fields = kFields,
                                      .read = read,
                                      .gguf = {.name = "nemotron_h",
                                               .other_name = "nemotron_h_moe",
                                               .experts = "n_routed_experts",
                                               .add = add,
                                               .tensors = kGgufTensors,
                                               .interleaved_heads = true},
                                      .names = kNames,
                                      .eps_key = "layer_norm_epsilon"},
                           .forward = forward,
                           .unread = kUnread,
                           .declare = declare_mamba};

}  // namespace reprise::models::nemotron_h
