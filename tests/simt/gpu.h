// Whether tests of the CUDA device find a GPU; where they do, cases on it run beside those on the SIMT executor.
#pragma once

#include <string>

#include "backends/all.h"

namespace reprise::simt {

// Why there is no GPU here; empty where there is one.
inline const std::string& no_gpu() {
  static const std::string why = [] {
    DeviceOptions o;
    o.kind = DeviceKind::Cuda;
    const auto platform = make_platform(o);
    return platform.is_ok() ? std::string() : platform.status().message();
  }();
  return why;
}

}  // namespace reprise::simt
