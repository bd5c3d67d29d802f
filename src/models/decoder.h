// The common shape of a decoder: embed, layers of attention and MLP with residuals, final norm, head. Architectures
// differ in the norms around the two branches, in a few scalars, in their attention, biases and what stands for the
// MLP, and say so in their own file.
#pragma once

#include <functional>

#include "models/list.h"

namespace reprise::models {

// What is the same in every layer of a family; empty names of norms: there is none.
struct DecoderShape {
  std::string_view before_attention = "input_layernorm", after_attention = {};
  std::string_view before_mlp = "post_attention_layernorm", after_mlp = {};
  bool parallel = false;    // both branches read the first norm, and are added together
  bool one_branch = false;  // what stands for attention is the whole layer
  nn::Norm norm = nn::rms_norm;
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  double logit_cap = 0;  // 0: none
};

struct DecoderTraits {
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool fused = false;  // qkv_proj and gate_up_proj
  bool sinks = false;  // of attention
  nn::QkNorm qk_norm_place = nn::QkNorm::Heads;
  nn::Norm qk_norm_kind = nn::rms_norm;
  std::string_view q_norm = "q_norm", k_norm = "k_norm";
  nn::Rotation rotation = nn::Rotation::Halves;
  bool rotates_windows_only = false;      // layers without a window see no positions
  bool window_of_both_sides = false;      // where rows see both sides, a window counts the rows of both together
  double score_scale = 0, score_cap = 0;  // 0: 1 / sqrt(size of a head), and none
  Tensor query_factor = {};               // of each row [T, 1]; none: 1
  DecoderShape shape = {};
};

// What stands for the two branches of a layer; `p` is the layer's scope, `rope` the table of angles for the layer.
using LayerAttention = std::function<Tensor(Tensor x, Tensor rope, int64_t layer, const nn::ParamScope& p)>;
using LayerMlp = std::function<Tensor(Tensor x, int64_t layer, const nn::ParamScope& p)>;

// Attention whose query heads share keys and values in groups, with the window of each layer. It refers to its
// arguments.
LayerAttention grouped_attention(const ModelConfig& config, DecoderTraits traits, nn::StepInputs& in);

ModelOutputs decoder(const ModelConfig& config, const LayerAttention& attention, const LayerMlp& mlp,
                     nn::StepInputs& in, const nn::ParamScope& root, const DecoderShape& shape = {});
// A gated MLP in every layer.
ModelOutputs dense_decoder(const ModelConfig& config, const DecoderTraits& traits, nn::StepInputs& in,
                           const nn::ParamScope& root);

}  // namespace reprise::models
