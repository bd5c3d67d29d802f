// ReplayCheck: every so many replayed steps, the same step also uncaptured and unfused, compared bit for bit. Where the
// device's fused kernels are not exact (FusionBound), it is the same passes that are compared bit for bit, and the
// unfused run within the bound.
//
// The eager run comes first and says what the outputs and every cache page of the step's sequences must be; a second
// eager run with other tokens spoils what the step writes; then the replay must put all of it right again. So a replay
// that computes something else, writes elsewhere, or does not write, is seen, regardless of the device's cache layout
// is. On a difference the sequences' caches are computed anew from their tokens (same bits, see docs/tour.md), so that
// serving goes on with the right answer, and a report with everything needed to reproduce it is written. Owned by an
// engine; one thread at a time. Allocates when a check is due, never otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "compile/compiled_model.h"
#include "device/host_copy.h"
#include "engine/fusion_bound.h"
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
};

class ReplayCheck {
 public:
  // The unfused models of both phases, and how far the fused ones may be from them. `every` >= 1.
  ReplayCheck(int64_t every, std::unique_ptr<CompiledModel> decode, std::unique_ptr<CompiledModel> prefill,
              FusionBound bound)
      : every_(every), decode_(std::move(decode)), prefill_(std::move(prefill)), fusions_(std::move(bound)) {}

  // Counts a replay; true for every N-th.
  bool due() { return ++replays_ % every_ == 0; }

  // Before the replay of `replayed`: what it must give. Leaves the step staged.
  Status begin(CompiledModel& replayed, StepOutput output, bool decode, std::span<const StepItem> items,
               const kv::KvPool& pool, StepStage& stage, Stream& stream);
  // After it: what differs.
  Result<std::optional<ReplayDifference>> compare(const CompiledModel& replayed, std::span<const StepItem> items,
                                                  const kv::KvPool& pool, Stream& stream);
  // After a difference and recover(): whether `replayed` launched one by one is wrong as well, so that the fault lies
  // in what the passes made of the model. Leaves the caches to be recovered again where it is. Exact fusions only.
  Result<bool> are_passes_wrong(CompiledModel& replayed, StepOutput output, std::span<const StepItem> items,
                                const kv::KvPool& pool, StepStage& stage, Stream& stream);
  // After a difference: the caches of all sequences of the step by `prefill`, and the step itself by `model`, from
  // their tokens, launched one by one.
  static Status recover(CompiledModel& prefill, CompiledModel& model, StepOutput output,
                        std::span<const StepItem> items, const kv::KvPool& pool, int64_t chunk, StepStage& stage,
                        Stream& stream);
  const FusionBound& bound() const { return fusions_.bound(); }
  CompiledModel& shadow(bool decode) { return *(decode ? decode_ : prefill_); }

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
  // Of every page of the step's sequences, per layer.
  Result<std::vector<uint64_t>> digest(std::span<const StepItem> items, const kv::KvPool& pool, Stream& stream);
  Device& device() const { return prefill_->device(); }

  int64_t every_;
  std::unique_ptr<CompiledModel> decode_, prefill_;
  int64_t replays_ = 0;
  std::vector<Expected> outputs_, unfused_;  // unfused_: where that is another run
  FusionTally fusions_;
  std::vector<uint64_t> pages_;
  HostCopy copy_;
};

// Writes the report under a name of its own and returns the path.
Result<std::string> write_replay_report(const std::string& folder, int64_t step, const OrderedJson& report);

}  // namespace reprise::engine
