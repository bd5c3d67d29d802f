// CudaKernel: the type behind Thunk::part on a CUDA device, and Launch: what such a function may use.
//
// A CudaKernel is a host function that launches kernels through its Launch and returns at once; all it reads are its
// arguments. It may not wait, allocate or copy to the host. Parts run in order. Under capture the same function runs
// once, its launches become nodes of the graph, and their sizes are those of the capture. A launch of nothing is left
// out: a grid of no blocks is an error.
//
// Its body takes the struct of its op's launch arguments (ops/args) and the Launch, which knows the rest: live sizes,
// workspace, what the device is like. erased() (kernel_table.h) makes the CudaKernel of it.
//
// There are two kinds of Launch: that of a GPU (device_launch.h) and that of the SIMT executor, which runs the same
// kernels on the host (sim/simt). No vendor header and no fmt, whose compile-time checks nvcc does not compile, so that
// both compilers read this file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/thunk.h"

namespace reprise::cuda {

// What launches are made for. Results never depend on it.
struct LaunchLimits {
  // Bytes of shared memory that a block may have on the smallest GPUs (compute capability 8.6, 8.9 and 12.0).
  static constexpr size_t kLeastShared = 99 << 10;

  int multiprocessors = 1;  // for the grid of a persistent kernel
  size_t shared = kLeastShared;
};

class Launch {
 public:
  LaunchLimits limits;
  void* native_stream = nullptr;  // a cudaStream_t; of the SIMT executor null
  void* workspace = nullptr;

  int64_t size(Dim d) const { return d.value(*live_); }
  void begin(const LaunchArgs& args, const LiveSizes& live) {
    workspace = args.workspace;
    live_ = &live;
  }

  // The launch fails with these words, which live as long as the program. The first ones count.
  void fail(const char* words) {
    if (!failure_) failure_ = words;
  }
  const char* failure() const { return failure_; }

 private:
  const LiveSizes* live_ = nullptr;
  const char* failure_ = nullptr;
};

using CudaKernel = void (*)(const LaunchArgs& args, const LiveSizes& live, Launch& launch);

inline OpaqueKernel opaque(CudaKernel kernel) { return reinterpret_cast<OpaqueKernel>(kernel); }

}  // namespace reprise::cuda
