// The CUDA entries for kernel tests: on the SIMT executor, with lanes in the order that is asked for, or on the device
// that REPRISE_KERNELS_ON names, which has an order of its own.
#pragma once

#include "backends/cuda/register.h"
#include "backends/op_runner.h"
#include "simt/gpu.h"
#include "simt/lane.h"

namespace reprise::simt {

inline cpu::OpRunner cuda_runner(Order order = Order::Ascending, size_t shared = cuda::LaunchLimits::kLeastShared) {
  if (kernel_platform()) return cpu::OpRunner(kernel_platform());
  return cpu::OpRunner(
      DeviceKind::Cuda,
      [](KernelRegistry& kernels) {
        cuda::register_cuda(kernels, simt::kernels());
        cuda::register_packed(kernels, simt::kernels());
      },
      [order, shared](const KernelEntry& entry, const LaunchArgs& args, const LiveSizes& live, int) {
        Launch launch(order, {.multiprocessors = 2, .shared = shared});
        for (OpaqueKernel part : entry.part)
          if (part) reinterpret_cast<cuda::CudaKernel>(part)(args, live, launch);
        ASSERT_EQ(launch.failure(), nullptr) << entry.name;
      });
}

}  // namespace reprise::simt
