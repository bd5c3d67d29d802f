// add over dim[0] rows of dim[1] numbers: ptr[2] = ptr[0] + ptr[1]. A CudaKernel.
#pragma once

#include "backends/cuda/cuda_kernel.h"

namespace reprise::cuda {

void add_f32(const LaunchArgs& args, const LiveSizes& live, CUstream_st* stream);

}  // namespace reprise::cuda
