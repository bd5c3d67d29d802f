// CudaDevice: one NVIDIA GPU: memory of its own, pinned host memory next to it, asynchronous streams, captured graphs.
// Made by make_cuda_device(); which GPU is the first one, CUDA_VISIBLE_DEVICES chooses it. One engine owns it.
#pragma once

#include <memory>

#include "backends/cuda/kernel_table.h"
#include "device/device.h"

namespace reprise::cuda {

// Unsupported, with the driver's words, where there is no GPU or no driver.
Result<std::unique_ptr<Device>> make_cuda_device();
// Number of this machine's GPUs; 0 where there is no driver.
int cuda_device_count();

// The kernels compiled for GPUs, for register_cuda() (register.h).
const KernelTable& device_kernels();

}  // namespace reprise::cuda
