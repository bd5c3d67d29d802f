// RecordedOrder: which launches of a recording with several streams follow which. It checks the rules of
// device/graph.h, and gives orders that a device could have chosen. A plain value that the recording code owns.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "device/thunk.h"

namespace reprise {

class RecordedOrder {
 public:
  // In the order of the recording; launches are numbered from 0.
  Status launch(uint8_t stream);
  Status record(uint8_t stream, uint32_t mark);
  Status wait(uint8_t stream, uint32_t mark);
  // At the end of the recording: every stream is joined.
  Status finish() const;

  bool several_streams() const { return several_; }
  size_t waits() const { return waits_; }
  // All launches in an order that is allowed: 0 runs side streams as early as possible, 1 as late as possible, others
  // mix them by chance.
  std::vector<uint32_t> order(uint64_t seed) const;
  // Launches of a stage by stream, in order. Nothing in a stage waits for another stream of it, and every stage follows
  // the one before as a whole. A side stream begins as early as it may.
  using Stage = std::array<std::vector<uint32_t>, kMaxGraphStreams>;
  std::vector<Stage> stages() const;

 private:
  // By stream: how many of its launches come before.
  using Clock = std::array<uint32_t, kMaxGraphStreams>;
  struct Launch {
    uint8_t stream;
    Clock before;
  };
  Status known(uint8_t stream) const;
  using Queues = std::array<std::vector<uint32_t>, kMaxGraphStreams>;
  Queues queues() const;
  bool ready(uint32_t launch, const Clock& done) const;

  std::vector<Launch> launches_;
  std::map<uint32_t, Clock> marks_;
  std::array<Clock, kMaxGraphStreams> at_{};  // what precedes the next launch of a stream
  std::array<bool, kMaxGraphStreams> takes_part_{true};
  bool several_ = false;
  size_t waits_ = 0;
};

}  // namespace reprise
