// NullDevice: the smallest complete backend, and the skeleton of a new one. It is a queue that calls host functions;
// the kernels that register_null() gives every op compute nothing, so tests of planning and binding run without
// numbers. Several ranks have one each: they plan, capture and run their steps together.
//
// It can be made as strict as a real accelerator: memory that faults when the host touches it, and work that is done as
// late as the contract of device/stream.h allows. Code that forgets a copy or a synchronize() fails without a card. Its
// replays of graphs with several streams then run them in another order each time: one that lacks a wait shows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "ops/kernel.h"
#include "ranks/member.h"

namespace reprise::null {

// The type behind Thunk::part. Addresses are already the host's.
using NullKernel = void (*)(const LaunchArgs& args, const LiveSizes& live);

inline OpaqueKernel opaque(NullKernel kernel) { return reinterpret_cast<OpaqueKernel>(kernel); }

struct NullDeviceOptions {
  std::vector<uint32_t>* launched = nullptr;  // when set, the node of every launch is appended
  bool host_visible = true;                   // false: device addresses cannot be used by the host
  bool deferred = false;                      // work waits until its result is needed
  DType index_dtype = DType::I32;
  DeviceKind kind = DeviceKind::Null;  // of which device it takes the place
  std::string name = "null";
  std::string order = "";  // DeviceInfo::order
  bool free_patches = true;
  const ranks::Region* between_ranks = nullptr;  // memory of Device::between_ranks()
  // The seat in a world of several ranks: what they exchange and stage lies in the memory of all.
  std::shared_ptr<ranks::Member> member = nullptr;
  // Round numbers, so that plans have prefetches.
  ReadAhead read_ahead{"", 1e6, 3e6, 3, 10, 3, 1, size_t{64} << 20};
  // What Device::product_ways() gives, of a device whose kernels may leave products to a library.
  std::shared_ptr<ProductWays> product_ways = nullptr;
  // How a part is called; empty: as the NullKernel that it is.
  std::function<Status(OpaqueKernel part, const LaunchArgs& args, const LiveSizes& live)> call = {};
};

std::unique_ptr<Device> make_null_device(const NullDeviceOptions& options = {});
// With a member, collectives move nothing, and meet: a rank that stays away from one, or ends, is told as on the CPU.
void register_null(KernelRegistry& kernels, const OpRegistry& ops, DType index_dtype = DType::I32,
                   std::shared_ptr<ranks::Member> member = nullptr);

}  // namespace reprise::null
