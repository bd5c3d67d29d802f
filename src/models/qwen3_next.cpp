// Qwen3-Next and Qwen3.5: most layers keep a state for each sequence (the gated delta rule), every fourth attends
// through a gate. Norms are centred. Qwen3.5 stands behind a vision tower (models/vision.h) where its file has one:
// that of Qwen3-VL without deepstack. A layer that predicts further tokens ("mtp") attends, and is read for drafts
// alone.
#include "checkpoint/config_groups.h"
#include "checkpoint/gguf_groups.h"
#include "models/draft_head.h"
#include "models/experts.h"
#include "models/image_step.h"
#include "models/qwen.h"
#include "models/state_layers.h"
#include "nn/gated.h"

namespace reprise::models::qwen3_next {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

nn::DeltaSpec delta_spec(const ModelConfigFields& f, nn::DeltaTensors tensors) {
  const auto number = [&](std::string_view name) { return static_cast<int64_t>(f.number(name)); };
  return {.key_heads = number("linear_num_key_heads"),
          .value_heads = number("linear_num_value_heads"),
          .key = number("linear_key_head_dim"),
          .value = number("linear_value_head_dim"),
          .taps = number("linear_conv_kernel_dim"),
          .tensors = tensors,
          .norm_eps = f.rms_norm_eps};
}

constexpr PredictionNames kMtp{.of_embedding = "pre_fc_norm_embedding",
                               .of_rows = "pre_fc_norm_hidden",
                               .join = "fc",
                               .last = "norm",
                               .scope = "mtp",
                               .norm = nn::rms_norm_centred};

// The decoder, or the layer that predicts.
ModelOutputs hybrid(const ModelConfig& config, nn::DeltaTensors tensors, bool prediction, nn::StepInputs& in,
                    const nn::ParamScope& root) {
  const auto& f = config.fields;
  const nn::AttentionSpec attention{.heads = f.num_attention_heads,
                                    .kv_heads = f.num_key_value_heads,
                                    .head_dim = f.head_dim,
                                    .qkv_bias = f.attention_bias,
                                    .output_bias = f.attention_bias,
                                    .qk_norm_eps = f.rms_norm_eps};
  const nn::DeltaSpec delta = delta_spec(f, tensors);
  const auto mixer = [&](Tensor x, Tensor rope, int64_t layer, const nn::ParamScope& p) {
    if (!prediction && has_state(f, layer)) return nn::delta_layer(x, delta, in, layer, p / "linear_attn");
    return nn::gated_attention(x, attention, rope, in, layer, p / "self_attn");
  };
  const checkpoint::ExpertFields& e = f.experts;
  const nn::ExpertSpec experts = expert_spec(e);
  const auto mlp = [&](Tensor x, int64_t layer, const nn::ParamScope& p) {
    if (!e.at_layer(layer)) return nn::gated_mlp(x, f.intermediate_size, false, p / "mlp");
    return nn::add(nn::moe(x, experts, in, p / "mlp"),
                   nn::gated_shared_expert(x, e.shared_intermediate, p / "mlp", "shared_expert"));
  };
  if (prediction) return prediction_head(config, mixer, mlp, in, root, kMtp);
  return decoder(config, mixer, mlp, in, root, {.norm = nn::rms_norm_centred});
}

ModelOutputs forward_next(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const bool flat = config.fields.number("gguf_flat_projections") != 0;
  return hybrid(config, flat ? nn::DeltaTensors::GatesByKeyHead : nn::DeltaTensors::ByKeyHead, false, in, root);
}

template <nn::DeltaTensors kTensors, bool kPrediction = false>
ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return hybrid(config, kTensors, kPrediction, in, root);
}

// Layers with a state have that in place of keys and values.
void declare(const ModelConfig& config, const TraceOptions& trace, StepSpec& step) {
  const nn::DeltaSpec s = delta_spec(config.fields, nn::DeltaTensors::Apart);
  declare_states(config.fields, trace, {"delta", s.taps, s.columns(), s.value_heads, s.key, s.value}, step);
}

void declare_35(const ModelConfig& config, const TraceOptions& trace, StepSpec& step) {
  declare(config, trace, step);
  if (config.fields.vision) declare_images(config, trace, step);
}

constexpr std::string_view kFields[] = {"vision_config",          "image_token_id",
                                        "video_token_id",         "attention_bias",
                                        "attn_output_gate",       "full_attention_interval",
                                        "linear_num_key_heads",   "linear_num_value_heads",
                                        "linear_key_head_dim",    "linear_value_head_dim",
                                        "linear_conv_kernel_dim", "num_experts",
                                        "num_local_experts",      "shared_expert_intermediate_size",
                                        "norm_topk_prob",         "mlp_only_layers",
                                        "decoder_sparse_step",    "gguf_flat_projections"};
