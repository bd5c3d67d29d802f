#include "simt/kernels.h"

#include <stdexcept>

#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/kernels/draw_parts.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/encoder.h"
#include "backends/cuda/kernels/experts.h"
#include "backends/cuda/kernels/grouped_blocks.h"
#include "backends/cuda/kernels/latent.h"
#include "backends/cuda/kernels/linear.h"
#include "backends/cuda/kernels/linear_silu_mul.h"
#include "backends/cuda/kernels/linear_w8a8.h"
#include "backends/cuda/kernels/lora.h"
#include "backends/cuda/kernels/norm.h"
#include "backends/cuda/kernels/packed.h"
#include "backends/cuda/kernels/quantise.h"
#include "backends/cuda/kernels/ranks.h"
#include "backends/cuda/kernels/recurrent.h"
#include "backends/cuda/kernels/rotation.h"
#include "backends/cuda/kernels/sample.h"
#include "backends/null/null_device.h"
#include "simt/lane.h"
#include "simt/library.h"

namespace reprise::simt {

const cuda::KernelTable& kernels() {
  static const cuda::KernelTable table = [] {
    cuda::KernelTable t;
    cuda::fill_elementwise_of<Launch>(t);
    cuda::fill_sample_of<Launch>(t);
    cuda::fill_draw_parts_of<Launch>(t);
    cuda::fill_norm_of<Launch>(t);
    cuda::fill_rotation_of<Launch>(t);
    cuda::fill_linear_of<Launch>(t);
    cuda::fill_linear_silu_mul_of<Launch>(t);
    cuda::fill_attention_of<Launch>(t);
    cuda::fill_quantise_of<Launch>(t);
    cuda::fill_linear_w8a8_of<Launch>(t);
    cuda::fill_experts_of<Launch>(t);
    cuda::fill_latent_of<Launch>(t);
    cuda::fill_packed_of<Launch>(t);
    cuda::fill_grouped_blocks_of<Launch>(t);
    cuda::fill_recurrent_of<Launch>(t);
    cuda::fill_encoder_of<Launch>(t);
    cuda::fill_lora_of<Launch>(t);
    return t;
  }();
  return table;
}

const cuda::RankKernels& rank_kernels() {
  static const cuda::RankKernels table = [] {
    cuda::RankKernels t;
    cuda::fill_ranks_of<Launch>(t);
    return t;
  }();
  return table;
}

CudaStandIn stand_in_with(std::shared_ptr<Library> library) {
  return {&kernels(), &rank_kernels(), REPRISE_NCCL_STAND_IN, [library](const ranks::Member* member) {
            null::NullDeviceOptions o;
            if (member) o.between_ranks = &member->region();
            o.free_patches = !member;
            o.kind = DeviceKind::Cuda;
            o.name = "SIMT executor";
            o.order = "simt/tc16/page128";  // its tensor core cuts a block's sum in a place of its own
            o.host_visible = false;
            o.deferred = true;
            o.read_ahead = {"", 3e6, 6e6, 2, 10, 2, 0.5, size_t{50} << 20};
            if (library) o.product_ways = {library, &library->choices()};
            o.call = [library](OpaqueKernel part, const LaunchArgs& args, const LiveSizes& live) -> Status {
              Launch launch;
              if (library) launch.library = [&library](const cuda::Product& p) { return library->product(p); };
              try {
                reinterpret_cast<cuda::CudaKernel>(part)(args, live, launch);
              } catch (const std::logic_error& e) {
                return error(Code::Device, "SIMT executor: {}", e.what());
              }
              return launch.failure() ? error(Code::Device, "SIMT executor: {}", launch.failure()) : Status::ok();
            };
            return null::make_null_device(o);
          }};
}

const CudaStandIn& stand_in() {
  static const CudaStandIn it = stand_in_with(nullptr);
  return it;
}

}  // namespace reprise::simt
