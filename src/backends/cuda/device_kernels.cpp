// The kernels of the .cu files, and how a thunk runs them.
#include "backends/cuda/communicator.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/launch_parts.h"
#include "backends/cuda/runtime.h"

namespace reprise::cuda {

const KernelTable& device_kernels() {
  static const KernelTable table = [] {
    KernelTable t;
    fill_elementwise(t);
    fill_sample(t);
    fill_draw_parts(t);
    fill_norm(t);
    fill_rotation(t);
    fill_linear(t);
    fill_linear_silu_mul(t);
    fill_attention(t);
    fill_quantise(t);
    fill_linear_w8a8(t);
    fill_experts(t);
    fill_latent(t);
    fill_packed(t);
    fill_grouped_blocks(t);
    fill_recurrent(t);
    fill_encoder(t);
    fill_lora(t);
    return t;
  }();
  return table;
}

const RankKernels& rank_kernels() {
  static const RankKernels table = [] {
    RankKernels t;
    fill_ranks(t);
    return t;
  }();
  return table;
}

Status launch_parts(const Thunk& thunk, const LiveSizes& live, cudaStream_t stream, const LaunchContext& context) {
  const char* failure = launch_all(thunk, live, stream, context.limits, context.blas);
  RETURN_IF_ERROR(check(cudaGetLastError(), "launch"));
  if (failure && context.ranks && context.ranks->member().aborted()) return context.ranks->member().lost();
  return failure ? error(Code::Device, "cuda: {}", failure) : Status::ok();
}

}  // namespace reprise::cuda
