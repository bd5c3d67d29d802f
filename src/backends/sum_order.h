// sum_order: in which order a device's kernels of an op add up, in words, for people who ask why two numbers differ.
// The headers of the kernels hold the rules; tests compute some of them again by the words here. Any thread.
#pragma once

#include <string_view>

#include "base/dtype.h"
#include "device/device.h"
#include "ops/attrs.h"

namespace reprise {

// "" where nothing is added up, or the op has no kernel on the device. `attrs`: of the call, where its order depends on
// them.
std::string_view sum_order(const DeviceInfo& device, std::string_view op, DType dtype, const Attrs& attrs = {});

}  // namespace reprise
