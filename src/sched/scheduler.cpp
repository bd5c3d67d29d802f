// Mail, bounds and the loop; the pages are in scheduler_pages.cpp, the steps in scheduler_step.cpp.
#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/elapsed.h"
#include "base/log.h"

namespace reprise::sched {
namespace {

// What one step counts for beside the next one, in the recent rate.
constexpr double kFading = 0.95;

struct PolicyName {
  Policy policy;
  std::string_view name;
};
constexpr PolicyName kPolicies[] = {{Policy::Fcfs, "fcfs"},
                                    {Policy::LongestPrefix, "lpm"},
                                    {Policy::DfsWeight, "dfs-weight"},
                                    {Policy::Random, "random"},
                                    {Policy::LongestOutput, "lof"}};

// A larger priority first, then who came first.
bool before(const LivePtr& a, const LivePtr& b) {
  return a->request.priority != b->request.priority ? a->request.priority > b->request.priority : a->id < b->id;
}

int64_t tokens_of(const LiveRequest& r) { return r.result.prompt_tokens + r.most_new_tokens; }

}  // namespace

Result<Policy> parse_policy(std::string_view name) {
  for (const PolicyName& p : kPolicies)
    if (p.name == name) return p.policy;
  return invalid("\"{}\" is not a schedule policy; allowed: fcfs, lpm, dfs-weight, random, lof", name);
}

std::string_view policy_name(Policy policy) {
  for (const PolicyName& p : kPolicies)
    if (p.policy == policy) return p.name;
  return "?";
}

int64_t retry_after_s(const SchedulerStats& s) {
  if (s.tokens_per_s <= 0) return 1;
  const double wait = std::ceil(static_cast<double>(s.waiting_tokens) / s.tokens_per_s);
  return static_cast<int64_t>(std::clamp(wait, 1.0, static_cast<double>(kLongestRetry)));
}

Scheduler::Scheduler(engine::Executor& executor, SchedulerOptions options, Observer* observer)
    : executor_(executor), options_(std::move(options)), observer_(observer), cache_(executor.kv_pool()) {
  const int64_t most = std::min(executor.max_step_rows(), executor.max_step_tokens());
  options_.max_running = options_.max_running > 0 ? std::min(options_.max_running, most) : most;
  if (options_.mixed_prefill_tokens <= 0) options_.mixed_prefill_tokens = kMixedPrefillTokens;
  if (options_.max_prefill_tokens <= 0) options_.max_prefill_tokens = kMaxPrefillTokens;
  executor_.set_while_running([this] { prepare_next(); });
  publish();
}

Scheduler::~Scheduler() {
  executor_.set_while_running(nullptr);
  take_mail();
  for (auto* list : {&running_, &waiting_})
    for (LivePtr& r : *list) finish(*r, FinishReason::Cancelled, error(Code::Cancelled, "the server is stopping"));
  forget_finished();
}

Status Scheduler::check(const Request& request) const {
  const int64_t vocab = executor_.vocab_size(), context = executor_.context_length();
  const auto size = static_cast<int64_t>(request.prompt.size());
  if (!request.sink) return invalid("a request needs a sink");
  if (size == 0) return invalid("the prompt is empty; at least one token is needed");
  if (size >= context)
    return invalid("the prompt is {} tokens long and the context {}: there is no room for an answer", size, context);
  for (int32_t id : request.prompt)
    if (id < 0 || id >= vocab)
      return invalid("the prompt holds token {}, which is not in the vocabulary (0 to {})", id, vocab - 1);
  const int64_t pages = executor_.kv_pool().total_pages();
  if (kv::pages_for(size) > pages)
    return error(Code::Invalid,
                 "the prompt of {} tokens needs {} KV pages of {} tokens, but the pool has {} (--max-total-tokens, "
                 "--mem-fraction-static)",
                 size, kv::pages_for(size), kv::kPageTokens, pages);
  return request.sampling.check(vocab);
}

Result<RequestId> Scheduler::add(Request request) {
  RETURN_IF_ERROR(check(request));
  const auto size = static_cast<int64_t>(request.prompt.size());
  // The last token that is generated needs no place in the cache.
  const int64_t room =
      std::min(executor_.context_length() - size, executor_.kv_pool().total_pages() * kv::kPageTokens - size + 1);
  if (options_.small_priorities_first) request.priority = -request.priority;
  auto live = std::make_unique<LiveRequest>(0, std::move(request), options_.eos_tokens);
  live->most_new_tokens = std::min(live->request.sampling.max_new_tokens, room);
  live->result.arrived = Clock::now();
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(lost_);
  if (closed_) return error(Code::Busy, "the server is shutting down and takes no new requests");
  const int64_t most = options_.max_running + options_.max_queued;
  if (unfinished_.load() >= most)
    return error(Code::Busy, "{} requests are running or waiting, which is the most this server holds", most);
  const int64_t tokens = tokens_of(*live);
  if (options_.max_queued_tokens > 0 && queued_ > 0 && queued_tokens_ + tokens > options_.max_queued_tokens)
    return error(Code::Busy, "the waiting requests may take {} tokens, and this one {}; at most {} may wait",
                 queued_tokens_, tokens, options_.max_queued_tokens);
  const RequestId id = ++last_id_;
  live->id = live->result.id = id;
  ++queued_;
  queued_tokens_ += tokens;
  ++stats_.requests;
  unfinished_.fetch_add(1);
  mail_.push_back({id, std::move(live), {}, false});
  wake_.notify_one();
  return id;
}

void Scheduler::cancel(RequestId id) {
  std::lock_guard lock(mutex_);
  mail_.push_back({id, nullptr, {}, true});
  wake_.notify_one();
}

void Scheduler::cancel_all() { cancel(0); }

void Scheduler::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

void Scheduler::post(std::function<void()> what) {
  std::lock_guard lock(mutex_);
  mail_.push_back({0, nullptr, std::move(what), false});
  wake_.notify_one();
}

SchedulerStats Scheduler::stats() const {
  std::lock_guard lock(mutex_);
  SchedulerStats s = stats_;
  s.waiting = unfinished_.load() - s.running;
  s.waiting_tokens = queued_tokens_;
  return s;
}

void Scheduler::enqueue(LivePtr r) {
  const auto at = std::upper_bound(waiting_.begin(), waiting_.end(), r, before);
  waiting_.insert(at, std::move(r));
}

// The new requests of the mail, up to what is not one: nothing overtakes.
void Scheduler::take_requests() {
  std::vector<Mail> mail;
  {
    std::lock_guard lock(mutex_);
    const auto end = std::find_if(mail_.begin(), mail_.end(), [](const Mail& m) { return !m.request; });
    mail.assign(std::make_move_iterator(mail_.begin()), std::make_move_iterator(end));
    mail_.erase(mail_.begin(), end);
  }
  for (Mail& m : mail) enqueue(std::move(m.request));
}

// A step is on the device. Whoever takes part in it keeps its pages until it is through, so cancellations, deadlines
// and preemption wait; who comes new takes only what nobody uses.
void Scheduler::prepare_next() {
  const auto begin = Clock::now();
  take_requests();
  admit(false);
  beside_s_ = seconds_of(Clock::now() - begin);
}

bool Scheduler::take_mail() {
  std::vector<Mail> mail;
  {
    std::lock_guard lock(mutex_);
    mail.swap(mail_);
  }
  for (Mail& m : mail) {
    if (m.request) {
      enqueue(std::move(m.request));
    } else if (m.cancel) {
      for (auto* list : {&running_, &waiting_})
        for (LivePtr& r : *list)
          if (m.id == 0 || r->id == m.id)
            finish(*r, FinishReason::Cancelled, error(Code::Cancelled, "the request was cancelled"));
    } else {
      m.what();
    }
  }
  forget_finished();
  return !mail.empty();
}

void Scheduler::drop_late() {
  const auto now = Clock::now();
  for (auto* list : {&running_, &waiting_})
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
  give_back_pages(r);
  {
    std::lock_guard lock(mutex_);
    if (!r.result.admitted) {
      --queued_;
      queued_tokens_ -= tokens_of(r);
    }
    unfinished_.fetch_sub(1);
  }
  // The observer first: whoever hears of the end may look at the numbers.
  if (observer_) observer_->finished(r.request, r.result);
  r.request.sink->finished(r.result);
}

void Scheduler::forget_finished() {
  for (auto* list : {&running_, &waiting_})
    std::erase_if(*list, [](const LivePtr& r) { return r->result.finish != FinishReason::None; });
}

void Scheduler::preempt(LiveRequest& victim) {
  give_back_pages(victim);
  ++victim.result.preemptions;
  const auto it = std::find_if(running_.begin(), running_.end(), [&](const LivePtr& r) { return r.get() == &victim; });
  CHECK(it != running_.end());
  LivePtr r = std::move(*it);
  running_.erase(it);
  r->request.sink->preempted();
  enqueue(std::move(r));
  std::lock_guard lock(mutex_);
  ++stats_.preemptions;
}

bool Scheduler::step() {
  const auto begin = Clock::now();
  {
    std::lock_guard lock(mutex_);
    stats_.step_since = begin;
  }
  const bool mail = take_mail();
  drop_late();
  admit(true);
  const bool enough = provide_pages();
  Batch batch =
      form_batch(running_, {executor_.max_step_tokens(), executor_.max_step_rows(), options_.mixed_prefill_tokens,
                            options_.max_prefill_tokens, options_.prefill_requests});
  if (batch.items.empty()) {
    CHECK(running_.empty() && (waiting_.empty() || !enough), "{} requests run and none takes part in a step",
          running_.size());
    {
      std::lock_guard lock(mutex_);
      stats_.step_since.reset();
    }
    publish();
    return mail || !waiting_.empty();
  }
  StepRecord record;
  record.begin = begin;
  record.decode_tokens = batch.decode_tokens;
  record.prefill_tokens = batch.prefill_tokens;
  record.sequences = static_cast<int64_t>(batch.items.size());
  parts_.clear();
  for (size_t i = 0; observer_ && i < batch.items.size(); ++i) {
    const LiveRequest& r = *batch.owners[i];
    parts_.push_back({r.id, batch.items[i].count, r.decodes() && r.result.completion_tokens > 0});
  }
  record.parts = parts_;
  record.forming_s = seconds_of(Clock::now() - begin);
  beside_s_ = 0;
  run_batch(batch);
  record.beside_s = beside_s_;
  forget_finished();
  record.end = Clock::now();
  {
    std::lock_guard lock(mutex_);
    stats_.step_since.reset();
    ++stats_.steps;
    stats_.busy_s += seconds_of(record.end - begin);
    recent_tokens_ = kFading * recent_tokens_ + static_cast<double>(batch.decode_tokens + batch.prefill_tokens);
    recent_s_ = kFading * recent_s_ + seconds_of(record.end - begin);
    stats_.tokens_per_s = recent_s_ > 0 ? recent_tokens_ / recent_s_ : 0;
  }
  if (observer_) observer_->stepped(record);
  publish();
  return true;
}

void Scheduler::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (stopped_) return;
    }
    if (step()) continue;
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stopped_ || !mail_.empty(); });
  }
}

