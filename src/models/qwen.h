// What the Qwen families have in common: their rules of the attention window. Plain functions; any thread.
#pragma once

#include "checkpoint/config.h"

namespace reprise::models {

// Qwen2 and Qwen3: a window that is switched on is that of the layers from max_window_layers on, unless a file lists
// which slide.
inline bool qwen_slides(const checkpoint::ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or(f.use_sliding_window && f.sliding_window.has_value() &&
                                             layer >= f.max_window_layers);
}

}  // namespace reprise::models
