// The common shape of a pre-norm decoder: embed, layers of attention and MLP with residuals, final norm, head.
// Architectures differ in their attention spec, biases and what stands for the MLP, and say so in their own file.
#pragma once

#include <functional>

#include "models/list.h"

namespace reprise::models {

struct DecoderTraits {
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
};

// What stands behind the first and the second norm of a layer; `p` is the layer's scope, `rope` the table of angles.
using LayerAttention = std::function<Tensor(Tensor x, Tensor rope, int64_t layer, const nn::ParamScope& p)>;
using LayerMlp = std::function<Tensor(Tensor x, int64_t layer, const nn::ParamScope& p)>;

// Attention whose query heads share keys and values in groups, with the window of each layer. It refers to its
// arguments.
LayerAttention grouped_attention(const ModelConfig& config, DecoderTraits traits, nn::StepInputs& in);

ModelOutputs decoder(const ModelConfig& config, const LayerAttention& attention, const LayerMlp& mlp,
                     nn::StepInputs& in, const nn::ParamScope& root);
// A gated MLP in every layer.
ModelOutputs dense_decoder(const ModelConfig& config, const DecoderTraits& traits, nn::StepInputs& in,
                           const nn::ParamScope& root);

}  // namespace reprise::models
