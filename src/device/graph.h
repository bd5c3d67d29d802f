// Recorder, DeviceGraph and Patch: capture once, play again, the same on every device.
//
// Device::capture() runs a body that launches thunks on a Recorder; nothing is computed meanwhile. The DeviceGraph that
// comes out replays all of them with one call. Arguments stay as recorded, except those of patchable launches, for
// which a replay may carry new ones. Sizes are not arguments: where the device allows (DeviceInfo::live_sizes) kernels
// read them from the live sizes of the stream that replays, so one graph serves every size up to its bounds; elsewhere
// they are frozen at those of the stream that captured, and every size needs a graph of its own. Values that the host
// reads at a launch (LaunchArgs::host) are read at capture, and again by every replay that patches the launch, be it
// with the same arguments: they are in place when replay() is called and stay until the replay is known to be done.
// A recording may have several streams: launches name theirs (Thunk::stream), and 0 is the one that captures. They are
// in order within a stream and otherwise only where a wait follows a record. A further stream takes part from its first
// wait on and is joined again, directly or not, by stream 0 before the body ends; anything else is an error of the
// capture. One after the other as recorded is one of the orders that a device may choose.
// A graph must not outlive its device or the memory it was bound to; it replays on any stream of its device, one thread
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "device/stream.h"
#include "device/thunk.h"

namespace reprise {

using PatchId = uint32_t;

// New arguments for one recorded launch, good for this replay and those that follow. To a launch with host operands it
// also says "read them again".
struct Patch {
  PatchId id = 0;
  const LaunchArgs* args = nullptr;
};

struct GraphStats {
  size_t launches = 0;
  size_t waits = 0;     // of one stream for another
  size_t barriers = 0;  // places where threads or queues wait for each other
  size_t bytes = 0;     // of the graph object: host memory, or what the device's memory lost when it was made
  uint64_t replays = 0;
  size_t copies_to_host = 0;  // that each replay makes; a step is meant to have none
};

class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual Status launch(const Thunk& thunk) = 0;
  // Unsupported where the device has no patches, or not for this kernel.
  virtual Result<PatchId> launch_patchable(const Thunk& thunk) = 0;
  // Marks the point behind everything recorded on the stream so far. The body numbers its marks as it likes.
  virtual Status record(uint8_t stream, uint32_t mark) = 0;
  // What is recorded on the stream from now on follows the mark, which was recorded before.
  virtual Status wait(uint8_t stream, uint32_t mark) = 0;
};

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // A patch that names no patchable launch, or carries no arguments, is an error before anything is changed or run.
  virtual Status replay(Stream& stream, std::span<const Patch> patches = {}) = 0;
  virtual GraphStats stats() const = 0;
};

}  // namespace reprise
