// The list of backends: makes a device by kind and registers its kernels. The only place that lists them all. The
// caller owns the platform that was made. Plain functions without state; the thread that opens an engine calls them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/device.h"
#include "ops/platform.h"
#include "ranks/member.h"

namespace reprise {

namespace cuda {
struct KernelTable;
struct RankKernels;
}  // namespace cuda

// Kernels of the CUDA device that run elsewhere, and the device that runs them: the SIMT executor of the tests.
struct CudaStandIn {
  const cuda::KernelTable* kernels = nullptr;
  const cuda::RankKernels* rank_kernels = nullptr;
  const char* nccl = "";  // the file that stands in for NCCL
  std::function<std::unique_ptr<Device>(const ranks::Member* member)> make_device = {};
};

struct DeviceOptions {
  DeviceKind kind = DeviceKind::Cpu;
  std::string isa = "auto";
  int threads = 0;
  bool pin_threads = true;
  bool live_sizes = true;                 // false: the CPU freezes sizes at capture as accelerators do; for checks
  std::string ascend_runtime = "system";  // where Ascend's libraries come from; "sim": the simulator's
  bool ascend_fia = true;  // attention by FusedInferAttentionScore; false: by Prompt- and IncreFlashAttention
  const CudaStandIn* cuda_stand_in = nullptr;       // in place of a GPU
  int index = 0;                                    // of the visible devices, that of rank 0; cuda, ascend
  std::shared_ptr<ranks::Member> member = nullptr;  // of a world of several ranks; cpu, cuda, ascend
  bool dispatch = false;  // those ranks send rows to the ranks of their experts by operators of their own; ascend
  std::optional<uint64_t> mix_streams = std::nullopt;  // as CpuDeviceOptions::mix_streams; cpu
  // That of another platform of the same kind, in place of a new one; cpu, ascend.
  std::shared_ptr<Device> shared = nullptr;
};

// What `auto` means here: a GPU with a driver, or an NPU with its libraries, or the processor. Looked for once.
struct FoundDevice {
  DeviceKind kind = DeviceKind::Cpu;
  std::string why;  // "no GPU or NPU was found", or what keeps one from being used
};
const FoundDevice& found_device();

// A device that this build does not have is Unsupported and names those it has.
Result<Platform> make_platform(const DeviceOptions& options);

}  // namespace reprise
