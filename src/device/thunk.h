// Thunk: a kernel bound to its arguments, ready to be launched again and again.
//
// The function pointers are opaque to everyone but the backend that registered them. On the CPU a phase has the type
// CpuKernel (backends/cpu/cpu_kernel.h); other devices use their own. Sizes stay symbolic (Dim), so that one binding
// serves every live size up to the bound: the kernel resolves them against the stream's LiveSizes. Plain data; whoever
// built it owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dim.h"

namespace reprise {

struct LaunchArgs {
  static constexpr int kMaxPointers = 12;
  static constexpr int kMaxDims = 12;
  static constexpr int kMaxScalars = 4;
  static constexpr int kMaxHostOperands = 2;

  // Operands in schema order (null where an optional one is left out), then results.
  std::array<void*, kMaxPointers> ptr{};
  std::array<Dim, kMaxDims> dim{};  // meaning is the kernel's own
  std::array<double, kMaxScalars> scalar{};
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  // Where the host reads the kernel's host operands (KernelEntry::host_operands), in that order: memory that the host
  // writes before a step and leaves alone until the step is done.
  std::array<const void*, kMaxHostOperands> host{};
};

using OpaqueKernel = void (*)();

struct Thunk {
  // Phases run in order; all ranks of a device finish one before the next begins. Unused phases are null.
  std::array<OpaqueKernel, 2> phase{};
  LaunchArgs args;
  uint32_t node = 0;  // index of the graph node it came from, for messages and profiles
  // It reads or overwrites what an earlier launch since the last such mark touches. Devices whose ranks or queues run
  // ahead of each other must finish those first; where this is false they need not.
  bool depends = true;
};

}  // namespace reprise
