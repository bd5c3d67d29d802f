// The limits of the device that a step runs on, for shares of them in reports and for `reprise doctor`: the processor's
// own, or what a device with memory of its own copies and multiplies. Takes up to two seconds; no state, any thread.
#pragma once

#include <optional>

#include "measurement/machine_probe.h"
#include "ops/platform.h"

namespace reprise::measurement {

// Only the bandwidth of a device other than the processor is known: that of a copy within its memory, read and written
// bytes together. Peaks are zero or absent. Where it cannot be measured (no memory is left for two buffers), it is zero
// too.
MachineSpeed measure_speed_of(const DeviceInfo& info, int threads);

// What is tried; tests try less.
struct DeviceTrial {
  size_t bytes = size_t{512} << 20;  // of a copy: above any cache
  int64_t size = 4096;               // of a product of two square matrices
};

struct DeviceSpeed {
  double copy_GBps = 0;                         // within its memory, read and written bytes together
  double to_device_GBps = 0, to_host_GBps = 0;  // memory of the host as Device::host_pool() gives it
  double round_trip_us = 0;                     // four bytes to the device and back, waited for
  std::optional<double> bf16_tflops = {};       // a product of random numbers; none: it has no such kernel
  int64_t size = 0;                             // of that product
};

// Whether a device has such figures: memory of its own, and time that is not modelled.
bool has_device_speed(const Device& device);
Result<DeviceSpeed> measure_device(const Platform& platform, const DeviceTrial& trial = {});

}  // namespace reprise::measurement
