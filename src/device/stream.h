// Stream: an ordered queue of work on one device; Event: a point in such a queue.
//
// Kernels launched on a stream run in order. Errors of a device surface in synchronize() and nowhere else. A stream is
// driven by one thread at a time.
#pragma once

#include <cstddef>
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

class Stream {
 public:
  virtual ~Stream() = default;
  // The live value of every symbol for the launches that follow.
  virtual void set_live_sizes(const LiveSizes& live) = 0;
  virtual Status launch(const Thunk& thunk) = 0;
  virtual Status copy(void* dst, const void* src, size_t bytes) = 0;
  virtual Status record(Event& event) = 0;
  virtual Status wait(const Event& event) = 0;
  virtual Status synchronize() = 0;
  // From now on launches and replays are timed into `trace` (device/trace.h); null ends that. Costs nothing while off.
  virtual Status set_trace(Trace* trace) {
    return trace ? error(Code::Unsupported, "this device does not time single launches") : Status::ok();
  }
};

}  // namespace reprise
