// DeviceLaunch: the Launch of a GPU. Read by nvcc alone, in the .cu files that compile the kernels for it.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "backends/cuda/cuda_kernel.h"
#include "backends/cuda/kernels/lane.h"
#include "backends/cuda/kernels/product.h"

namespace reprise::cuda {

template <class K>
__global__ void __launch_bounds__(K::kThreads, K::kBlocks) run_kernel(const __grid_constant__ K kernel) {
  DeviceLane lane;
  kernel(lane);
}

// Loads a kernel on the thread's device, unless `loaded` says that it is there: a bit for each device of the process,
// 64 of them. The runtime does not load kernels while launches are recorded.
bool load_kernel(const void* kernel, std::atomic<uint64_t>& loaded);

class Blas;
// Enqueues the product if the library has a way that gives the bits of our own kernel; false: it has none.
bool library_product(Blas* blas, const Product& product, cudaStream_t stream);

class DeviceLaunch final : public Launch {
 public:
  DeviceLaunch(cudaStream_t stream, Blas* blas) : stream_(stream), blas_(blas) {}

  cudaStream_t stream() const { return stream_; }
  bool product(const Product& p) { return blas_ && library_product(blas_, p, stream_); }

  template <class K>
  void run(int64_t blocks, int threads, size_t shared, const K& kernel, int64_t blocks_y = 1) {
    if (blocks <= 0 || blocks_y <= 0) return;
    static std::atomic<uint64_t> loaded{0};
    if (!load_kernel(reinterpret_cast<const void*>(run_kernel<K>), loaded)) return fail("a kernel could not be loaded");
    // What a block may have without being asked for.
    constexpr size_t kUsualShared = 48 << 10;
    if (shared > kUsualShared) {
      const cudaError_t set =
          cudaFuncSetAttribute(run_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
      if (set != cudaSuccess) {
        (void)cudaGetLastError();  // else launch_parts() would report that, and not these words
        return fail("the kernel needs more shared memory than a block of this GPU has");
      }
    }
    run_kernel<K><<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_y)),
                    static_cast<unsigned>(threads), shared, stream_>>>(kernel);
  }

 private:
  cudaStream_t stream_;
  Blas* blas_;
};

}  // namespace reprise::cuda
