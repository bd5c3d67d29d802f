// Stream: an ordered queue of work on one device; Event: a point in such a queue.
//
// Launches, copies and replays on a stream run in order, and on an asynchronous device behind the host's back: memory
// they use stays untouched until a synchronize() has passed it. A call's own status tells what can be seen at once (an
// argument out of range, a device that is gone); an error of the work itself surfaces in synchronize(). What was asked
// for behind a failure and before it was told may have run or not. A stream is driven by one thread at a time; its
// destructor waits for its work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/shape.h"
#include "base/status.h"
#include "device/thunk.h"

namespace reprise {

class Event {
 public:
  virtual ~Event() = default;
};

class Trace;

// Whose memory is read and whose written. Which it is cannot be told from an address on every device.
enum class Copy : uint8_t { HostToDevice, DeviceToHost, DeviceToDevice };

// What was asked of a stream so far. A step asks for no copy to the host but that of its result.
struct StreamStats {
  uint64_t launches = 0;
  uint64_t replays = 0;
  uint64_t copies_to_device = 0;
  uint64_t copies_to_host = 0;
  uint64_t copies_on_device = 0;
  uint64_t bytes_to_device = 0, bytes_to_host = 0;

  void count(Copy kind, size_t bytes) {
    switch (kind) {
      case Copy::HostToDevice: ++copies_to_device, bytes_to_device += bytes; break;
      case Copy::DeviceToHost: ++copies_to_host, bytes_to_host += bytes; break;
      case Copy::DeviceToDevice: ++copies_on_device; break;
    }
  }
};

class Stream {
 public:
  virtual ~Stream() = default;
  // The live value of every symbol for the launches, replays and captures that follow.
  virtual void set_live_sizes(const LiveSizes& live) = 0;
  virtual Status launch(const Thunk& thunk) = 0;
  virtual Status copy(void* dst, const void* src, size_t bytes, Copy kind) = 0;
  // Marks the point behind everything asked so far; a later record moves the mark.
  virtual Status record(Event& event) = 0;
  // What follows on this stream starts after the event's mark. An event that was never recorded holds up nothing. The
  // events of another device are not understood.
  virtual Status wait(const Event& event) = 0;
  // Returns when everything asked so far is done.
  virtual Status synchronize() = 0;
  // Returns when everything before the event's mark on this stream is done, with the first failure that is known by
  // then; work behind the mark goes on. At once for an event that was never recorded.
  virtual Status synchronize(const Event& event) = 0;
  virtual StreamStats stats() const = 0;
  // From now on launches and replays are timed into `trace` (device/trace.h); null ends that. Costs nothing while off.
  virtual Status set_trace(Trace* trace) {
    return trace ? error(Code::Unsupported, "this device does not time single launches") : Status::ok();
  }
};

}  // namespace reprise
