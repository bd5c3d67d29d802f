// Trace: what every track of a device did, launch by launch: when it computed, and when it waited for others.
//
// A track is a unit that works by itself: a thread of the CPU, a queue of an accelerator. Attached to a stream
// (Stream::set_trace) a trace is filled by that stream's launches and replays as they really run, until it is detached.
// Nothing is allocated meanwhile; events beyond the room given are counted. Each track is written by one thread; read
// it when the stream is idle. Times are nanoseconds of the steady clock since start().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace reprise {

struct TraceEvent {
  static constexpr uint32_t kNoNode = UINT32_MAX;  // waiting for the other tracks at the end of a replay

  enum class Kind : uint8_t { Kernel, Wait };
  Kind kind = Kind::Kernel;
  uint8_t part = 0;     // of the thunk
  uint32_t node = 0;    // Thunk::node; of a wait: what is waited for
  uint32_t replay = 0;  // counts launches and replays of the stream
  int64_t begin_ns = 0, end_ns = 0;
};

class Trace {
 public:
  Trace(int tracks, size_t events_per_track) : tracks_(static_cast<size_t>(tracks)) {
    for (Track& t : tracks_) t.events.resize(events_per_track);
    start();
  }

  int tracks() const { return static_cast<int>(tracks_.size()); }
  std::span<const TraceEvent> events(int track) const {
    const Track& t = tracks_[static_cast<size_t>(track)];
    return {t.events.data(), t.used};
  }
  // Events that found no room.
  size_t dropped() const {
    size_t n = 0;
    for (const Track& t : tracks_) n += t.dropped;
    return n;
  }

  // Forgets everything and sets the clock to zero.
  void start() {
    for (Track& t : tracks_) t.used = t.dropped = 0;
    replay_ = 0;
    zero_ = std::chrono::steady_clock::now();
  }

  // For devices.
  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - zero_).count();
  }
  void next_replay() { ++replay_; }
  uint32_t replay() const { return replay_; }
  void add(int track, const TraceEvent& event) {
    Track& t = tracks_[static_cast<size_t>(track)];
    if (t.used < t.events.size())
      t.events[t.used++] = event;
    else
      ++t.dropped;
  }

 private:
  struct alignas(64) Track {
    std::vector<TraceEvent> events;
    size_t used = 0, dropped = 0;
  };
  std::vector<Track> tracks_;
  uint32_t replay_ = 0;
  std::chrono::steady_clock::time_point zero_;
};

}  // namespace reprise
