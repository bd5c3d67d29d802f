// The way from a thunk to its kernels, where nvcc's half and the other half of the backend meet.
#pragma once

#include "backends/cuda/cuda_kernel.h"

struct CUstream_st;

namespace reprise::cuda {

class Blas;

// Runs the thunk's parts; the words of the one that refused, or null. Errors of the runtime are left on its record.
const char* launch_all(const Thunk& thunk, const LiveSizes& live, CUstream_st* stream, const LaunchLimits& limits,
                       Blas* blas);

}  // namespace reprise::cuda
