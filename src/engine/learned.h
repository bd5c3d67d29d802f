// Learned: what an engine learns while serving and keeps for its next start: step times and the histogram of row
// counts, per phase. One small JSON file per (model, dtype, device), written atomically; a missing or unreadable file
// only means that nothing has been learned yet. Plain data.
#pragma once

#include <string>

#include "base/status.h"
#include "engine/step_runner.h"

namespace reprise::engine {

struct LearnedPhase {
  struct Time {
    StepKind kind;
    int64_t rows;
    StepCosts::Entry entry;
  };
  std::vector<Time> times;
  std::vector<std::pair<int64_t, uint64_t>> traffic;  // row count, batches
};

struct Learned {
  LearnedPhase decode, prefill;
};

// NotFound: nothing learned yet. Invalid: the file is not one of ours; it is replaced by the next save.
Result<Learned> load_learned(const std::string& path);
Status save_learned(const std::string& path, const StepRunner& decode, const StepRunner& prefill);
// Gives a runner what was learned about its phase.
void restore(const LearnedPhase& learned, StepRunner& runner);

}  // namespace reprise::engine
