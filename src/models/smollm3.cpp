// SmolLM3: Llama in which every fourth layer sees no positions; a window, if there is one, is that of these layers.
#include <algorithm>

#include "checkpoint/field_reader.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"

namespace reprise::models::smollm3 {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  return dense_decoder(config, {.qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .mlp_bias = f.mlp_bias},
                       in, root);
}

constexpr std::string_view kFields[] = {"attention_bias", "mlp_bias", "no_rope_layers", "no_rope_layer_interval"};

// A list of numbers, one a layer, 1 where it turns; else all but every so many.
Status read(const FieldReader& in, ModelConfigFields& out) {
  int64_t interval = 0;
  RETURN_IF_ERROR(in.integer("no_rope_layer_interval", 1, checkpoint::kMaxLayers, 4, interval));
  const Json* list = in.find("no_rope_layers");
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

bool slides(const ModelConfigFields& f, int64_t layer) {
  const bool turns = std::find(f.unrotated_layers.begin(), f.unrotated_layers.end(), layer) == f.unrotated_layers.end();
  return f.listed_as_sliding(layer).value_or(f.sliding_window.has_value() && !turns);
}

}  // namespace

const ModelSpec kSmolLm3{.family = {.architecture = "SmolLM3ForCausalLM",
                                    .model_type = "smollm3",
                                    .sizes = {.vocab = 128256,
                                              .hidden = 2048,
                                              .intermediate = 11008,
                                              .layers = 36,
                                              .heads = 16,
                                              .kv_heads = 4,
                                              .positions = 32768,
                                              .theta = 2e6,
                                              .tied = true},
                                    .fields = kFields,
                                    .read = read,
                                    .slides = slides,
                                    .window_switch = true,
                                    .gguf = {.name = "smollm3", .interleaved_heads = true}},
                         .forward = forward};

}  // namespace reprise::models::smollm3
