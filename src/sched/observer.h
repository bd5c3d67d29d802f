// Observer: sees what the scheduler does, for metrics and traces. Called on the scheduler's thread. Observers: several
// of them as one; they outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sched/request.h"
#include "spec/options.h"

namespace reprise::sched {

// What a step did for one request.
struct StepPart {
  RequestId request = 0;
  int64_t tokens = 0;
  bool decodes = false;  // or reads a piece of its prompt
};

struct StepRecord {
  Clock::time_point begin, end;
  int64_t decode_tokens = 0, prefill_tokens = 0;
  int64_t sequences = 0;
  double forming_s = 0;                           // of it, before the engine was called
  double overlap_s = 0;                           // of it, spent on forming and submitting the next step
  int64_t draft_tokens = 0, accepted_tokens = 0;  // drafts, and those of them that came true
  std::optional<double> gap_s;                    // the device had nothing to do before it, although there was work
  std::span<const StepPart> parts;                // valid during the call
};

// Why the next batch waited for the current one.
enum class OverlapStop : uint8_t {
  None,
  HostDraw,   // the host draws a token
  Grammar,    // what may come next depends on the token before
  Penalties,  // likewise
  Preemption,
  Drafts,  // what is drafted next depends on the token before
  kCount
};
std::string_view overlap_stop_name(OverlapStop why);  // "host_draw", ...

// Why a run of decode steps, which are submitted at once, had no more of them.
enum class RunStop : uint8_t {
  None,
  Waiting,    // a request waits for a place or to be cancelled, or work between steps waits
  Prompt,     // a prompt is read
  HostDraw,   // the host draws a token
  Grammar,    // what may come next depends on the token before
  Penalties,  // likewise
  Pages,      // the pool has no page for a further token
  Ended,      // every answer gets its last token
  Failed,     // a step was refused
  kCount
};
std::string_view run_stop_name(RunStop why);  // "waiting", ...

// Why a step of decoding rows verified no drafts, where there is a drafter.
enum class SpecOff : uint8_t {
  None,
  Batch,         // the step has no rows left
  NoMatch,       // nothing to guess from
  Cost,          // measured times say that it does not pay, or are not known yet
  Pages,         // no page for a draft
  Grammar,       // the grammar forbids what was guessed
  PromptInStep,  // the step reads a prompt as well
  Quarantined,   // a step of more rows would not run captured
  Request,       // the request has one token to go, or wants no drafts
  Logprobs,      // its log-probabilities follow from a mask or penalties that change with each token
  Border,        // the next token's state is kept for others
  kCount
};
std::string_view spec_off_name(SpecOff why);  // "batch", "no match", ...

// Totals of speculative decoding.
struct SpeculationStats {
  bool on = false;
  spec::Algorithm algorithm = spec::Algorithm::None;
  uint64_t drafts = 0;  // steps that verified drafts, counted for each sequence
  uint64_t draft_tokens = 0, accepted_tokens = 0;
  DraftPlaces places = {};
  uint64_t steps = 0, rows = 0;                                      // steps with drafts, and their rows
  std::array<uint64_t, static_cast<size_t>(SpecOff::kCount)> off{};  // steps without them, by reason
  double drafting_s = 0;

  SpeculationStats& operator+=(const SpeculationStats& other);
};

// Gauges and totals since the start.
struct SchedulerStats {
  int64_t running = 0, waiting = 0, waiting_tokens = 0;
  int64_t pages = 0, free_pages = 0, cached_pages = 0, evictable_pages = 0;
  uint64_t steps = 0, requests = 0, preemptions = 0, evicted_pages = 0, failed_steps = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;               // cached: of the prompt tokens
  uint64_t device_draws = 0;                                                         // tokens that a device chose
  std::array<uint64_t, static_cast<size_t>(engine::HostDraw::kCount)> host_draws{};  // and the host, by reason
  std::array<uint64_t, static_cast<size_t>(OverlapStop::kCount)> overlap_stops{};    // steps, by reason
  // Decode steps that were submitted behind each other at once, and why there were no more of them.
  int64_t decode_steps = 1;                        // at most
  uint64_t decode_runs = 0, decode_run_steps = 0;  // of two steps or more
  std::array<uint64_t, static_cast<size_t>(RunStop::kCount)> run_stops{};
  uint64_t rows_for_nothing = 0;  // of answers that had ended when the row was computed
  uint64_t answer_steps = 0;      // steps that gave tokens of an answer, counted for each answer
  SpeculationStats speculation;
  double busy_s = 0;        // in steps
  double tokens_per_s = 0;  // of the last steps, prompts and answers together; 0: nothing has run yet
  std::optional<Clock::time_point> step_since;  // a step is running since then
};

// When a client that found the queue full may try again: the time that the waiting tokens take at the recent rate, in
// whole seconds from 1 to kLongestRetry.
constexpr int64_t kLongestRetry = 60;
int64_t retry_after_s(const SchedulerStats& stats);

class Observer {
 public:
  virtual ~Observer() = default;
  // The results of a step are here: requests hear of theirs next, and stepped() tells of the step when all have.
  virtual void completing() {}
  virtual void stepped(const StepRecord& step) {}
  virtual void finished(const Request& request, const RequestResult& result) {}
  // Before any request hears of it; no step follows.
  virtual void lost_device(const Status& why) {}
};

class Observers final : public Observer {
 public:
  explicit Observers(std::vector<Observer*> list) : list_(std::move(list)) {}
  void completing() override {
    for (Observer* o : list_) o->completing();
  }
  void stepped(const StepRecord& step) override {
    for (Observer* o : list_) o->stepped(step);
  }
  void finished(const Request& request, const RequestResult& result) override {
    for (Observer* o : list_) o->finished(request, result);
  }
  void lost_device(const Status& why) override {
    for (Observer* o : list_) o->lost_device(why);
  }

 private:
  std::vector<Observer*> list_;
};

}  // namespace reprise::sched
