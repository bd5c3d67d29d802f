#include "measurement/device_probe.h"

#include <algorithm>

#include "backends/all.h"

namespace reprise::measurement {
namespace {

constexpr size_t kBytes = size_t{512} << 20;  // above any cache
constexpr int kDeviceTrials = 5;

Result<double> copy_GBps(Device& device) {
  ASSIGN_OR_RETURN(const Buffer from, device.pool().allocate(kBytes, "probe"));
  ASSIGN_OR_RETURN(const Buffer to, device.pool().allocate(kBytes, "probe"));
  ASSIGN_OR_RETURN(const auto stream, device.make_stream());
  double best = 0;
  for (int i = 0; i <= kDeviceTrials; ++i) {
    const double begin = now_us(device);
    RETURN_IF_ERROR(stream->copy(to.data(), from.data(), kBytes, Copy::DeviceToDevice));
    RETURN_IF_ERROR(stream->synchronize());
    // The first pays for what is loaded lazily.
    if (i > 0) best = std::max(best, 2.0 * static_cast<double>(kBytes) / (now_us(device) - begin) * 1e-3);
  }
  return best;
}

}  // namespace

MachineSpeed measure_speed_of(const DeviceInfo& info, int threads) {
  if (info.kind != DeviceKind::Cuda) return measure_machine(threads);
  MachineSpeed speed;
  DeviceOptions options;
  options.kind = info.kind;
  const auto platform = make_platform(options);
  if (!platform.is_ok()) return speed;
  const auto measured = copy_GBps(*platform->device);
  speed.read_GBps_1 = speed.read_GBps_all = measured.is_ok() ? *measured : 0;
  return speed;
}

}  // namespace reprise::measurement
