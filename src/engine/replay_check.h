// ReplayCheck: every so many replayed steps, the same step also uncaptured and unfused, compared bit for bit. Where the
// device's fused kernels are not exact (FusionBound), it is the same passes that are compared bit for bit, and the
// unfused run within the bound.
//
// The eager run comes first and says what the outputs, every cache page and the states of the step's sequences must be;
// a second eager run with other tokens spoils what the step writes; then the replay must put all of it right again. A
// step may run so often because it reads nothing of what it writes: keys and values are written by position, and a
// state is read from one slot and written to another (kv/state_pool.h). The check does not ask
// models::CacheSpec::idempotent: the number of slots follows from that field, and they take turns once a step. So a
// replay that computes something else, writes elsewhere, or does not write, is seen, regardless of the device's cache
// layout.
// On a difference the sequences' caches are computed anew from their tokens (same bits, see docs/tour.md), so that
// serving goes on with the right answer, and a report with everything needed to reproduce it is written. Over ranks the
// front drives a check, and every rank runs, keeps and compares what is its own. Owned by an engine; one thread at a
// time. Allocates when a check is due, never otherwise.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "compile/compiled_model.h"
#include "device/host_copy.h"
#include "engine/fusion_bound.h"
#include "engine/phases.h"
#include "engine/step_runner.h"
#include "engine/step_stage.h"
#include "kv/kv_pool.h"

namespace reprise::engine {

// Where the first difference is and how large the largest.
struct ReplayDifference {
  std::string what;  // "logits row 3 column 17: replay 0.25, eager 0.5", "kv.2: ..."
  double max_abs_diff = 0;
  uint64_t elements = 0;
  bool fusion = false;  // replayed and launched one by one the step is the same; it is the unfused one that differs
  std::string op = {};  // what wrote it last
  int64_t node = -1;    // ... by its number
  int rank = 0;         // whose it is

  std::string text() const;  // for another rank
  static Result<ReplayDifference> parse(std::string_view text, int rank);
  // Of what every rank found, by rank and empty where nothing differs: the first, which names the others.
  static Result<std::optional<ReplayDifference>> first_of(std::span<const std::string> found);
};

// A run that a check asks for, the same on all ranks: launched one by one, with what is staged.
struct CheckRun {
  enum class Keep : uint8_t { Nothing, Expected, Unfused };
  size_t phase = 0;
  int64_t size = 0;      // the captured size whose program it is ...
  bool unfused = false;  // ... or the unfused one
  StepOutput output = StepOutput::Logits;
  Keep keep = Keep::Nothing;  // what its outputs and caches are to the check
};
using CheckLaunch = std::function<Status(const CheckRun& run, const LiveSizes& live)>;

// Where a step leaves something: pages, and slots of states.
struct StepPlaces {
  std::vector<kv::PageId> pages;
  std::vector<kv::SlotId> slots;
};
StepPlaces places_of(std::span<const StepItem> items);
// The same from what is staged, for a rank that has no sequences.
Result<StepPlaces> staged_places(const StepStage& stage, const LiveSizes& live, const PoolSizes& pools);

// Where what a step leaves behind lies.
struct StepCaches {
  const kv::KvPool& pool;
  const kv::StatePool& states;

  PoolSizes sizes() const { return {pool.total_pages(), states.slots(), 0, pool.scratch_pages()}; }
};

class ReplayCheck {
 public:
  using Shadows = std::array<std::unique_ptr<CompiledModel>, kPhaseCount>;
  // The unfused models of the phases, and how far the fused ones may be from them. `every` >= 1.
  ReplayCheck(int64_t every, Shadows shadows, FusionBound bound)
      : every_(every), shadows_(std::move(shadows)), fusions_(std::move(bound)) {}

  // Counts a replay; true for every N-th.
  bool due() { return ++replays_ % every_ == 0; }

  // Before a replay of the step, the front's part: runs what says what it must give. `replayed` is its program. Leaves
  // the step staged.
  Status begin(CheckRun replayed, std::span<const StepItem> items, const PoolSizes& pools, StepStage& stage,
               const CheckLaunch& launch) const;
  // Each rank's part: what a run of `model` gave and left is what the replay must give and leave.
  Status keep(CheckRun::Keep as, const CompiledModel& model, StepOutput output, StepPlaces places,
              const StepCaches& caches, Stream& stream);
  // After the replay: what differs on this rank.
  Result<std::optional<ReplayDifference>> compare(const CompiledModel& replayed, const StepCaches& caches,
                                                  Stream& stream);
  // After a difference, the front's part: the caches of all sequences of the step, by prefill's program where `step` is
  // not the unfused one, and the step itself from their tokens.
  static Status recover(const CheckRun& step, std::span<const StepItem> items, const PoolSizes& pools, int64_t chunk,
                        StepStage& stage, const CheckLaunch& launch);
  const FusionBound& bound() const { return fusions_.bound(); }
  CompiledModel& shadow(size_t phase) { return *shadows_[phase]; }

  Status rebind(const std::unordered_map<std::string, void*>& external);

 private:
  struct Expected {
    std::string name;
    TensorView view;
    std::vector<uint8_t> bytes;
  };
  Result<std::vector<Expected>> outputs_of(const CompiledModel& model, StepOutput output, Stream& stream);
  // What the rows that were asked for say about the fusions; empty when they keep to the bound.
  std::string judge_fusions();
  // Digests of every page of the step's sequences, and of the states behind it, by cache. Read at places_.
  Result<std::vector<uint64_t>> digest(const StepCaches& caches, Stream& stream);
  Device& device() const { return shadows_.front()->device(); }

  int64_t every_;
  Shadows shadows_;
  int64_t replays_ = 0;
  std::vector<Expected> outputs_, unfused_;  // unfused_: where that is another run
  FusionTally fusions_;
  StepPlaces places_;
  std::vector<uint64_t> left_;  // what digest() gave
  HostCopy copy_;
};

// Writes the report under a name of its own and returns the path.
Result<std::string> write_replay_report(const std::string& folder, int64_t step, const OrderedJson& report);

}  // namespace reprise::engine
