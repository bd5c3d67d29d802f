// OpBench: one op at one dtype, compiled the way models are, and timed against its parts.
//
// A side is a graph with several copies of the call after each other (a replay's one wake-up would otherwise be most of
// what is measured), with its own arena; inputs and, where both want the same layout, parameters are shared. Parts are
// what the op's meaning traces; a single op has none. Both are captured whole and replayed in alternation. Where the
// device's time is modelled, one replay tells all: the time of a call is what twice as many of them take longer, so
// that what a step costs besides (copying the inputs, the replay's call) counts on neither side. One thread; the
// platform must outlive it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "compile/compiled_model.h"
#include "measurement/cache_probe.h"
#include "measurement/machine_probe.h"
#include "measurement/op_cases.h"

namespace reprise::measurement {

struct OpLimit {
  double us = 0;
  double bytes = 0;
  std::string by;  // the cache level whose bandwidth it is, or "instructions"
};

struct OpTimes {
  double fused_us = 0;
  std::optional<double> unfused_us;  // none for a single op
  // Launched one by one; only where time is modelled.
  std::optional<double> eager_fused_us, eager_unfused_us;
};

class OpBench {
 public:
  // Unsupported when the device has no kernel for the op at this dtype.
  static Result<std::unique_ptr<OpBench>> make(const OpCase& c, DType dtype, const nn::FusedOps& fused,
                                               const Platform& platform);
  ~OpBench();

  // The operands at so many tokens: "[4, 4096], [4, 128] f32".
  std::string shape(int64_t tokens) const;
  // Replays both sides once; an error names the output that differs in a bit.
  Status check(int64_t tokens);
  // Replays the op itself exactly so many times, for programs that count instructions. Each replay has calls() calls.
  Status replay(int64_t tokens, int64_t times);
  int64_t calls() const { return copies_; }
  // Medians of up to `repeat` samples of each side.
  Result<OpTimes> measure(int64_t tokens, int64_t repeat);
  // What this machine needs at best: operands and results over the bandwidth of where they lie, or the instructions
  // that the parts are made of at the peak rate. Of a device that is modelled only the bytes are known.
  OpLimit limit(int64_t tokens, const MachineSpeed& machine, const CacheSpeeds& caches) const;

 private:
  struct Side;
  OpBench() = default;
  void fill();
  // Where tokens go to experts, as many as run: the tokens of a step decide which experts are read. Of one sequence,
  // where it ends.
  void route(int64_t tokens);
  void end_sequence(int64_t tokens);
  // To its end.
  Status replay_once(CompiledModel& model, int64_t tokens, const LiveSizes& live);
  Result<double> sample(Side& side, int64_t tokens, int64_t replays);
  Result<double> modelled_us(Side& once, Side& twice, int64_t tokens, bool captured);
  Result<OpTimes> modelled(int64_t tokens);

  OpCase case_;
  const OpSchema* op_ = nullptr;
  DType dtype_ = DType::BF16;
  int64_t copies_ = 1;
  Device* device_ = nullptr;
  Staging staging_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Side> fused_, parts_;
  std::unique_ptr<Side> fused_twice_, parts_twice_;  // with twice as many calls; only where time is modelled
};

}  // namespace reprise::measurement
