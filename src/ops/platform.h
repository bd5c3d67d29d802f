// Platform: a device together with the ops that exist and the kernels it runs them with. Made by make_platform() in
// backends/all.h; an engine owns one. Registries are read-only after that.
#pragma once

#include <memory>

#include "device/device.h"
#include "ops/kernel.h"
#include "ops/schema.h"

namespace reprise {

struct Platform {
  std::unique_ptr<OpRegistry> ops;
  std::unique_ptr<KernelRegistry> kernels;
  std::unique_ptr<Device> device;
};

}  // namespace reprise
