// Scheduler: continuous batching on one executor.
//
// One thread drives it (step(), or run() until stop()) and alone touches sequences, pages and the prefix cache. Others
// put requests and cancellations into its mailbox (sched/mailbox.h).
// A step takes the mail, drops what was cancelled or is too late, admits what fits, forms a batch of decoding rows and
// parts of prompts, runs it, and hands out the tokens. When pages run out, the prefix cache gives up what no request
// uses; then a request is preempted: it starts over later from what it had ("recompute"; the same bits). A failed step
// ends the requests that took part in it, a lost device ends all.
//
// Overlap: where the executor computes by itself, the next batch is formed and submitted while the current one runs,
// and the tokens of the current one are handed out afterwards. Rows whose token the device chooses take part in the
// next batch before it is known; a row whose request turns out to have ended was computed for nothing. The next batch
// waits for the current one where the host draws a token of it, where a grammar or penalties need the token before the
// next one can be drawn, and for preemption and posted work.
//
// Runs of decode steps: where the executor takes more than two steps, those behind the next batch are submitted with
// it, with the same rows, and the host has nothing to do between them. All their tokens are handed out before the batch
// after them is formed, so a request that comes, or is cancelled, waits for the end of the run. A run is shorter when a
// request waits already.
//
// Speculation (sched/speculation.h): a decoding row may bring drafts, which the step computes as further rows. They are
// judged in order, each by the token that is drawn before it, so an answer is what it is without them.
//
// Fair share: of the waiting requests with the highest priority, those whose call (Request::call) has the fewest
// sequences running go first. When nothing is free for them, a call with at least two sequences more gives one up. So
// a call with many answers or prompts runs alone at full width, and its neighbours never wait for its end.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/executor.h"
#include "sched/admission.h"
#include "sched/batch.h"
#include "sched/image_keys.h"
#include "sched/live_request.h"
#include "sched/mailbox.h"
#include "sched/observer.h"
#include "sched/page_budget.h"
#include "sched/request.h"
#include "sched/scheduler_options.h"
#include "sched/speculation.h"

namespace reprise::sched {

class Scheduler {
 public:
  // The executor and the observer outlive it.
  Scheduler(engine::Executor& executor, SchedulerOptions options, Observer* observer = nullptr);
  // Ends what is left with Cancelled. Not while another thread is in run().
  ~Scheduler();

  // Any thread. Whether add() would take it, but for the queue's length.
  Status check(const Request& request) const;
  // Any thread. Whether add() would refuse it with Busy now.
  bool full(const Request& request) const;
  // Any thread. Refused: Invalid (the request cannot be served, and why), Busy (the queue is full, or draining).
  Result<RequestId> add(Request request);
  // Any thread. The request ends with Cancelled at the next step, unless it ends before that. Unknown ids are ignored.
  void cancel(RequestId id) { mailbox_.cancel(id); }
  void cancel_all() { mailbox_.cancel(0); }
  // Any thread. Nothing new is accepted from now on.
  void close() { mailbox_.close(); }
  // Any thread: runs `what` on the scheduler's thread, between steps.
  void post(std::function<void()> what) { mailbox_.post(std::move(what)); }
  SchedulerStats stats() const;
  bool idle() const { return mailbox_.counts().unfinished == 0; }
  // Any thread. DeviceLost after a step that met it: all requests have ended with that, run() returns, and nothing is
  // accepted any more. Else ok.
  Status lost() const { return mailbox_.lost(); }

  // The scheduler's thread. False when there was nothing to do. With overlap a step may still run when it returns.
  bool step();
  // Its two halves, for a step that several schedulers share (sched/together.h): submits a batch, if there is one, and
  // waits for it. Whether there was anything to do.
  bool propose();
  void conclude();
  // Waits for the steps that still run, and hands out what they gave.
  void complete_in_flight() { complete_all(); }
  // Steps until stop(), sleeping while there is nothing to do.
  void run();
  void stop() { mailbox_.stop(); }  // any thread
  bool stopped() const { return mailbox_.stopped(); }
  // The scheduler's thread, after run(): where `lost` is not ok, another scheduler's device is lost, and with it the
  // server; what is left here ends with that.
  void share_loss(const Status& lost);

