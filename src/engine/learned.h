// Learned: what an engine learns while serving and keeps for its next start: step times and the histogram of row
// counts, per phase. One small JSON file per (model, dtype, device), written atomically; a missing or unreadable file
// only means that nothing has been learned yet. Plain data.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/phases.h"
#include "engine/step_runner.h"

namespace reprise::engine {

struct LearnedPhase {
  struct Time {
    StepKind kind;
    int64_t rows;
    StepCosts::Entry entry;
    StepClock clock = StepClock::Host;
  };
  std::vector<Time> times;
  std::vector<std::pair<int64_t, uint64_t>> traffic;  // row count, batches
};

using Learned = std::array<LearnedPhase, kPhaseCount>;
using Runners = std::array<std::unique_ptr<StepRunner>, kPhaseCount>;

// NotFound: nothing learned yet. Invalid: the file is not one of ours; it is replaced by the next save.
Result<Learned> load_learned(const std::string& path);
// Times by other clocks than the runners' stay as the file has them.
Status save_learned(const std::string& path, const Runners& runners);
// Gives the runners what was learned about their phases, and of the times those by their clocks.
void restore(const Learned& learned, const Runners& runners);

}  // namespace reprise::engine
