// The runs of `graph verify`: which traffic each mode is given, in full or as the small selection of --quick. Plain
// functions.
#pragma once

#include <string>
#include <vector>

#include "verification/traffic.h"

namespace reprise::verification {

struct VerifyRun {
  std::string name;
  TrafficOptions traffic;

  // What it costs relative to others, for estimates.
  uint64_t cost() const;
};

struct VerifyRuns {
  std::vector<VerifyRun> runs;
  std::vector<int64_t> changed_batches;  // for which every staged input is changed
  std::string left_out;                  // what the engine is too small for; empty: nothing

  // The run of the same sequences as one batch; its rows are those of `run`.
  size_t together(size_t run) const;
  uint64_t cost() const;
};
uint64_t cost_of_changes(int64_t batch);

// Every batch up to `largest`, the same sequences fed otherwise, prompts that end around the border of a page, and the
// tokens that greedy steps find. `quick`: three batches instead of all.
VerifyRuns verify_runs(const engine::Engine& e, int64_t largest, bool quick);

}  // namespace reprise::verification
