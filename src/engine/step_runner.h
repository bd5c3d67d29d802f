// StepRunner: runs the steps of one phase (decode or prefill) through captured graphs where a size fits, and eagerly
// where none does, counting which and why.
//
// It owns the phase's compiled model, whose heads are what a step may return (logits, or greedy tokens). A size bounds
// a batch; rows between the batch and its size are padding. Where graphs read live sizes (CPU) one capture at the bound
// serves every size; elsewhere every size has its own. Once step times are known, the cheapest of {next size, two
// sizes, eager} is taken wherever padding rows are computed or no size is large enough. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/compiled_model.h"
#include "engine/executor.h"
#include "engine/graph_options.h"
#include "engine/step_costs.h"
#include "engine/step_stage.h"
#include "engine/traffic.h"

namespace reprise::engine {

struct PhaseStats {
  uint64_t steps = 0;
  uint64_t replays = 0;                         // steps that ran captured
  std::map<int64_t, uint64_t> replays_by_size;  // of all captured sizes
  uint64_t padded_rows = 0;  // between batches and their sizes; free where live sizes are read at run time
  uint64_t splits = 0;       // batches run as two sizes
  uint64_t warmups = 0;      // runs before a capture
  std::map<std::string, uint64_t, std::less<>> fallbacks;  // reason -> steps that ran uncaptured
};

struct StepPlan {
  enum class Kind : uint8_t { Replay, Eager, Split } kind = Kind::Eager;
  int64_t size = 0;         // Replay: the captured size
  int64_t first = 0;        // Split: rows of the first part; plan each part anew
  std::string_view reason;  // Eager: why; lives as long as the runner
};

// A size left out at start-up or taken out of service, and why.
struct SizeRemark {
  int64_t size = 0;
  std::string reason;
};

struct StepRunnerParts {
  std::string phase;
  GraphPolicy policy = GraphPolicy::Auto;
  bool padding = true;
  bool choose_by_cost = true;
  bool live_sizes = true;
  int64_t largest = 0;         // bound of a step
  std::vector<int64_t> sizes;  // those that batches are rounded up to, captured all
  std::unique_ptr<CompiledModel> model;
  // Batches above `fused_max` run this one, which nothing is fused in; 0: all run `model`.
  int64_t fused_max = 0;
  std::unique_ptr<CompiledModel> plain;
  std::string reason;               // why nothing is captured; empty when something is
  std::vector<SizeRemark> dropped;  // sizes whose capture failed
  uint64_t warmups = 0;
};

class StepRunner {
 public:
  explicit StepRunner(StepRunnerParts parts);

  // How a batch of `n` tokens (prefill) or sequences (decode) would run. Not allowed to run uncaptured: an error.
  Result<StepPlan> plan(int64_t n) const;
  // Launches it so, without waiting.
  Status launch(const StepPlan& plan, int64_t n, const LiveSizes& live, Stream& stream, StepOutput output);
  // The launched step of this plan is done; it took so long, where that was measured by the runner's clock.
  void finished(const StepPlan& plan, int64_t n, std::optional<double> us);
  // The launched step failed, at once or later, and the stream is idle. A replay that the device refused takes its size
  // out of service and runs eagerly, to its end; any other failure is returned.
  Status fall_back(const StepPlan& plan, const LiveSizes& live, Stream& stream, StepOutput output,
                   const Status& failed);
  // All of this in one call; timed by the host's clock alone.
  Status run(const StepPlan& plan, int64_t n, const LiveSizes& live, Stream& stream, StepOutput output);
  // What a step of so many rows costs, and whether it would run like others.
  RowsCost cost(int64_t n) const;
  // What the last run gave.
  Result<TensorView> output(std::string_view name) const;
  const CompiledModel* last_program() const { return last_; }  // that was launched; null before the first

  // No replay of this size from now on.
  void quarantine(int64_t size, std::string reason);
  const std::map<int64_t, std::string>& quarantined() const { return quarantined_; }
  // Every step runs this program eagerly from now on; it outlives the runner or its last step. For a runner whose own
  // programs compute something else than the model.
  void replace(CompiledModel& program, std::string reason);
  // External inputs have moved, and pools have the sizes in `now` that are not 0.
  Status rebind(const std::unordered_map<std::string, void*>& external, const LiveSizes& now);

  int64_t largest() const { return parts_.largest; }
  GraphMode mode() const { return model().mode(); }
  const std::vector<int64_t>& sizes() const { return parts_.sizes; }
  const std::vector<SizeRemark>& dropped() const { return parts_.dropped; }
  const PhaseStats& stats() const { return stats_; }
  const std::string& uncaptured_reason() const { return parts_.reason; }
  // What a batch of so many rows runs.
  CompiledModel& model(int64_t rows = 1);
  const CompiledModel& model(int64_t rows = 1) const { return const_cast<StepRunner*>(this)->model(rows); }
  // All of them.
  std::vector<const CompiledModel*> models() const;
  // Device graphs recorded since start-up; constant while serving.
  uint64_t captures() const;
  size_t graph_bytes() const;
  size_t planned_bytes() const;  // activations, the larger of the models

  // What the costs are read from.
  StepClock clock() const { return clock_; }
  void set_clock(StepClock clock) { clock_ = clock; }
  StepCosts& costs() { return costs_; }
  const StepCosts& costs() const { return costs_; }
  TrafficHistogram& traffic() { return traffic_; }
  const TrafficHistogram& traffic() const { return traffic_; }

 private:
  // The capture that a step of n rows replays, which is rounded up to this size.
  int64_t capture_key(const CompiledModel& m, int64_t size, int64_t n) const;
  bool plain(int64_t rows) const { return parts_.fused_max > 0 && rows > parts_.fused_max; }
  // Where a batch of n is rounded up to; 0 and the reason when it cannot be replayed.
  int64_t size_of(int64_t n, std::string_view& reason) const;
  void cheapest(int64_t n, StepPlan& plan) const;
  void count_fallback(std::string_view reason);

  StepRunnerParts parts_;
  std::string too_large_;
  std::map<int64_t, std::string> quarantined_;
  CompiledModel* replaced_ = nullptr;
  std::string replaced_reason_;
  PhaseStats stats_;
  StepClock clock_ = StepClock::Host;
  StepCosts costs_;
  TrafficHistogram traffic_;
  CompiledModel* last_ = nullptr;
};

}  // namespace reprise::engine
