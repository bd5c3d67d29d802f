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
};

}  // namespace reprise
