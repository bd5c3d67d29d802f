// Rotary frequencies from a configuration: plain, linear, dynamic NTK, llama3, yarn and longrope, as Hugging Face
// defines them (transformers, modeling_rope_utils). Dynamic NTK is applied by each token's own position, which is what
// Hugging Face computes when decoding token by token, and the only rule that does not depend on how a prompt is cut
// into chunks.
#pragma once

#include "models/model.h"
#include "nn/functional.h"

namespace reprise::models {

// `sliding`: of layers with a window, where those have frequencies of their own.
nn::RopeSpec rope_spec(const ModelConfig& config, bool sliding = false);

// What DeepSeek multiplies the scale of its scores with: the square of yarn's factor of mscale_all_dim.
double latent_score_factor(const ModelConfig& config);

}  // namespace reprise::models