  // The scheduler's thread. What the cache can give up; the pages it held.
  int64_t flush_cache();
  // The scheduler's thread, for tests. Pages are owned once, leases and sequences agree, no request is lost.
  Status check_integrity() const;

 private:
  // A batch that the executor has.
  struct Submitted {
    Batch batch;
    engine::Ticket ticket = 0;
    engine::StepOutput output = engine::StepOutput::Logits;
    std::vector<int64_t> ends;  // of each item: its sequence's cached tokens once the step is done, without drafts
    std::vector<engine::HostDraw> draws;  // of each item: why the host draws its tokens
    std::vector<StepPart> parts;          // for the observer
    std::vector<LivePtr> parted;          // of its requests, those that have ended meanwhile
    // Pages that were copied for it stay as they are: a step that fails may have its copies made once more.
    std::vector<kv::RadixCache::Lease> copied;
    Clock::time_point begin;
    double forming_s = 0, overlap_s = 0;
    bool rested = false;  // there was nothing to do before it
  };

  bool take_mail();
  bool begin_step(Clock::time_point begin);
  void end_step();
  void drop_late();
  void admit(bool may_preempt);
  bool admit_one(LiveRequest& r);
  bool make_room(const LiveRequest& r);
  bool provide_pages(bool may_preempt);
  void preempt(LiveRequest& victim);
  BatchLimits limits() const;
  bool submit_next(Clock::time_point begin);
  OverlapStop stop_of_overlap(SpecOff& no_drafts);
  OverlapStop stop_of_tokens(const Submitted& now) const;
  int64_t most_decode_steps() const;
  RunStop stop_of_run() const;
  bool somebody_waits() const;
  RunStop submit_behind();
  void submit_run();
  void count_stop(OverlapStop why);
  engine::HostDraw plan_draw(const LiveRequest& r, engine::StepItem& item, int64_t& room) const;
  void submit_ahead(SpecOff no_drafts);
  using Draws = std::array<uint64_t, static_cast<size_t>(engine::HostDraw::kCount)>;  // by who makes them
  Draws plan_output(Batch& batch, Submitted& s) const;
  bool submit(Batch batch, Clock::time_point begin);
  void complete_first();
  void complete_all();
  std::unique_ptr<spec::Drafter> make_drafter();
  void start_speculation();
  bool failed_before(const Batch& batch) const;
  void fail(const Batch& batch, const Status& why);
  void fail_all(const Status& why);
  void end_with(const Status& lost);
  void take_rows(const Submitted& step, const engine::StepResult& result);
  void give_row(LiveRequest& r, int64_t end, const engine::StepResult& result, size_t row);
  void judge_rows(LiveRequest& r, const Submitted& step, size_t i, const engine::StepResult& result, size_t row);
  static Result<SampledToken> take_token(LiveRequest& r, const engine::StepResult& result, size_t row);
  Result<SampledToken> sample_row(LiveRequest& r, const engine::StepResult& result, size_t at);
  Status take_prompt_rows(LiveRequest& r, int64_t begin, int64_t count, std::span<float> logits);
  void take_scores(LiveRequest& r, int64_t end, std::span<const float> logits);
  void accept(LiveRequest& r, SampledToken token, int64_t end);
  void keep_states(const Submitted& step);
  void finish(LiveRequest& r, FinishReason reason, Status status = {});
  void forget_finished();
  void publish();

  engine::Executor& executor_;
  SchedulerOptions options_;
  Observer* observer_;
  std::unique_ptr<Speculation> speculation_;  // null: there is none

  // The scheduler's thread.
  PageBudget pages_;
  std::vector<LivePtr> running_;             // in the order of arrival
  Admission admission_;                      // with the requests that wait
  std::deque<Submitted> flights_;            // in the order of submission
  bool rested_ = true;                       // nothing was done since the last step
  Clock::time_point last_end_;               // of a step
  double recent_tokens_ = 0, recent_s_ = 0;  // of the last steps, each counting less than the next

  // Shared.
  ImageKeys image_keys_;
  Mailbox mailbox_;
  mutable std::mutex stats_mutex_;
  SchedulerStats stats_;
};

}  // namespace reprise::sched
