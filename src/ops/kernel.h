// KernelEntry and KernelRegistry: how an op is computed on a device, and which of several ways is chosen.
//
// Entries are added by plain functions of each backend. For one call the accepted entry with the highest score wins; a
// tie is an error, and when none accepts, the error carries every refusal in words. Read-only after start-up.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "device/thunk.h"
#include "ops/schema.h"

namespace reprise {

// A device's own way of storing a parameter. Loading packs row blocks straight from the checkpoint.
struct ParamLayout {
  std::string name;  // "row_major", "panel64"
  DeviceKind device = DeviceKind::Cpu;
  // Bytes of the whole parameter of the given constant type.
  size_t (*bytes)(const TensorType& type) = nullptr;
  // Stores rows [first, first + count) of a row-major matrix (of a stack: the rows of all matrices) that is already in
  // the parameter's dtype. `dst` is the whole parameter, zero-filled before the first call.
  void (*pack)(const TensorType& type, void* dst, const void* rows, int64_t first, int64_t count) = nullptr;
};

struct KernelEntry {
  std::string name;  // "cpu.linear.bf16.avx512"
  std::string op;
  DeviceKind device = DeviceKind::Cpu;
  int score = 0;
  // A fused op's kernel gives the bits that its parts give on this device. False: rounds less often or elsewhere, so
  // fused and unfused runs differ by roundings (engine/fusion_bound.h). Ops that are not fused have no parts.
  bool exact = true;
  // Where this kernel refuses a call and a lesser one takes it, the log says so with the reason.
  bool announced = false;
  DType index_dtype = DType::I32;  // of operands declared as Index
  // Ok, or Unsupported with the reason and the values.
  std::function<Status(const OpCall& call)> accepts;
  // Fills sizes and attributes of the op's argument struct (ops/args); the binder has already set the pointers of
  // operands and results, with which every such struct begins.
  std::function<void(const OpCall& call, LaunchArgs& args)> bind;
  // Scratch bytes at these sizes, which are the largest; an error where the kernel cannot run at them, although it
  // accepts the call. Empty means none.
  std::function<Result<size_t>(const OpCall& call, const LiveSizes& bound, int threads)> workspace;
  // Kernels of the device that a launch of the call starts, one behind the other, at its smallest sizes. Empty: one.
  std::function<Result<int>(const OpCall& call)> starts;
  // Of a kernel that may leave a call's product to a vendor's library (Device::product_ways()): that product.
  std::function<LibraryProduct(const OpCall& call)> library;
  std::array<OpaqueKernel, 2> part{};
  // Layouts accepted for a parameter that is the op's Weight or Table, best first; empty: row_major.
  std::vector<std::string> param_layouts;
  // Operands whose values the host reads at every launch, by index; at most LaunchArgs::kMaxHostOperands. They must be
  // staged inputs. Captured, such a kernel is patched at every replay; where a device has no patches it is launched.
  std::vector<int> host_operands;
};

// What an extension brings for a device whose kernels do not take the arguments of the C interface: its functions, at
// LaunchArgs::constant.
using ForeignParts = std::array<OpaqueKernel, std::tuple_size_v<decltype(KernelEntry::part)>>;

class KernelRegistry {
 public:
  // CHECKs that the entry is complete and its name new.
  void add(KernelEntry entry);
  const KernelEntry* find(std::string_view name) const;
  void add(ParamLayout layout);
  // The one of the highest score that accepts the call and is not `refused`.
  Result<const KernelEntry*> choose(DeviceKind device, const OpCall& call,
                                    std::span<const KernelEntry* const> refused = {}) const;
  // Every entry for the op on the device with its verdict, one line each.
  std::string explain(DeviceKind device, const OpCall& call) const;
  const ParamLayout* layout(DeviceKind device, std::string_view name) const;
  // The device's kernel that calls ForeignParts; null: its kernels take the arguments of the C interface themselves, or
  // there is no way.
  void add_foreign(DeviceKind device, OpaqueKernel caller) { foreign_[device] = caller; }
  OpaqueKernel foreign(DeviceKind device) const {
    const auto it = foreign_.find(device);
    return it == foreign_.end() ? nullptr : it->second;
  }
  const std::vector<std::unique_ptr<KernelEntry>>& entries() const { return entries_; }

 private:
  std::vector<std::unique_ptr<KernelEntry>> entries_;
  std::unordered_map<std::string, std::vector<const KernelEntry*>> by_op_;
  std::vector<std::unique_ptr<ParamLayout>> layouts_;
  std::map<DeviceKind, OpaqueKernel> foreign_;
};

// "linear(bf16[T, 1024], bf16[3072, 1024])": a call in words, for messages.
std::string describe(const OpCall& call);
std::string describe(const TensorType& type);

}  // namespace reprise
