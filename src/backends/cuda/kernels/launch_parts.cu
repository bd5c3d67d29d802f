#include "backends/cuda/device_launch.h"
#include "backends/cuda/launch_parts.h"

namespace reprise::cuda {

Launched launch_all(const Thunk& thunk, const LiveSizes& live, cudaStream_t stream, int multiprocessors, Blas* blas) {
  DeviceLaunch launch(stream, blas);
  launch.multiprocessors = multiprocessors;
  for (OpaqueKernel part : thunk.part)
    if (part) reinterpret_cast<CudaKernel>(part)(thunk.args, live, launch);
  return {launch.failure(), launch.foreign()};
}

}  // namespace reprise::cuda
