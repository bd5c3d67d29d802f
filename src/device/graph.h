// Recorder, DeviceGraph and Patch: capture once, play again, the same on every device.
//
// Device::capture() runs a body that launches thunks on a Recorder; nothing is computed meanwhile. The DeviceGraph that
// comes out replays all of them with one call. Arguments stay as recorded, except those of patchable launches, for
// which a replay may carry new ones. Sizes are not arguments: kernels read them from the stream's live sizes, so one
// graph serves every size up to its bounds where the device allows (DeviceInfo::live_sizes). A graph must not outlive
// its device or the memory it was bound to; one thread replays at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "device/stream.h"
#include "device/thunk.h"

namespace reprise {

using PatchId = uint32_t;

// New arguments for one recorded launch, good for this replay and those that follow.
struct Patch {
  PatchId id = 0;
  const LaunchArgs* args = nullptr;
};

struct GraphStats {
  size_t launches = 0;
  size_t barriers = 0;  // places where ranks or queues wait for each other
  size_t bytes = 0;     // host memory of the graph object
  uint64_t replays = 0;
};

class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual Status launch(const Thunk& thunk) = 0;
  virtual Result<PatchId> launch_patchable(const Thunk& thunk) = 0;
};

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual Status replay(Stream& stream, std::span<const Patch> patches = {}) = 0;
  virtual GraphStats stats() const = 0;
};

}  // namespace reprise
