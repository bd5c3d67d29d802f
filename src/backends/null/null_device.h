// NullDevice: a device that accepts every launch and computes nothing. It is the smallest complete backend: the
// skeleton of a new one, and what tests of planning and binding use when no numbers matter. register_null() gives every
// op one kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "ops/kernel.h"

namespace reprise::null {

struct NullDeviceOptions {
  std::vector<uint32_t>* launched = nullptr;  // when set, the node of every launch is appended
};

std::unique_ptr<Device> make_null_device(const NullDeviceOptions& options = {});
void register_null(KernelRegistry& kernels, const OpRegistry& ops);

}  // namespace reprise::null
