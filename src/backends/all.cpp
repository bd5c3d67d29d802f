#include "backends/all.h"

#include <filesystem>

#include "backends/ascend/ascend_device.h"
#include "backends/ascend/library.h"
#include "backends/cpu/cpu_device.h"
#include "backends/cpu/register.h"
#include "backends/cuda/communicator.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/register.h"
#include "backends/null/null_device.h"
#include "ops/core.h"

namespace reprise {
namespace {

FoundDevice look_for_devices() {
#if REPRISE_HAS_CUDA
  if (const int gpus = cuda::cuda_device_count(); gpus > 0)
    return {DeviceKind::Cuda, fmt::format("the driver knows {} GPU{}", gpus, gpus == 1 ? "" : "s")};
#endif
  // The libraries are heavy, so they are opened only where the driver shows a card.
  std::error_code none;
  if (!std::filesystem::exists("/dev/davinci_manager", none))
    return {DeviceKind::Cpu, "no GPU or NPU that this build can use was found"};
  const auto library = ascend::Library::open("system");
  if (library.is_ok()) return {DeviceKind::Ascend, "the driver shows an NPU"};
  return {DeviceKind::Cpu, fmt::format("an NPU is there, but {}", library.status().message())};
}

// Registers the collectives of a model that shares the device of another one.
Status share_ranks(KernelRegistry& kernels, const cuda::RankKernels& table, const ranks::Member& member) {
  const auto ranks = cuda::Communicator::of(member);
  if (!ranks)
    return error(Code::Internal, "a device of rank {} is shared that meets no other ranks", member.world().rank);
  cuda::register_ranks(kernels, table, ranks);
  return Status::ok();
}

}  // namespace

const FoundDevice& found_device() {
  static const FoundDevice found = look_for_devices();
  return found;
}

Result<Platform> make_platform(const DeviceOptions& options) {
  Platform p;
  p.ops = std::make_unique<OpRegistry>();
  p.kernels = std::make_unique<KernelRegistry>();
  register_core_ops(*p.ops);
  switch (options.kind) {
    case DeviceKind::Cpu: {
      ASSIGN_OR_RETURN(cpu::Isa isa, cpu::parse_isa(options.isa));
      cpu::register_cpu(*p.kernels, isa);
      if (options.member) cpu::register_collectives(*p.kernels, options.member, isa);
      p.device = options.shared;
      if (p.device) return p;
      ASSIGN_OR_RETURN(p.device, cpu::make_cpu_device({options.threads, options.pin_threads, isa, options.live_sizes,
                                                       options.member, options.mix_streams}));
      return p;
    }
    case DeviceKind::Null: {
      null::register_null(*p.kernels, *p.ops, DType::I32, options.member);
      null::NullDeviceOptions device;
      device.member = options.member;
      p.device = options.shared ? options.shared : null::make_null_device(device);
      return p;
    }
    case DeviceKind::Cuda: {
      if (options.cuda_stand_in) {
        const CudaStandIn& it = *options.cuda_stand_in;
        cuda::register_cuda(*p.kernels, *it.kernels);
        if (options.member && options.shared) {
          RETURN_IF_ERROR(share_ranks(*p.kernels, *it.rank_kernels, *options.member));
        } else if (options.member) {
          ASSIGN_OR_RETURN(const auto nccl, cuda::Nccl::open(it.nccl));
          ASSIGN_OR_RETURN(const auto ranks, cuda::Communicator::make(nccl, options.member));
          cuda::register_ranks(*p.kernels, *it.rank_kernels, ranks);
        }
        p.device = options.shared ? options.shared : it.make_device(options.member.get());
        return p;
      }
#if REPRISE_HAS_CUDA
      cuda::register_cuda(*p.kernels, cuda::device_kernels());
      p.device = options.shared;
      if (options.shared && options.member)
        RETURN_IF_ERROR(share_ranks(*p.kernels, cuda::rank_kernels(), *options.member));
      if (p.device) return p;
      ASSIGN_OR_RETURN(auto parts, cuda::make_cuda_device({options.index, options.member}));
      if (parts.ranks) cuda::register_ranks(*p.kernels, cuda::rank_kernels(), parts.ranks);
      p.device = std::move(parts.device);
      return p;
#else
      return error(Code::Unsupported,
                   "device \"cuda\" is not in this build: " REPRISE_NO_CUDA_REASON "; available: cpu, ascend");
#endif
    }
    case DeviceKind::Ascend: {
      if (options.shared) {
        auto context = ascend::context_of(*options.shared);
        CHECK(context, "a device of another kind is shared");
        ascend::register_ascend(*p.kernels, context);
        p.device = options.shared;
        return p;
      }
      ASSIGN_OR_RETURN(auto ascend, ascend::make_ascend_device({options.ascend_runtime, options.ascend_fia,
                                                                options.index, options.member, options.dispatch}));
      ascend::register_ascend(*p.kernels, ascend.context);
      p.device = std::move(ascend.device);
      return p;
    }
  }
  return error(Code::Internal, "no such device");
}

}  // namespace reprise
