// Qwen2.5-VL, Qwen3-VL and Qwen3-VL-MoE: the text models of Qwen2, Qwen3 and Qwen3-MoE behind a vision tower
// (models/vision.h), whose rows stand in the places of placeholders; positions have three parts.
#include "checkpoint/config_groups.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"
#include "models/image_step.h"
#include "models/qwen.h"

namespace reprise::models::qwen_vl {
namespace {

constexpr std::string_view kImageMark = "<|image_pad|>", kVideoMark = "<|video_pad|>";
constexpr checkpoint::GgufTensorName kTowerNames[] = {{"v.post_ln.", "visual.merger.norm."},
                                                      {"mm.0.", "visual.merger.linear_fc1."},
                                                      {"mm.2.", "visual.merger.linear_fc2."}};
constexpr checkpoint::GgufTensorName kTowerBlockNames[] = {{"ffn_up.", "mlp.linear_fc1."},
                                                           {"ffn_down.", "mlp.linear_fc2."}};
constexpr checkpoint::GgufTensorName kWindowNames[] = {
    {"v.post_ln.", "visual.merger.ln_q."}, {"mm.0.", "visual.merger.mlp.0."}, {"mm.2.", "visual.merger.mlp.2."}};
constexpr checkpoint::GgufTensorName kWindowBlockNames[] = {
    {"ffn_gate.", "mlp.gate_proj."}, {"ffn_up.", "mlp.up_proj."}, {"ffn_down.", "mlp.down_proj."}};
constexpr checkpoint::GgufTower kWindowTower{.projector = "qwen2.5vl_merger",
                                             .names = kWindowNames,
                                             .block_names = kWindowBlockNames,
                                             .windows = true,
                                             .image_mark = kImageMark,
                                             .video_mark = kVideoMark};

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

ModelOutputs qwen25_vl(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, {.qkv_bias = true}, in, root);
}

ModelOutputs qwen3_vl(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const bool bias = config.fields.attention_bias;
  return dense_decoder(config, {.qkv_bias = bias, .output_bias = bias, .qk_norm = true}, in, root);
}

void declare_vl(const ModelConfig& config, const TraceOptions& trace, StepSpec& step) {
  declare_images(config, trace, step);
}

Status read25(const FieldReader& in, ModelConfigFields& out) {
  return checkpoint::read_vision(in, {.depth = 32, .hidden = 3584, .intermediate = 3420, .patch = 14, .windows = true},
                                 out);
}

constexpr checkpoint::VisionDefaults kTower3{.depth = 27,
                                             .hidden = 1152,
                                             .intermediate = 4304,
                                             .patch = 16,
                                             .learned = true,
                                             .interleaved = true,
                                             .sections = {24, 20, 20}};

Status read3_vl(const FieldReader& in, ModelConfigFields& out) { return checkpoint::read_vision(in, kTower3, out); }

Status read3_vl_moe(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(checkpoint::read_experts(in,
                                           {.count_key = "num_experts",
                                            .other_count_key = "num_local_experts",
                                            .count = 60,
                                            .per_token = 4,
                                            .intermediate = 1408,
                                            .normalise = true},
                                           out));
  return checkpoint::read_vision(in, kTower3, out);
}

Status add_vl_moe(checkpoint::GgufFields& in) {
  RETURN_IF_ERROR(checkpoint::add_expert_sizes(in, true));
  checkpoint::add_dense_layers(in);
  return checkpoint::add_position_sections(in);
}

constexpr std::string_view kFieldsVl[] = {"vision_config", "image_token_id", "video_token_id"};
constexpr std::string_view kFields3Vl[] = {"vision_config", "image_token_id", "video_token_id", "attention_bias"};
constexpr std::string_view kFields3VlMoe[] = {"vision_config",   "image_token_id",    "video_token_id",
                                              "attention_bias",  "num_experts",       "norm_topk_prob",
                                              "mlp_only_layers", "num_local_experts", "decoder_sparse_step"};
}  // namespace

const checkpoint::GgufTower kQwen3Tower{.projector = "qwen3vl_merger",
                                        .names = kTowerNames,
                                        .block_names = kTowerBlockNames,
                                        .image_mark = kImageMark,
                                        .video_mark = kVideoMark};

const ModelSpec kQwen25Vl{.family = {.architecture = "Qwen2_5_VLForConditionalGeneration",
                                     .model_type = "qwen2_5_vl_text",
                                     .other_model_type = "qwen2_5_vl",
                                     .sizes = {.vocab = 152064,
                                               .hidden = 8192,
                                               .intermediate = 29568,
                                               .layers = 80,
                                               .heads = 64,
                                               .kv_heads = 8,
                                               .positions = 32768,
                                               .window = 4096,
                                               .eps = 1e-5,
                                               .theta = 1e6},
                                     .fields = kFieldsVl,
                                     .read = read25,
                                     .slides = qwen_slides,
                                     .window_switch = true,
                                     .gguf = {.name = "qwen2vl",
                                              .qkv_bias = true,
                                              .add = checkpoint::add_position_sections,
                                              .tower = &kWindowTower},
                                     .wrapper = "Qwen2_5_VLForConditionalGeneration",
                                     .vision = true},
                          .forward = qwen25_vl,
                          .declare = declare_vl};

const ModelSpec kQwen3Vl{
    .family = {.architecture = "Qwen3VLForConditionalGeneration",
               .model_type = "qwen3_vl_text",
               .other_model_type = "qwen3_vl",
               .sizes = {.vocab = 151936,
                         .hidden = 4096,
                         .intermediate = 22016,
                         .layers = 32,
                         .heads = 32,
                         .kv_heads = 32,
                         .head_dim = 128,
                         .positions = 128000,
                         .theta = 5e6},
               .fields = kFields3Vl,
               .read = read3_vl,
               .gguf = {.name = "qwen3vl", .add = checkpoint::add_position_sections, .tower = &kQwen3Tower},
               .wrapper = "Qwen3VLForConditionalGeneration",
               .vision = true},
    .forward = qwen3_vl,
    .qk_norm = true,
    .declare = declare_vl};

const ModelSpec kQwen3VlMoe{
    .family = {.architecture = "Qwen3VLMoeForConditionalGeneration",
               .model_type = "qwen3_vl_moe_text",
               .other_model_type = "qwen3_vl_moe",
               .sizes = {.vocab = 151936,
                         .hidden = 2048,
                         .intermediate = 5632,
                         .layers = 24,
                         .heads = 16,
                         .kv_heads = 16,
                         .positions = 128000,
                         .theta = 5e5},
               .fields = kFields3VlMoe,
               .read = read3_vl_moe,
               .gguf = {.name = "qwen3vlmoe", .experts = "num_experts", .add = add_vl_moe, .tower = &kQwen3Tower},
               .wrapper = "Qwen3VLMoeForConditionalGeneration",
               .vision = true},
    .forward = qwen_moe::qwen3_moe,
    .qk_norm = true,
    .declare = declare_vl};

}  // namespace reprise::models::qwen_vl
