// The layer of Mamba-2 (arXiv 2405.21060): a convolution, a state for each head of each sequence, and a norm behind a
// gate. Granite 4 and Nemotron-H take turns with it and attention. Plain functions.
#pragma once

#include "nn/layers.h"

namespace reprise::nn {

struct MambaSpec {
  int64_t heads = 0, head = 0;  // heads and the numbers of one
  int64_t state = 0;            // numbers of B and of C
  int64_t groups = 1;           // of heads, with a B, a C and a norm each
  int64_t taps = 0;             // rows that the convolution reads
  bool conv_bias = true, proj_bias = false;
  double norm_eps = 1e-5;
  double least_step = 0, most_step = 0;  // between which a row's step is held; 0: no limit

  int64_t inner() const { return heads * head; }
  int64_t columns() const { return inner() + 2 * groups * state; }  // x, B and C
};

// [T, N] -> [T, N]; parameters in_proj, conv1d, A_log, D, dt_bias, norm, out_proj; caches "conv", "space".
Tensor mamba_layer(Tensor x, const MambaSpec& spec, StepInputs& in, int64_t layer, const ParamScope& p);

}  // namespace reprise::nn
