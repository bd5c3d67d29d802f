// CpuDevice: the CPU as a device like the others: a pool of threads, a pool of huge-page memory, streams that run each
// launch at once on the pool. Made by make_cpu_device(); one engine owns it.
#pragma once

#include <memory>
#include <optional>

#include "backends/cpu/isa.h"
#include "device/device.h"
#include "ranks/member.h"

namespace reprise::cpu {

struct CpuDeviceOptions {
  int threads = 0;  // 0: one per allowed core
  bool pin = true;
  Isa isa = Isa::Baseline;
  // false: sizes freeze at capture, as they do on accelerators, so that padding rows are really computed; for checks.
  bool live_sizes = true;
  std::shared_ptr<ranks::Member> member = nullptr;  // of a world of several ranks
  // Graphs with several streams run them one after the other, in the order of this seed (RecordedOrder::order), instead
  // of on halves of the threads; for checks.
  std::optional<uint64_t> mix_streams = std::nullopt;
};

Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace reprise::cpu
