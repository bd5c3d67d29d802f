// What layers that keep a state for each sequence have in common: the calls of ops that continue a cache of states.
// Plain functions; the trace that their tensors belong to is one thread's.
#pragma once

#include <string_view>
#include <vector>

#include "nn/layers.h"

namespace reprise::nn {

// The result of an op (state, others, slots and borders, drafts), of which `cache` becomes the state as it is after it.
Tensor continued(std::string_view op, Tensor& cache, std::vector<Tensor> others, const StepInputs& in,
                 Attrs attrs = {});

// Room for drafts in the slots of a convolution over `taps` rows.
int64_t drafts_of_conv(const Tensor& cache, int64_t taps);

}  // namespace reprise::nn
