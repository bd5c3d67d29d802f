// The CUDA kernels as the SIMT executor runs them, and a device that does.
#pragma once

#include "backends/all.h"
#include "backends/cuda/rank_kernels.h"

namespace reprise::simt {

// Every kernel of the table; they take a simt::Launch.
const cuda::KernelTable& kernels();

const cuda::RankKernels& rank_kernels();

// For DeviceOptions::cuda_stand_in: memory that the host may not touch, work that is done as late as a stream allows.
const CudaStandIn& stand_in();

}  // namespace reprise::simt
