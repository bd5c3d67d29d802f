// Whether tests of the CUDA device find a GPU; where they do, cases on it run beside those on the SIMT executor. Tests
// of single kernels run where REPRISE_KERNELS_ON says, so that one list of cases serves both.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "nn/fused.h"
#include "simt/kernels.h"

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

// What REPRISE_KERNELS_ON says: "gpu"; "device", which is the executor behind the interface of a device and shows
// without a GPU that tests can run so; unset, the executor launch by launch.
inline std::string_view kernels_on() {
  const char* set = std::getenv("REPRISE_KERNELS_ON");
  const std::string_view on = set ? set : "";
  CHECK(on.empty() || on == "gpu" || on == "device", "REPRISE_KERNELS_ON={}; allowed: gpu, device", on);
  return on;
}

// The device that kernel tests run on; null: none. A GPU that is asked for and not there ends the program: tests of it
// do not pass on anything else.
inline std::shared_ptr<const Platform> kernel_platform() {
  // Never given back: at the end of the process the driver may be gone first.
  static const auto* const platform = new std::shared_ptr<const Platform>([]() -> std::shared_ptr<const Platform> {
    if (kernels_on().empty()) return nullptr;
    DeviceOptions o;
    o.kind = DeviceKind::Cuda;
    if (kernels_on() == "device") o.cuda_stand_in = &stand_in();
    auto made = make_platform(o);
    CHECK(made.is_ok(), "REPRISE_KERNELS_ON={}: {}", kernels_on(), made.status().message());
    nn::register_fused_ops(*made->ops);
    return std::make_shared<const Platform>(std::move(*made));
  }());
  return *platform;
}

}  // namespace reprise::simt
