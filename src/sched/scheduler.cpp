// Requests and the loop; the pages are in scheduler_pages.cpp, the steps in scheduler_step.cpp and scheduler_run.cpp.
#include "sched/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "sched/model_drafter.h"
#include "sched/request_limits.h"

namespace reprise::sched {
namespace {

// What of the options the executor allows.
SchedulerOptions effective(SchedulerOptions o, engine::Executor& executor) {
  const int64_t most = std::min(executor.max_step_rows(), executor.max_step_tokens());
  o.max_running = o.max_running > 0 ? std::min(o.max_running, most) : most;
  const bool overlaps = o.overlap && executor.overlaps();
  if (executor.has_states() && o.prefix_cache && (!executor.kept_states() || overlaps)) {
    log::notice("no prefix cache (`disable_radix_cache`): the model's states are not kept {}",
                executor.kept_states() ? "where the next step is submitted while one runs (`disable_overlap_schedule`)"
                                       : "for prefixes");
    o.prefix_cache = false;
  }
  if (executor.whole_prompts() && o.prefix_cache) {
    log::info("no prefix cache: a text is computed in one step");
    o.prefix_cache = false;
  }
  // Rows with a token to go are not waited for where none decodes.
  if (executor.pooled_size() > 0) o.mixed_prefill_tokens = o.max_prefill_tokens = executor.max_step_tokens();
  if (o.mixed_prefill_tokens <= 0) o.mixed_prefill_tokens = kMixedPrefillTokens;
  if (o.max_prefill_tokens <= 0) o.max_prefill_tokens = kMaxPrefillTokens;
  return o;
}

}  // namespace

Scheduler::Scheduler(engine::Executor& executor, SchedulerOptions options, Observer* observer)
    : executor_(executor),
      options_(effective(std::move(options), executor)),
      observer_(observer),
      pages_(executor, options_.prefix_cache),
      admission_(options_, pages_, running_),
      image_keys_(executor.vocab_size()),
      mailbox_(options_) {
  start_speculation();
  publish();
}

std::unique_ptr<spec::Drafter> Scheduler::make_drafter() {
  if (options_.drafter) return options_.drafter();
  const spec::SpecOptions& o = options_.speculation;
  if (!spec::drafts_by_model(o.algorithm)) return spec::make_drafter(o);
  engine::Executor* model = executor_.draft();
  if (!model) return nullptr;
  return std::make_unique<ModelDrafter>(
      *model, ModelDrafterOptions{std::max<int64_t>(1, o.draft_tokens - 1), options_.mixed_prefill_tokens,
                                  options_.prefix_cache});
}

void Scheduler::start_speculation() {
  if (options_.speculation.algorithm == spec::Algorithm::None && !options_.drafter) return;
  if (executor_.max_verify_rows() == 0) {
    log::notice("no drafts (`speculative_algorithm` {} is off): {}", algorithm_name(options_.speculation.algorithm),
                executor_.verify_refusal());
    return;
  }
  auto drafter = make_drafter();
  if (!drafter)
    return log::notice("no drafts (`speculative_algorithm` {} is off): no model that drafts was loaded",
                       algorithm_name(options_.speculation.algorithm));
  speculation_ = std::make_unique<Speculation>(executor_, options_.speculation, std::move(drafter), !options_.drafter);
}

Scheduler::~Scheduler() {
  for (Submitted& s : flights_) (void)executor_.wait(s.ticket);
  flights_.clear();
  take_mail();
  for (auto* list : {&running_, &admission_.waiting()})
    for (LivePtr& r : *list) finish(*r, FinishReason::Cancelled, error(Code::Cancelled, "the server is stopping"));
  forget_finished();
}

Status Scheduler::check(const Request& request) const { return check_request(request, executor_); }

bool Scheduler::full(const Request& request) const {
  return !mailbox_.check(static_cast<int64_t>(request.prompt.size()) + most_new_tokens(request, executor_)).is_ok();
}

Result<RequestId> Scheduler::add(Request request) {
  RETURN_IF_ERROR(check(request));
  const int64_t most_new = most_new_tokens(request, executor_);
  // What finds no place takes no numbers of images, and does not count among an adapter's requests.
  RETURN_IF_ERROR(mailbox_.check(static_cast<int64_t>(request.prompt.size()) + most_new));
  request.cache_salt = salt_with(request.adapter, request.cache_salt);
  if (request.adapter) request.adapter->requests.fetch_add(1);
  if (options_.small_priorities_first) request.priority = -request.priority;
  auto live = std::make_unique<LiveRequest>(0, std::move(request), options_.eos_tokens);
  live->most_new_tokens = most_new;
  live->result.arrived = Clock::now();
  if (!live->request.images.empty()) live->image_key = live->request.prompt;
  for (const engine::SequenceImage& i : live->request.images) {
    ASSIGN_OR_RETURN(const int32_t key, image_keys_.key(i.key()));
    std::fill_n(live->image_key.begin() + i.first, i.high * i.wide, key);
  }
  return mailbox_.add(std::move(live));
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats s;
  {
    std::lock_guard lock(stats_mutex_);
    s = stats_;
  }
  const Mailbox::Counts counts = mailbox_.counts();
  s.requests = counts.accepted;
  // The number of running requests is of the last step's end, and some of them may have ended since.
  s.running = std::min(s.running, counts.unfinished);
  s.waiting = counts.unfinished - s.running;
  s.waiting_tokens = counts.waiting_tokens;
  return s;
}

bool Scheduler::take_mail() {
  std::vector<Mail> mail = mailbox_.take();
  for (Mail& m : mail) {
    if (m.request) {
      admission_.add(std::move(m.request));
    } else if (m.cancel) {
      for (auto* list : {&running_, &admission_.waiting()})
        for (LivePtr& r : *list)
          if (m.id == 0 || r->id == m.id)
            finish(*r, FinishReason::Cancelled, error(Code::Cancelled, "the request was cancelled"));
    } else {
      complete_all();  // it may look at the executor, or change it
      m.what();
    }
  }
  forget_finished();
  return !mail.empty();
}

void Scheduler::drop_late() {
  const auto now = Clock::now();
  for (auto* list : {&running_, &admission_.waiting()})
    for (LivePtr& r : *list)
      if (r->request.deadline && *r->request.deadline <= now) {
        r->result.late = true;
        finish(*r, FinishReason::Cancelled, error(Code::Cancelled, "the request's deadline has passed"));
      }
  forget_finished();
}

void Scheduler::finish(LiveRequest& r, FinishReason reason, Status status) {
  if (r.result.finish != FinishReason::None) return;
  r.result.finish = reason;
  r.result.status = std::move(status);
  r.result.finished = Clock::now();
  // After an error the pages may hold anything.
  const bool good = r.result.status.is_ok() || r.result.status.code() == Code::Cancelled;
  if (!good) r.sequence.set_cached(r.shared_pages * kv::kPageTokens);
  pages_.give_back(r);
  if (speculation_) speculation_->end(r);
  mailbox_.ended(r);
  // The observer first: a sink that is told of the end may read the numbers.
  if (observer_) observer_->finished(r.request, r.result);
  r.request.sink->finished(r.result);
}

// Requests of a step that still runs stay until it is done.
void Scheduler::forget_finished() {
  const auto ended = [&](LivePtr& r) {
    if (r->result.finish == FinishReason::None) return false;
    const auto takes_part = [&](const Submitted& s) {
      return std::find(s.batch.owners.begin(), s.batch.owners.end(), r.get()) != s.batch.owners.end();
    };
    const auto last = std::find_if(flights_.rbegin(), flights_.rend(), takes_part);
    if (last != flights_.rend()) last->parted.push_back(std::move(r));
    return true;
  };
  for (auto* list : {&running_, &admission_.waiting()}) std::erase_if(*list, ended);
}

void Scheduler::preempt(LiveRequest& victim) {
  pages_.give_back(victim);
  ++victim.result.preemptions;
  const auto it = std::find_if(running_.begin(), running_.end(), [&](const LivePtr& r) { return r.get() == &victim; });
  CHECK(it != running_.end());
  LivePtr r = std::move(*it);
  running_.erase(it);
  r->request.sink->preempted();
  admission_.add(std::move(r));
  std::lock_guard lock(stats_mutex_);
  ++stats_.preemptions;
}

// Whether there was mail.
bool Scheduler::begin_step(Clock::time_point begin) {
  {
    std::lock_guard lock(stats_mutex_);
    stats_.step_since = begin;
  }
  const bool mail = take_mail();
  drop_late();
  return mail;
}

void Scheduler::end_step() {
  if (flights_.empty()) {
    std::lock_guard lock(stats_mutex_);
    stats_.step_since.reset();
  }
  publish();
}

bool Scheduler::propose() {
  const auto begin = Clock::now();
  const bool mail = begin_step(begin);
  const bool worked = submit_next(begin);
  rested_ = !worked;
  return worked || mail || !admission_.waiting().empty();
}

void Scheduler::conclude() {
  complete_all();
  end_step();
}

bool Scheduler::step() {
  const auto begin = Clock::now();
  const bool mail = begin_step(begin);
  bool worked = true;
  if (flights_.empty()) {
    worked = submit_next(begin);
    if (!options_.overlap || !executor_.overlaps()) {
      if (worked) submit_run();
      complete_all();
    }
  } else {
    if (options_.overlap && executor_.overlaps()) {
      SpecOff no_drafts = SpecOff::None;
      if (const OverlapStop stop = stop_of_overlap(no_drafts); stop == OverlapStop::None)
        submit_ahead(no_drafts);
      else
        count_stop(stop);
    }
    // One stays, and runs while the next batch is formed.
    if (!flights_.empty()) complete_first();
    while (flights_.size() > 1) complete_first();
  }
  rested_ = !worked;
  end_step();
  return worked || mail || !admission_.waiting().empty();
}

void Scheduler::run() {
  while (!mailbox_.stopped())
    if (!step()) mailbox_.wait();
}

void Scheduler::publish() {
  std::lock_guard lock(stats_mutex_);
  stats_.running = static_cast<int64_t>(running_.size());
  pages_.publish(stats_);
  stats_.decode_steps = most_decode_steps();
  if (!speculation_) return;
  stats_.speculation = speculation_->stats();
  stats_.speculation.on = true;
  stats_.speculation.algorithm = options_.speculation.algorithm;
}

Status Scheduler::check_integrity() const {
  RETURN_IF_ERROR(pages_.check_integrity(running_, admission_.waiting(), flights_.empty()));
  const Mailbox::Counts counts = mailbox_.counts();
  const int64_t known = static_cast<int64_t>(running_.size() + admission_.waiting().size()) + counts.unread;
  if (known != counts.unfinished)
    return error(Code::Internal, "{} requests are known, {} are unfinished", known, counts.unfinished);
  return Status::ok();
}

}  // namespace reprise::sched
