// The ops of encoders and of pooled outputs, as nn/functional.h has the others. Plain functions; the trace that their
// tensors belong to is one thread's.
#pragma once

#include <string_view>

#include "nn/functional.h"

namespace reprise::nn {

// Rows attend over all rows of their sequence, or over those less than `window` rows away: [T, H, D], [T, G, D] twice,
// [R + 1].
Tensor segment_attention(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens, double scale, int64_t window = 0);
// [T, N], [R + 1], [L] -> [L, N] f32: of the sequence of each row the "last", "mean" or "first" row up to that one.
Tensor pool_rows(Tensor x, Tensor cu_seqlens, Tensor rows, std::string_view kind);
Tensor l2_normalize(Tensor x);
Tensor as_f32(Tensor x);  // x itself where it is

// [T, A] positions and as many axes as frequencies: rope_table, where frequency i turns with positions[:, axes[i]].
Tensor rope_table_axes(Tensor positions, const RopeSpec& spec, std::vector<double> axes);
Tensor join_rows(Tensor x, int64_t count);   // [count T, N] -> [T, count N], same bytes
Tensor split_rows(Tensor x, int64_t count);  // [T, count N] -> [count T, N], same bytes

}  // namespace reprise::nn
