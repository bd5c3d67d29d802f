#include "device/device.h"

#include <chrono>

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

double now_us(const Device& device) {
  if (const auto modelled = device.clock_us()) return *modelled;
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace reprise