constexpr auto kFieldsNext = std::span(kFields).subspan(3), kDenseFields = std::span(kFields).first(11),
               kFields35Moe = std::span(kFields).first(14);

Status read_with_experts(const FieldReader& in, int64_t count, int64_t per_token, ModelConfigFields& out) {
  RETURN_IF_ERROR(checkpoint::read_state_layers(in, out));
  return checkpoint::read_experts(in,
                                  {.count_key = "num_experts",
                                   .other_count_key = "num_local_experts",
                                   .count = count,
                                   .per_token = per_token,
                                   .intermediate = 512,
                                   .shared = 512},
                                  out);
}

Status add_delta(checkpoint::GgufFields& in) {
  for (const auto& [name, to] : {std::pair{"ssm.conv_kernel", "linear_conv_kernel_dim"},
                                 {"ssm.state_size", "linear_key_head_dim"},
                                 {"ssm.group_count", "linear_num_key_heads"},
                                 {"ssm.time_step_rank", "linear_num_value_heads"},
                                 {"ssm.inner_size", "linear_value_head_dim"}})
    RETURN_IF_ERROR(in.copy(name, to));
  Json& out = in.out();
  const auto heads = out["linear_num_value_heads"].get<int64_t>(), all = out["linear_value_head_dim"].get<int64_t>();
  if (heads < 1 || all % heads != 0)
    return invalid("{}: metadata \"{}\" {} is no multiple of \"{}\" {}", in.file().source(), in.key("ssm.inner_size"),
                   all, in.key("ssm.time_step_rank"), heads);
  out["linear_value_head_dim"] = all / heads;
  return in.copy("full_attention_interval", "full_attention_interval", false);
}

Status add_experts(checkpoint::GgufFields& in) {
  RETURN_IF_ERROR(in.copy("expert_shared_feed_forward_length", "shared_expert_intermediate_size"));
  return checkpoint::add_expert_sizes(in, true);
}

// Newer GGUF files have queries, keys and values in one tensor and their gates in another.
Status add_next(checkpoint::GgufFields& in) {
  RETURN_IF_ERROR(add_delta(in));
  in.out()["gguf_flat_projections"] = !in.has("blk.0.ssm_in.weight");
  checkpoint::add_dense_layers(in);
  return add_experts(in);
}

// GGUF files of Qwen3.5. Their heads of values are tiled, which the reader undoes (checkpoint/gguf_names.h).
Status add_35(checkpoint::GgufFields& in) {
  RETURN_IF_ERROR(add_delta(in));
  return checkpoint::add_position_sections(in);
}

Status add_35_moe(checkpoint::GgufFields& in) {
  RETURN_IF_ERROR(add_experts(in));
  in.out().erase("norm_topk_prob");  // always, here
  return add_35(in);
}

Status read_next(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(read_with_experts(in, 512, 10, out));
  bool flat = false;
  RETURN_IF_ERROR(in.boolean("gguf_flat_projections", false, flat));
  out.numbers["gguf_flat_projections"] = flat ? 1 : 0;
  return in.boolean("norm_topk_prob", true, out.experts.normalise);
}

// A file may be of the text model alone.
Status read_tower(const FieldReader& in, ModelConfigFields& out) {
  constexpr checkpoint::VisionDefaults kTower{.depth = 27,
                                              .hidden = 1152,
                                              .intermediate = 4304,
                                              .patch = 16,
                                              .image_token = 248056,
                                              .video_token = 248057,
                                              .learned = true,
                                              .interleaved = true,
                                              .deepstack = false,
                                              .sections = {11, 11, 10}};
  return in.find("vision_config") ? checkpoint::read_vision(in, kTower, out) : Status::ok();
}

Status read_35(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(checkpoint::read_state_layers(in, out));
  return read_tower(in, out);
}

Status read_35_moe(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(read_with_experts(in, 256, 8, out));
  out.experts.normalise = true;
  return read_tower(in, out);
}

// Layers with states; older files have qkv and gate in one tensor.
using checkpoint::StoredNumber;
constexpr checkpoint::GgufTensorName kNextNames[] = {
    {"attn_qkv.", "linear_attn.in_proj_qkv."}, {"attn_gate.", "linear_attn.in_proj_z."},
    {"ssm_in.", "linear_attn.in_proj_qkvz."},  {"ssm_ba.", "linear_attn.in_proj_ba."},
    {"ssm_conv1d.", "linear_attn.conv1d."},    {"ssm_a", "linear_attn.A_log", StoredNumber::NegativeExp},
    {"ssm_dt.bias", "linear_attn.dt_bias"},    {"ssm_norm.", "linear_attn.norm.", StoredNumber::Plain},
    {"ssm_out.", "linear_attn.out_proj."}};
