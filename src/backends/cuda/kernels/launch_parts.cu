#include "backends/cuda/device_launch.h"
#include <cstdlib>
#include "backends/cuda/launch_parts.h"

namespace reprise::cuda {

bool prepare_kernel(const void* kernel) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  cudaFuncAttributes attributes{};
  bool done = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess;
  if (!std::getenv("REPRISE_X_NOCARVE"))
    done = done && cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared) == cudaSuccess;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  return done;
}

Launched launch_all(const Thunk& thunk, const LiveSizes& live, cudaStream_t stream, int multiprocessors, Blas* blas) {
  DeviceLaunch launch(stream, blas);
  launch.multiprocessors = multiprocessors;
  for (OpaqueKernel part : thunk.part)
    if (part) reinterpret_cast<CudaKernel>(part)(thunk.args, live, launch);
  return {launch.failure(), launch.foreign()};
}

}  // namespace reprise::cuda
