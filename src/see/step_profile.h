// StepProfile: one step of a model, run many times as it always runs, with every thread's kernels and waits timed.
//
// The steps are real ones: sequences with the wanted context, the phase's own graphs. What is shown is the repeat of
// median length; a node's time is the median over the repeats. Untimed steps are measured as well, so that what timing
// itself costs is known. A plain value; nodes are numbered as in CompiledModel::node().
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "device/trace.h"
#include "engine/engine.h"
#include "see/node_cost.h"
#include "see/phase_view.h"

namespace reprise::see {

struct ProfileOptions {
  std::string phase = "decode";
  int64_t batch = 1;      // sequences
  int64_t context = 128;  // decode: keys of each sequence; prefill: tokens of each prompt
  int64_t repeat = 21;
};

struct NodeTime {
  uint32_t node = 0;
  double busy_s = 0;  // in its kernel, mean over the threads
  double wait_s = 0;  // waiting to begin it, mean over the threads
  double span_s = 0;  // from the first thread's begin to the last thread's end
  NodeCost cost;
  double meet_s = 0;  // of a collective's busy_s: in its second part, where ranks of the CPU wait for each other
};

struct TrackEvent {
  int track = 0;
  TraceEvent event;
};

struct StepProfile {
  ProfileOptions options;
  StepSizes sizes;
  int tracks = 0;
  double step_s = 0;         // of steps that are not timed inside
  double timed_step_s = 0;   // of those that are
  double host_s = 0;         // of the step shown: before its first and after its last event
  double finish_wait_s = 0;  // waiting for the other threads at the end of replays, mean over the threads
  std::vector<NodeTime> nodes;
  std::vector<TrackEvent> events;  // of the step shown, in the order of each track; by the front's clock
  int64_t begin_ns = 0, end_ns = 0;
  MachineSpeed machine;  // the caller's to fill; limits are zero without it

  double busy_s() const;
  double wait_s() const;  // with finish_wait_s
  double limit_s() const;
  // Why shares of the limit are left out: the machine was busy while its limits were measured, or the step beat them.
  // Empty when they hold.
  std::string warning() const;
  // Percent of the limit that `cost` took in `span_s`; nullopt where no limit applies, or where none holds. The limit
  // is that of all threads, also of a launch that had a part of them beside another stream.
  std::optional<double> share(const NodeCost& cost, double span_s) const;
};

Result<StepProfile> profile_step(engine::Engine& engine, const ProfileOptions& options);

// The same steps of a model over several ranks in this process, as one of the ranks ran them.
struct RankProfile {
  int rank = 0;
  StepProfile profile;
  const CompiledModel* model = nullptr;  // the rank's engine has it
};
// By rank; the first engine is the front, which drives the steps while the others follow.
Result<std::vector<RankProfile>> profile_ranks(std::span<engine::Engine* const> ranks, const ProfileOptions& options);

struct OpTime {
  std::string op;
  int count = 0;
  double busy_s = 0, wait_s = 0, span_s = 0, meet_s = 0, bytes = 0, flops = 0, limit_s = 0;
  bool collective = false;
  bool has_limit = false;
  std::optional<double> share;  // percent of the limit, as StepProfile::share()
};
// A share for people: "cache" where no limit applies, "-" where none holds.
std::string share_text(bool has_limit, const std::optional<double>& share);
// Summed by op, the longest first.
std::vector<OpTime> by_op(const StepProfile& profile, const CompiledModel& model);

// The step shown as a Chrome trace (also read by Perfetto): one track a thread, one for the host.
OrderedJson chrome_trace(const StepProfile& profile, const CompiledModel& model, const std::string& title);
// The trace of several ranks has a process for each, on one clock. The meeting of a collective is a span of its own.
OrderedJson chrome_trace(std::span<const RankProfile> ranks, const std::string& title);
// The figures, without the events.
OrderedJson profile_json(const StepProfile& profile, const CompiledModel& model);
std::string profile_text(const StepProfile& profile, const CompiledModel& model);

}  // namespace reprise::see
