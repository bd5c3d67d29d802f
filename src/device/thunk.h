// Thunk: a kernel bound to its arguments, ready to be launched again and again.
//
// The function pointers are opaque to everyone but the backend that registered them. On the CPU a part has the type
// CpuKernel (backends/cpu/cpu_kernel.h); other devices use their own. Sizes stay symbolic (Dim), so that one binding
// serves every live size up to the bound: the kernel resolves them against the stream's LiveSizes. Plain data, which
// belongs to its builder.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dim.h"

namespace reprise {

// An operand that a kernel reads: its address; null where an optional one is left out. A member of a struct of launch
// arguments; converts to a pointer to the type that the kernel takes it for.
struct In {
  const void* data = nullptr;

  template <class T>
  [[gnu::always_inline]] operator const T*() const {  // NOLINT: the kernel's element type says what it is
    return static_cast<const T*>(data);
  }
  [[gnu::always_inline]] explicit operator bool() const { return data != nullptr; }
};

// A result, or an operand that is written in place.
struct Out {
  void* data = nullptr;

  template <class T>
  [[gnu::always_inline]] operator T*() const {  // NOLINT
    return static_cast<T*>(data);
  }
};

static_assert(sizeof(In) == sizeof(void*) && sizeof(Out) == sizeof(void*));

// The arguments of one launch: storage for the struct that its op declares (ops/args), and what every launch has. A
// struct begins with its operands (In, Out) in schema order, then its results: the binder sets them by number. Behind
// them are sizes and attributes. The three arrays are the same storage for what has no struct: the binder, the C
// interface of extensions, kernels of tests. Trivially copyable: a patch, a capture or a queue takes a copy.
struct LaunchArgs {
  static constexpr int kMaxPointers = 12;
  static constexpr int kMaxDims = 12;
  static constexpr int kMaxScalars = 4;
  static constexpr int kMaxHostOperands = 2;

  // Operands in schema order (null where an optional one is left out), then results. Behind these may lie what the
  // op's struct has in their place.
  std::array<void*, kMaxPointers> ptr{};
  std::array<Dim, kMaxDims> dim{};
  std::array<double, kMaxScalars> scalar{};
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  // Where the host reads the kernel's host operands (KernelEntry::host_operands), in that order: memory that the host
  // writes before a step and leaves alone until the step is done.
  std::array<const void*, kMaxHostOperands> host{};
  // A constant in device memory that the kernel's entry made, such as a mask.
  const void* constant = nullptr;
  // Which of several ways with the same bits the kernel takes, or how it stores its parameter: as its entry chose.
  int64_t way = 0;
  // On devices whose threads help each other, how much of each thread's share is taken, all 0 between launches; set by
  // the device. Null: every thread does its own share.
  std::atomic<int32_t>* taken = nullptr;

  static constexpr size_t kCapacity =
      kMaxPointers * sizeof(void*) + kMaxDims * sizeof(Dim) + kMaxScalars * sizeof(double);
  template <class A>
  [[gnu::always_inline]] const A& as() const {
    static_assert(std::is_trivially_copyable_v<A> && sizeof(A) <= kCapacity && alignof(A) <= alignof(void*));
    return *reinterpret_cast<const A*>(this);
  }
  template <class A>
  [[gnu::always_inline]] A& as() {
    static_assert(std::is_trivially_copyable_v<A> && sizeof(A) <= kCapacity && alignof(A) <= alignof(void*));
    return *reinterpret_cast<A*>(this);
  }
};

using OpaqueKernel = void (*)();

static_assert(std::is_standard_layout_v<LaunchArgs> && std::is_trivially_copyable_v<LaunchArgs>);

// Streams of a recorded graph (device/graph.h); 0 is the main one.
constexpr int kMaxGraphStreams = 3;

struct Thunk {
  // Parts run in order; all threads of a device finish one before the next begins. Unused parts are null.
  std::array<OpaqueKernel, 2> part{};
  LaunchArgs args;
  uint32_t node = 0;  // index of the graph node it came from, for messages and profiles
  // The stream in a recorded graph (device/graph.h); a launch by itself is on the stream that it is given to.
  uint8_t stream = 0;
  // It reads or overwrites what an earlier launch since the last such mark touches. Devices whose threads or queues run
  // ahead of each other must finish those first; where this is false they need not.
  bool depends = true;
};

}  // namespace reprise
