// recording_of(): what is recorded of a piece, in order: its launches, and the records and waits that join its streams.
//
// A piece begins and ends on the main stream, so a wait for a launch of another piece is none: that is done. A side
// stream whose first launch waits for nothing in the piece starts at its beginning, and one that no launch has waited
// for is joined at its end. A hint is left out where no later launch of the piece reads what it is ahead of: that a
// piece waits for it at its end would cost more than it brings; and in graphs of more rows than it is good for. Plain
// values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/thunk.h"
#include "graph/graph.h"

namespace reprise {

struct RecordingStep {
  enum class Kind : uint8_t { Launch, Record, Wait } kind = Kind::Launch;
  uint8_t stream = kMainStream;
  uint32_t number = 0;  // of the launch in the piece, or of the mark
};

// Which of a plan's streams a capture has.
enum class RecordedStreams : uint8_t {
  All,
  NoHints,  // but for what is read ahead
  One,      // as if the plan had no others
};

// `nodes` by Thunk::node; `rows` of the step.
std::vector<RecordingStep> recording_of(std::span<const Thunk> thunks, const std::vector<const Node*>& nodes,
                                        RecordedStreams streams, int64_t rows);

}  // namespace reprise
