// AscendDevice: one Ascend NPU (or the simulator of one), driven through CANN's C interface.
//
// Work runs asynchronously on streams; captured graphs are replayed whole, and launches whose lengths lie on the host
// are updated during the replay (ascend_graph.h). One device per process: number 0 of ASCEND_RT_VISIBLE_DEVICES, or
// that of the process's rank where several hold a model together.
#pragma once

#include <memory>

#include "device/device.h"
#include "ops/kernel.h"
#include "ranks/member.h"

namespace reprise::ascend {

class Context;

struct AscendOptions {
  std::string runtime = "system";                   // or "sim"
  bool fused_attention = true;                      // ASCEND_USE_FIA
  int index = 0;                                    // of the visible devices, that of rank 0
  std::shared_ptr<ranks::Member> member = nullptr;  // of a world of several ranks
  bool dispatch = false;                            // whose rows go to the ranks of their experts
};

struct AscendParts {
  std::shared_ptr<Context> context;  // for register_ascend
  std::unique_ptr<Device> device;
};

// Unsupported, with what was looked for and where, when there is no runtime or no NPU.
Result<AscendParts> make_ascend_device(const AscendOptions& options);

// That of a device made here; null: it is another's.
std::shared_ptr<Context> context_of(const Device& device);

void register_ascend(KernelRegistry& kernels, const std::shared_ptr<Context>& context);

}  // namespace reprise::ascend
