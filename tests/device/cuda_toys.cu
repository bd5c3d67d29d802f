// The conformance list's kernels on CUDA.
#include "backends/cuda/cuda_kernel.h"
#include "device/toys.h"

namespace reprise::conformance {
namespace {

enum class Op { Add, Scale, Copy };

template <Op op>
__global__ void toy(const float* from, float* to, int64_t n, float scalar) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if constexpr (op == Op::Add)
    to[i] = from[i] + scalar;
  else if constexpr (op == Op::Scale)
    to[i] = from[i] * scalar;
  else
    to[i] = from[i];
}

template <Op op>
void launch(const LaunchArgs& args, const LiveSizes& live, CUstream_st* stream) {
  const int64_t n = args.dim[0].value(live);
  if (n == 0) return;
  constexpr int kThreads = 128;
  toy<op><<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      static_cast<const float*>(args.ptr[0]), static_cast<float*>(args.ptr[1]), n, static_cast<float>(args.scalar[0]));
}

}  // namespace

Toys cuda_toys() {
  return {cuda::opaque(launch<Op::Add>), cuda::opaque(launch<Op::Scale>), cuda::opaque(launch<Op::Copy>)};
}

}  // namespace reprise::conformance
