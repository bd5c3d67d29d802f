// EXAONE 4: norms behind the two branches alone, and of query and key heads. Where layers have windows, only those see
// positions.
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"

namespace reprise::models::exaone4 {
namespace {

using checkpoint::ModelConfigFields;

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const DecoderTraits traits{.qk_norm = true,
                             .rotates_windows_only = config.fields.sliding_window.has_value(),
                             .shape = {.before_attention = {},
                                       .after_attention = "post_attention_layernorm",
                                       .before_mlp = {},
                                       .after_mlp = "post_feedforward_layernorm"}};
  return dense_decoder(config, traits, in, root);
}

constexpr std::string_view kFields[] = {"sliding_window_pattern"};

// Every so many layers one sees everything; "LLLG" says the same as 4.
Status read(const checkpoint::FieldReader& in, ModelConfigFields& out) {
  double& period = out.numbers["sliding_window_pattern"];
  const Json* given = in.find("sliding_window_pattern");
  if (given && given->is_string()) {
    const auto text = given->get<std::string>();
    if (text.empty() || text.find_first_not_of('L') != text.size() - 1 || text.back() != 'G')
      return in.wrong("sliding_window_pattern", *given, "an integer, or a text of L's and one G behind them");
    period = static_cast<double>(text.size());
    return Status::ok();
  }
  int64_t pattern = 0;
  RETURN_IF_ERROR(in.integer("sliding_window_pattern", 0, checkpoint::kMaxLayers, 4, pattern));
  period = static_cast<double>(pattern);
  return Status::ok();
}

bool slides(const ModelConfigFields& f, int64_t layer) {
  const auto period = static_cast<int64_t>(f.number("sliding_window_pattern"));
  return f.listed_as_sliding(layer).value_or(f.sliding_window.has_value() && period > 0 && (layer + 1) % period != 0);
}

}  // namespace

const ModelSpec kExaone4{
    .family = {.architecture = "Exaone4ForCausalLM",
               .model_type = "exaone4",
               .sizes = {.vocab = 102400,
                         .hidden = 4096,
                         .intermediate = 16384,
                         .layers = 32,
                         .heads = 32,
                         .kv_heads = 32,
                         .positions = 2048,
                         .window = 4096,
                         .eps = 1e-5},
               .fields = kFields,
               .read = read,
               .slides = slides,
               .gguf = {.name = "exaone4", .windows = true, .add = checkpoint::add_window_pattern}},
    .forward = forward,
    .qk_norm = true};

}  // namespace reprise::models::exaone4
