// What a backend's registration begins an entry with: name, guards, binding and scratch memory, from what the op's
// launch arguments say (op_args.h). The backend adds its kernel and layouts.
#pragma once

#include <functional>
#include <optional>

#include "ops/args/op_args.h"
#include "ops/kernel.h"

namespace reprise {

// Scratch bytes of a launch with these arguments, at the bounds.
using Scratch = std::function<size_t(const LaunchArgs& args, const LiveSizes& bound, int threads)>;
template <class A>
Scratch scratch(size_t (*bytes)(const A& args, const LiveSizes& bound, int threads)) {
  return [bytes](const LaunchArgs& args, const LiveSizes& bound, int threads) {
    return bytes(args.as<A>(), bound, threads);
  };
}

struct EntryPlan {
  DeviceKind device = DeviceKind::Cpu;
  std::string_view op;
  std::string_view variant{};                              // in the name, before the types
  std::optional<EntryTypes> types{};                       // none: one kernel serves every dtype
  std::function<Status(const OpCall&)> accepts{};          // what the kernel wants besides OpArgs::accepts
  std::function<void(const OpCall&, LaunchArgs&)> bind{};  // behind OpArgs::bind: what is the device's own
  Scratch scratch{};
};

// "DEVICE.OP.VARIANT.TYPES", score 100.
KernelEntry entry_of(const EntryPlan& plan);

}  // namespace reprise
