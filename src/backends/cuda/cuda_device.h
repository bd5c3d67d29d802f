// CudaDevice: one NVIDIA GPU: memory of its own, pinned host memory next to it, asynchronous streams, captured graphs.
// Made by make_cuda_device(); which GPUs there are, CUDA_VISIBLE_DEVICES says. One engine owns it, or one of each rank.
#pragma once

#include <memory>

#include "backends/cuda/communicator.h"
#include "backends/cuda/rank_kernels.h"
#include "device/device.h"

namespace reprise::cuda {

struct CudaOptions {
  int index = 0;                                    // of the visible GPUs, that of the first rank here
  std::shared_ptr<ranks::Member> member = nullptr;  // of a world of several ranks
};

struct CudaParts {
  std::unique_ptr<Device> device;
  std::shared_ptr<Communicator> ranks;  // null: there is one rank
};

// Unsupported, with the driver's words, where there is no GPU or no driver.
Result<CudaParts> make_cuda_device(const CudaOptions& options = {});
// Number of this machine's GPUs; 0 where there is no driver.
int cuda_device_count();

// The kernels compiled for GPUs, for register_cuda() (register.h).
const KernelTable& device_kernels();
const RankKernels& rank_kernels();

}  // namespace reprise::cuda
