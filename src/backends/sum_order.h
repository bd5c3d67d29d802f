// sum_order: in which order a device's kernels of an op add up, in words, for people who ask why two numbers differ.
// The headers of the kernels hold the rules; tests compute some of them again by the words here. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/dtype.h"
#include "device/device.h"
#include "ops/attrs.h"

namespace reprise {

// "" where nothing is added up, or the op has no kernel on the device. `attrs`: of the call, where its order depends on
// them.
std::string_view sum_order(const DeviceInfo& device, std::string_view op, DType dtype, const Attrs& attrs = {});

// A short name of all orders of a device of this kind and `isa` together, for reports and keys: where two names differ
// so may bits. "pairs", "pairs/two-roundings", "amx32x2", "amx32x2/blocks" of the CPU; "sm90/tc16/page128" of a GPU of
// sm_90. "" where no order is promised.
std::string sum_order_name(DeviceKind kind, std::string_view isa);

}  // namespace reprise
