// The common shape of a dense pre-norm decoder: embed, layers of attention and gated MLP with residuals, final norm,
// head. Architectures differ in their attention spec and biases and say so in their own file.
#pragma once

#include <functional>

#include "models/model.h"

namespace reprise::models {

struct DecoderTraits {
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
};

ModelOutputs dense_decoder(const ModelConfig& config, const DecoderTraits& traits, nn::StepInputs& in,
                           const nn::ParamScope& root);

}  // namespace reprise::models
