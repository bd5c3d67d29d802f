// Command-R and Command-R7B (Cohere): attention and MLP side by side behind one layer norm; pairs of neighbours turn;
// logits are scaled. Cohere2 has windows in three of four layers, and positions in those alone.
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"

namespace reprise::models::cohere {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const DecoderTraits traits{
      .qkv_bias = f.attention_bias,
      .output_bias = f.attention_bias,
      .qk_norm = f.number("use_qk_norm") != 0,
      .qk_norm_kind = nn::layer_norm_of_heads,
      .rotation = nn::Rotation::Neighbours,
      .rotates_windows_only = f.model_type == "cohere2",
      .shape = {.before_mlp = {}, .parallel = true, .norm = nn::layer_norm, .logit_scale = f.number("logit_scale")}};
  return dense_decoder(config, traits, in, root);
}

constexpr std::string_view kFields[] = {"attention_bias", "logit_scale", "layer_norm_eps", "use_qk_norm"};
constexpr std::string_view kFields2[] = {"attention_bias", "logit_scale", "layer_norm_eps", "sliding_window_pattern",
                                         "_sliding_window_pattern"};

Status read_scale(const FieldReader& in, ModelConfigFields& out) {
  return in.number("logit_scale", 1e-6, 1e6, 0.0625, out.numbers["logit_scale"]);
}

Status read(const FieldReader& in, ModelConfigFields& out) {
  bool norm = false;
  RETURN_IF_ERROR(in.boolean("use_qk_norm", false, norm));
  out.numbers["use_qk_norm"] = norm ? 1 : 0;
  return read_scale(in, out);
}

// The size of a head is what it is without the field.
Status read2(const FieldReader& in, ModelConfigFields& out) {
  out.model_type = "cohere2";
  out.numbers["use_qk_norm"] = 0;
  const int64_t size = out.hidden_size / out.num_attention_heads;
  if (out.head_dim != size) {
    out.notices.push_back(
        fmt::format("head_dim {} has no effect: {} has heads of {}", out.head_dim, out.architecture, size));
    out.head_dim = size;
  }
  int64_t pattern = 0;
  RETURN_IF_ERROR(in.integer("sliding_window_pattern", 1, checkpoint::kMaxLayers, 4, pattern));
  out.numbers["sliding_window_pattern"] = static_cast<double>(pattern);
  return read_scale(in, out);
}

bool slides2(const ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or((layer + 1) % static_cast<int64_t>(f.number("sliding_window_pattern")) !=
                                             0);
}

Status add(checkpoint::GgufFields& in) {
  if (in.out()["model_type"] == "cohere") in.out()["use_qk_norm"] = in.has("blk.0.attn_q_norm.weight");
  return in.copy_number("logit_scale", "logit_scale");
}
constexpr std::string_view kEpsilon = "attention.layer_norm_epsilon";

constexpr checkpoint::SizeDefaults sizes(int64_t window, double theta) {
  return {.vocab = 256000,
          .hidden = 8192,
          .intermediate = 22528,
          .layers = 40,
          .heads = 64,
          .positions = 8192,
          .window = window,
          .eps = 1e-5,
          .theta = theta,
          .tied = true};
}

}  // namespace

const ModelSpec kCohere{.family = {.architecture = "CohereForCausalLM",
                                   .model_type = "cohere",
                                   .sizes = sizes(0, 5e5),
                                   .fields = kFields,
                                   .read = read,
                                   .gguf = {.name = "command-r", .eps = kEpsilon, .add = add},
                                   .eps_key = "layer_norm_eps"},
                        .forward = forward};

const ModelSpec kCohere2{.family = {.architecture = "Cohere2ForCausalLM",
                                    .model_type = "cohere2",
                                    .sizes = sizes(4096, 1e4),
                                    .fields = kFields2,
                                    .read = read2,
                                    .slides = slides2,
                                    .gguf = {.name = "cohere2", .windows = true, .eps = kEpsilon, .add = add},
                                    .eps_key = "layer_norm_eps"},
                         .forward = forward};

}  // namespace reprise::models::cohere
