// What the Qwen families have in common: their rules of the attention window, a body, and the vision tower of their
// GGUF files. Plain functions; any thread.
#pragma once

#include "checkpoint/config.h"
#include "models/model.h"

namespace reprise::models {

// Qwen2 and Qwen3: a window that is switched on is that of the layers from max_window_layers on, unless a file lists
// which slide.
inline bool qwen_slides(const checkpoint::ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or(f.use_sliding_window && f.sliding_window.has_value() &&
                                             layer >= f.max_window_layers);
}

// Qwen3-MoE, which is the text model of Qwen3-VL-MoE too.
namespace qwen_moe {
ModelOutputs qwen3_moe(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root);
}  // namespace qwen_moe

// The tower of Qwen3-VL and Qwen3.5.
namespace qwen_vl {
extern const checkpoint::GgufTower kQwen3Tower;
}  // namespace qwen_vl

}  // namespace reprise::models
