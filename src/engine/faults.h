// Faults: errors put into replays on purpose (--inject-fault), so that the checks that should catch them can be tested.
//
// A fault waits until the first step at or after its own in which it can be done, and happens once. The eager path is
// never touched: it is the answer key. Owned by an engine; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step_stage.h"

namespace reprise::engine {

enum class FaultKind : uint8_t {
  PaddingLeak,  // a padding row writes its key and value over those of a real token
  StaleInput,   // the replay sees the tokens of the step before
  WrongLength,  // the first sequence is one key shorter than it is
  BitFlip,      // one bit of a launch's first result element turns
  Alloc,        // the n-th capture runs out of memory (n is the fault's step)
  KernelError,  // the replay fails on the device
  Hang,         // the replay never ends
};

struct Fault {
  FaultKind kind = FaultKind::BitFlip;
  int64_t step = 1;              // counted from 1 over the engine's steps; for Alloc over its captures
  std::optional<uint32_t> node;  // for BitFlip and KernelError: the launch by its node number; the last one by default
  std::optional<int> rank = {};  // of several, where it happens; for BitFlip, Alloc and Hang. All of them by default

  bool is_of(int some_rank) const { return !rank || *rank == some_rank; }
};

// "KIND@STEP", "KIND@STEP:NODE", either with "/RANK" behind; the error names the kinds.
Result<Fault> parse_fault(std::string_view text);
std::string_view fault_name(FaultKind kind);

class FaultInjector {
 public:
  // Those of a rank. Its captures are its own; what happens in a step is chosen by the front, for all ranks.
  explicit FaultInjector(std::vector<Fault> faults, int rank = 0) : faults_(std::move(faults)) {
    std::erase_if(faults_, [&](const Fault& f) { return f.kind == FaultKind::Alloc ? !f.is_of(rank) : rank != 0; });
  }
  bool any() const { return !faults_.empty(); }

  // Whether the next capture fails.
  bool fails_capture();

  // Call before every step that is about to be replayed, after staging: spoils the inputs. `rows` are the sequence
  // parts of the step.
  void spoil(int64_t step, std::span<const StepItem> items, const StepStage& stage, LiveSizes& live);
  // The fault of this replay itself, BitFlip or KernelError.
  std::optional<Fault> take_launch_fault(int64_t step);
  // After every step: what StaleInput will bring back.
  void remember(const StepStage& stage, const LiveSizes& live);

 private:
  std::vector<Fault> faults_;
  std::vector<int32_t> last_tokens_;
  int64_t captures_ = 0;
};

}  // namespace reprise::engine
