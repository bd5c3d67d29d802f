#include "backends/cuda/device_launch.h"
#include "backends/cuda/launch_parts.h"

namespace reprise::cuda {

bool load_kernel(const void* kernel) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  cudaFuncAttributes attributes{};
  const bool done = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  return done;
}

const char* launch_all(const Thunk& thunk, const LiveSizes& live, cudaStream_t stream, int multiprocessors,
                       Blas* blas) {
  DeviceLaunch launch(stream, blas);
  launch.multiprocessors = multiprocessors;
  for (OpaqueKernel part : thunk.part)
    if (part) reinterpret_cast<CudaKernel>(part)(thunk.args, live, launch);
  return launch.failure();
}

}  // namespace reprise::cuda
