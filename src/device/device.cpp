#include "device/device.h"

#include <chrono>
#include <string_view>
#include <vector>

namespace reprise {
namespace {

struct DeviceName {
  DeviceKind kind;
  std::string_view name;
};
// The first name of a kind is what it is called.
constexpr DeviceName kNames[] = {{DeviceKind::Cpu, "cpu"},
                                 {DeviceKind::Cuda, "cuda"},
                                 {DeviceKind::Ascend, "ascend"},
                                 {DeviceKind::Ascend, "npu"},
                                 {DeviceKind::Null, "null"}};

constexpr std::string_view name_of(DeviceKind kind) {
  for (const DeviceName& n : kNames)
    if (n.kind == kind) return n.name;
  return "?";
}
constexpr bool all_named() {
  for (int kind = 0; kind <= static_cast<int>(DeviceKind::Null); ++kind)
    if (name_of(static_cast<DeviceKind>(kind)) == "?") return false;
  return true;
}
static_assert(all_named(), "a device has no name");

}  // namespace

std::string_view device_kind_name(DeviceKind kind) { return name_of(kind); }

Result<DeviceKind> parse_device_kind(std::string_view name) {
  std::vector<std::string_view> allowed;
  for (const DeviceName& n : kNames) {
    if (n.name == name) return n.kind;
    if (n.kind != DeviceKind::Null) allowed.push_back(n.name);  // that one is for tests
  }
  return invalid("device \"{}\" is not known; allowed: {}", name, fmt::join(allowed, ", "));
}

double now_us(const Device& device) {
  if (const auto modelled = device.clock_us()) return *modelled;
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace reprise