void Scheduler::stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  wake_.notify_all();
}

Status Scheduler::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

void Scheduler::publish() {
  const kv::KvPool& pool = executor_.kv_pool();
  std::lock_guard lock(mutex_);
  stats_.running = static_cast<int64_t>(running_.size());
  stats_.pages = pool.total_pages();
  stats_.free_pages = pool.free_pages();
  stats_.cached_pages = cache_.held_pages();
  stats_.evictable_pages = cache_.evictable_pages();
  stats_.evicted_pages = cache_.evicted_pages();
}

Status Scheduler::check_integrity() const {
  const kv::KvPool& pool = executor_.kv_pool();
  RETURN_IF_ERROR(pool.check_integrity());
  RETURN_IF_ERROR(cache_.check_integrity());
  std::set<kv::PageId> own;
  for (const LivePtr& r : running_) {
    const auto& pages = r->sequence.pages();
    if (kv::pages_for(r->sequence.cached()) > static_cast<int64_t>(pages.size()))
      return error(Code::Internal, "request {} has {} pages for {} tokens", r->id, pages.size(), r->sequence.cached());
    if (r->shared_pages > static_cast<int64_t>(pages.size()) || (r->shared_pages > 0) != static_cast<bool>(r->lease))
      return error(Code::Internal, "request {} shares {} pages {} a lease", r->id, r->shared_pages,
                   r->lease ? "with" : "without");
    for (size_t i = static_cast<size_t>(r->shared_pages); i < pages.size(); ++i)
      if (!pool.in_use(pages[i]) || !own.insert(pages[i]).second)
        return error(Code::Internal, "page {} of request {} is not its own", pages[i], r->id);
  }
  for (const LivePtr& r : waiting_)
    if (!r->sequence.pages().empty() || r->lease)
      return error(Code::Internal, "request {} waits and holds pages", r->id);
  const int64_t all = pool.free_pages() + cache_.held_pages() + static_cast<int64_t>(own.size());
  if (all != pool.total_pages())
    return error(Code::Internal, "of {} pages {} are free, {} cached and {} in sequences", pool.total_pages(),
                 pool.free_pages(), cache_.held_pages(), own.size());
  std::lock_guard lock(mutex_);
  int64_t unfinished = static_cast<int64_t>(running_.size() + waiting_.size());
  for (const Mail& m : mail_) unfinished += m.request != nullptr;
  if (unfinished != unfinished_.load())
    return error(Code::Internal, "{} requests are known, {} are unfinished", unfinished, unfinished_.load());
  return Status::ok();
}

}  // namespace reprise::sched