using checkpoint::TiledPart;
constexpr checkpoint::GgufTensorName k35Names[] = {
    {"attn_qkv.", "linear_attn.in_proj_qkv.", {}, TiledPart::RowsBehindKeys},
    {"attn_gate.", "linear_attn.in_proj_z.", {}, TiledPart::Rows},
    {"ssm_alpha.", "linear_attn.in_proj_a.", {}, TiledPart::Numbers},
    {"ssm_beta.", "linear_attn.in_proj_b.", {}, TiledPart::Numbers},
    {"ssm_conv1d.", "linear_attn.conv1d.", {}, TiledPart::RowsBehindKeys},
    {"ssm_a", "linear_attn.A_log", StoredNumber::NegativeExp, TiledPart::Numbers},
    {"ssm_dt.bias", "linear_attn.dt_bias", {}, TiledPart::Numbers},
    {"ssm_norm.", "linear_attn.norm.", StoredNumber::Plain},
    {"ssm_out.", "linear_attn.out_proj.", {}, TiledPart::Columns}};

constexpr std::string_view kUnread[] = {"mtp."};

constexpr checkpoint::SizeDefaults sizes(int64_t vocab, int64_t hidden, int64_t intermediate, int64_t layers,
                                         int64_t kv_heads) {
  return {.vocab = vocab,
          .hidden = hidden,
          .intermediate = intermediate,
          .layers = layers,
          .heads = 16,
          .kv_heads = kv_heads,
          .head_dim = 256,
          .positions = 32768,
          .rotated = 0.25};
}

extern const ModelSpec kPredictionNext, kPrediction35, kPrediction35Moe;  // below, behind the families they are of

}  // namespace

const ModelSpec kQwen3Next{.family = {.architecture = "Qwen3NextForCausalLM",
                                      .model_type = "qwen3_next",
                                      .sizes = sizes(151936, 2048, 5632, 48, 2),
                                      .fields = kFieldsNext,
                                      .read = read_next,
                                      .window_switch = true,
                                      .gguf = {.name = "qwen3next",
                                               .experts = "num_experts",
                                               .add = add_next,
                                               .tensors = kNextNames,
                                               .centred_norms = true},
                                      .partial_rotation = true},
                           .forward = forward_next,
                           .qk_norm = true,
                           .unread = kUnread,
                           .declare = declare,
                           .prediction = &kPredictionNext};

const ModelSpec kQwen35{.family = {.architecture = "Qwen3_5ForCausalLM",
                                   .model_type = "qwen3_5_text",
                                   .sizes = sizes(248320, 4096, 12288, 32, 4),
                                   .fields = kDenseFields,
                                   .read = read_35,
                                   .window_switch = true,
                                   .gguf = {.name = "qwen35",
                                            .add = add_35,
                                            .tensors = k35Names,
                                            .centred_norms = true,
                                            .tower = &qwen_vl::kQwen3Tower},
                                   .wrapper = "Qwen3_5ForConditionalGeneration",
                                   .vision = true,
                                   .partial_rotation = true},
                        .forward = forward<nn::DeltaTensors::Apart>,
                        .qk_norm = true,
                        .unread = kUnread,
                        .declare = declare_35,
                        .prediction = &kPrediction35};

// No layer is dense, so the size of a dense one is used by none.
const ModelSpec kQwen35Moe{.family = {.architecture = "Qwen3_5MoeForCausalLM",
                                      .model_type = "qwen3_5_moe_text",
                                      .sizes = sizes(248320, 2048, 512, 40, 2),
                                      .fields = kFields35Moe,
                                      .read = read_35_moe,
                                      .window_switch = true,
                                      .gguf = {.name = "qwen35moe",
                                               .experts = "num_experts",
                                               .add = add_35_moe,
                                               .tensors = k35Names,
                                               .centred_norms = true,
                                               .tower = &qwen_vl::kQwen3Tower},
                                      .wrapper = "Qwen3_5MoeForConditionalGeneration",
                                      .vision = true,
                                      .partial_rotation = true},
                           .forward = forward<nn::DeltaTensors::Apart>,
                           .qk_norm = true,
                           .unread = kUnread,
                           .declare = declare_35,
                           .prediction = &kPrediction35Moe};

namespace {

ModelSpec prediction_of(const ModelSpec& model, std::string_view count_field) {
  return {.family = model.family,
          .forward = forward<nn::DeltaTensors::Apart, true>,  // it has no layer with a state
          .declare = declare_prediction,
          .own_tensors = "mtp.",
          .count_field = count_field,
          .source_width = width_of_hidden};
}
const ModelSpec kPredictionNext = prediction_of(kQwen3Next, "num_nextn_predict_layers"),
                kPrediction35 = prediction_of(kQwen35, "mtp_num_hidden_layers"),
                kPrediction35Moe = prediction_of(kQwen35Moe, "mtp_num_hidden_layers");

}  // namespace

}  // namespace reprise::models::qwen3_next
