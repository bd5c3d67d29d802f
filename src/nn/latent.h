// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): a token leaves one compressed vector for all heads in
// the cache, and a small rotated one, instead of keys and values per head.
//
// In the absorbed form, which is traced here for prompts and decoding alike, the up-projections of keys and values are
// applied to queries and results instead of to the cache: scores are (q_nope W_uk) . latent + q_rope . k_rope, and the
// result is (weights . latents) W_uv. One form for both keeps a token's bits the same however it was computed; passes
// may expand prompts (passes/expand_latents.cpp).
#pragma once

#include "nn/layers.h"

namespace reprise::nn {

struct LatentSpec {
  int64_t heads = 0;
  int64_t q_rank = 0;  // 0: queries come from the hidden state by one projection
  int64_t kv_rank = 0;
  int64_t nope = 0;   // sizes of a head: keys without rotation,
  int64_t rope = 0;   // with rotation,
  int64_t value = 0;  // and values
  bool bias = false;  // of q_a_proj, kv_a_proj_with_mqa and o_proj
  bool interleaved = true;
  double norm_eps = 1e-6;  // of the compressed queries and latents
  double scale = 0;        // of the scores
};

// [T, N] -> [T, N]; parameters q_proj or q_a_proj, q_a_layernorm, q_b_proj; kv_a_proj_with_mqa, kv_a_layernorm,
// kv_b_proj, o_proj. `table` is rope_table's, of `rope` numbers.
Tensor latent_attention(Tensor x, const LatentSpec& spec, Tensor table, StepInputs& in, int64_t layer,
                        const ParamScope& p);

}  // namespace reprise::nn
