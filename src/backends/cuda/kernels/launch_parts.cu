#include "backends/cuda/device_launch.h"
#include "backends/cuda/launch_parts.h"

namespace reprise::cuda {

bool load_kernel(const void* kernel, std::atomic<uint64_t>& loaded) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if (loaded & bit) return true;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  cudaFuncAttributes attributes{};
  const bool done = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (done) loaded |= bit;  // a failure may be one of the moment
  return done;
}

const char* launch_all(const Thunk& thunk, const LiveSizes& live, cudaStream_t stream, const LaunchLimits& limits,
                       Blas* blas) {
  DeviceLaunch launch(stream, blas);
  launch.limits = limits;
  launch.native_stream = stream;
  for (OpaqueKernel part : thunk.part)
    if (part) reinterpret_cast<CudaKernel>(part)(thunk.args, live, launch);
  return launch.failure();
}

}  // namespace reprise::cuda
