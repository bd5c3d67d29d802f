// StepRunner: runs the steps of one phase (decode or prefill) through captured graphs where a size fits, and eagerly
// where none does, counting which and why.
//
// It owns the phase's compiled programs: one for all sizes where the device's graphs serve every live size up to their
// bound (CPU), else one per size. A size bounds a batch; rows between the batch and its size are padding. One thread at
// a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compile/compiled_model.h"
#include "engine/graph_options.h"

namespace reprise::engine {

struct PhaseStats {
  uint64_t steps = 0;
  uint64_t replays = 0;  // steps that ran captured
  uint64_t padded_rows =
      0;  // rows between batches and their sizes; they cost nothing where live sizes are read at run time
  std::map<std::string, uint64_t> fallbacks;  // reason -> steps that ran uncaptured
};

class StepRunner {
 public:
  // One program and the largest size it serves.
  struct Program {
    int64_t size = 0;
    std::unique_ptr<CompiledModel> model;
  };

  // `programs` ascending by size. `sizes` are those batches are rounded up to. `reason` says why nothing is captured,
  // empty when something is.
  StepRunner(std::string phase, std::vector<int64_t> sizes, std::vector<Program> programs, GraphPolicy policy,
             bool padding, std::string reason);

  // Runs a batch of `n` tokens (prefill) or sequences (decode).
  Status run(int64_t n, const LiveSizes& live, Stream& stream);
  // Of the last run.
  Result<TensorView> output(std::string_view name) const;
  const CompiledModel* last_program() const { return last_; }  // null before the first run

  int64_t largest() const { return programs_.back().size; }
  GraphMode mode() const { return programs_.back().model->mode(); }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  const PhaseStats& stats() const { return stats_; }
  const std::string& uncaptured_reason() const { return reason_; }
  const std::vector<Program>& programs() const { return programs_; }

 private:
  CompiledModel& program_for(int64_t size);
  // The size to run at, or the reason why the batch cannot run captured.
  std::string choose(int64_t n, int64_t& size) const;

  std::string phase_;
  std::vector<int64_t> sizes_;
  std::vector<Program> programs_;
  GraphPolicy policy_;
  bool padding_;
  std::string reason_;
  PhaseStats stats_;
  CompiledModel* last_ = nullptr;
};

}  // namespace reprise::engine
