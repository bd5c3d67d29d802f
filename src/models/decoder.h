// The common shape of a pre-norm decoder: embed, layers of attention and MLP with residuals, final norm, head.
// Architectures differ in their attention spec, biases and what stands for the MLP, and say so in their own file.
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

// What stands behind the second norm of a layer; `p` is the layer's scope.
using LayerMlp = std::function<Tensor(Tensor x, int64_t layer, const nn::ParamScope& p)>;

ModelOutputs decoder(const ModelConfig& config, const DecoderTraits& traits, const LayerMlp& mlp, nn::StepInputs& in,
                     const nn::ParamScope& root);
// A gated MLP in every layer.
ModelOutputs dense_decoder(const ModelConfig& config, const DecoderTraits& traits, nn::StepInputs& in,
                           const nn::ParamScope& root);

}  // namespace reprise::models
