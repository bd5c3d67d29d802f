// StreamReport: what runs beside what in a plan with several streams, and what that costs in memory. A plain value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "compile/compiled_model.h"

namespace reprise::see {

// Launches of the side stream, and those of the main stream from where the first of them may begin to the launch that
// waits for the last.
struct StreamFork {
  std::string side, beside;  // ops, in order
  std::string join;          // op
  int count = 1;             // in the graph
};

// Weights that are read ahead together, those launches of the main stream that leave memory idle meanwhile, and the
// first product that reads of them.
struct StreamPrefetch {
  int64_t bytes = 0;
  int64_t rows = 0;              // of the largest step that has them; 0: any
  std::string beside, ahead_of;  // ops
  int count = 1;
};

struct StreamReport {
  std::vector<StreamFork> forks;  // by what they are
  std::vector<StreamPrefetch> prefetches;
  int64_t prefetched_bytes = 0;  // in a step
  int side_launches = 0, waits = 0;
  size_t arena_bytes = 0, one_stream_arena_bytes = 0;
  std::vector<CompiledModel::StreamTimes> measured;  // by size, where times decide
  std::string one_stream_reason;  // why captures have one stream all the same; empty: they have several
};

// None for a plan on one stream.
std::optional<StreamReport> stream_report(const CompiledModel& model);
std::string stream_text(const StreamReport& report);
OrderedJson stream_json(const StreamReport& report);

}  // namespace reprise::see
