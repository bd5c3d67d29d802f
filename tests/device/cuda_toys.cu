// The conformance list's kernels on CUDA.
#include "backends/cuda/device_launch.h"
#include "device/toys.h"

namespace reprise::conformance {
namespace {

enum class Op { Add, Scale, Copy };

template <Op op>
struct Toy {
  static constexpr int kThreads = 128, kBlocks = 1;
  const float* from;
  float* to;
  int64_t n;
  float scalar;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (i >= n) return;
    if constexpr (op == Op::Add)
      to[i] = from[i] + scalar;
    else if constexpr (op == Op::Scale)
      to[i] = from[i] * scalar;
    else
      to[i] = from[i];
  }
};

template <Op op>
void launch(const LaunchArgs& args, const LiveSizes& live, cuda::Launch& launch) {
  const int64_t n = args.dim[0].value(live);
  static_cast<cuda::DeviceLaunch&>(launch).run(
      (n + Toy<op>::kThreads - 1) / Toy<op>::kThreads, Toy<op>::kThreads, 0,
      Toy<op>{static_cast<const float*>(args.ptr[0]), static_cast<float*>(args.ptr[1]), n,
              static_cast<float>(args.scalar[0])});
}

}  // namespace

Toys cuda_toys() {
  return {cuda::opaque(launch<Op::Add>), cuda::opaque(launch<Op::Scale>), cuda::opaque(launch<Op::Copy>)};
}

}  // namespace reprise::conformance
