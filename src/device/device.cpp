#include "device/device.h"

namespace reprise {

std::string_view device_kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::Cpu: return "cpu";
    case DeviceKind::Cuda: return "cuda";
    case DeviceKind::Ascend: return "ascend";
    case DeviceKind::Null: return "null";
  }
  return "?";
}

Result<DeviceKind> parse_device_kind(std::string_view name) {
  if (name == "cpu") return DeviceKind::Cpu;
  if (name == "cuda") return DeviceKind::Cuda;
  if (name == "ascend" || name == "npu") return DeviceKind::Ascend;
  if (name == "null") return DeviceKind::Null;
  return invalid("device \"{}\" is not known; allowed: cpu, cuda, ascend, npu", name);
}

}  // namespace reprise
