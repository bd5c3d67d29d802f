// The CUDA entries on the SIMT executor, for kernel tests.
#pragma once

#include "backends/cuda/register.h"
#include "backends/op_runner.h"
#include "simt/kernels.h"
#include "simt/lane.h"

namespace reprise::simt {

inline cpu::OpRunner cuda_runner(Order order = Order::Ascending, size_t shared = cuda::LaunchLimits::kLeastShared) {
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
