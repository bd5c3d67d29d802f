// Platform: a device together with the ops that exist and the kernels it runs them with. Made by make_platform() in
// backends/all.h and added to by load_extension(); an engine owns one. Registries are read-only after that. Two engines
// that one thread drives in turn may share a device.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "ops/kernel.h"
#include "ops/schema.h"

namespace reprise {

class Extension;  // passes/extension.h

struct Platform {
  // Kernels and ops below point into them, so they go last.
  std::vector<std::shared_ptr<const Extension>> extensions;
  std::unique_ptr<OpRegistry> ops;
  std::unique_ptr<KernelRegistry> kernels;
  std::shared_ptr<Device> device;
};

}  // namespace reprise
