// The CUDA kernels as the SIMT executor runs them, and a device that does.
#pragma once

#include <memory>

#include "backends/all.h"
#include "backends/cuda/rank_kernels.h"

namespace reprise::simt {

// Every kernel of the table; they take a simt::Launch.
const cuda::KernelTable& kernels();

const cuda::RankKernels& rank_kernels();

// For DeviceOptions::cuda_stand_in: memory that the host may not touch, work that is done as late as a stream allows.
const CudaStandIn& stand_in();

class Library;
// The same with a library that products may be left to.
CudaStandIn stand_in_with(std::shared_ptr<Library> library);

}  // namespace reprise::simt
