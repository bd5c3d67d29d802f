// The limits of the device that a step runs on, for shares of them in reports: the processor's own, or of a GPU the
// bandwidth of a copy within its memory, read and written bytes together. Takes up to two seconds; no state.
#pragma once

#include "device/device.h"
#include "measurement/machine_probe.h"

namespace reprise::measurement {

// Only the bandwidth of a device other than the processor is known: peaks are zero or absent. Where it cannot be
// measured (no memory is left for two buffers), it is zero too.
MachineSpeed measure_speed_of(const DeviceInfo& info, int threads);

}  // namespace reprise::measurement
