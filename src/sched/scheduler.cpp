// Mail, bounds and the loop; the pages are in scheduler_pages.cpp, the steps in scheduler_step.cpp.
#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/elapsed.h"
#include "base/log.h"
#include "sched/model_drafter.h"

namespace reprise::sched {
namespace {

struct PolicyName {
  Policy policy;
  std::string_view name;
};
constexpr PolicyName kPolicies[] = {{Policy::Fcfs, "fcfs"},
                                    {Policy::LongestPrefix, "lpm"},
                                    {Policy::DfsWeight, "dfs-weight"},
                                    {Policy::Random, "random"},
                                    {Policy::LongestOutput, "lof"}};

int64_t tokens_of(const LiveRequest& r) { return r.result.prompt_tokens + r.most_new_tokens; }

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

std::string_view overlap_stop_name(OverlapStop why) {
  constexpr std::string_view kNames[] = {"", "host_draw", "grammar", "penalties", "preemption", "drafts"};
  static_assert(std::size(kNames) == static_cast<size_t>(OverlapStop::kCount));
  return kNames[static_cast<size_t>(why)];
}

std::string_view run_stop_name(RunStop why) {
  constexpr std::string_view kNames[] = {"",          "waiting", "prompt", "host_draw", "grammar",
                                         "penalties", "pages",   "ended",  "failed"};
  static_assert(std::size(kNames) == static_cast<size_t>(RunStop::kCount));
  return kNames[static_cast<size_t>(why)];
}

int64_t retry_after_s(const SchedulerStats& s) {
  if (s.tokens_per_s <= 0) return 1;
  const double wait = std::ceil(static_cast<double>(s.waiting_tokens) / s.tokens_per_s);
  return static_cast<int64_t>(std::clamp(wait, 1.0, static_cast<double>(kLongestRetry)));
}

Scheduler::Scheduler(engine::Executor& executor, SchedulerOptions options, Observer* observer)
    : executor_(executor),
      image_keys_(executor.vocab_size()),
      options_(effective(std::move(options), executor)),
      observer_(observer),
      pages_(executor, options_.prefix_cache),
      admission_(options_, pages_, running_) {
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

// Images lie in the prompt, one behind the other, and the executor takes them.
Status Scheduler::check_images(const Request& request) const {
  int64_t end = 0;
  for (const engine::SequenceImage& i : request.images) {
    const int64_t most = executor_.max_image_rows(), count = i.high * i.wide;
    if (most == 0) return error(Code::Unsupported, "this model reads no images");
    if (count < 1 || count > most) return invalid("an image of {} tokens; allowed: 1 to {}", count, most);
    if (!i.input || i.first < end || i.first + count > static_cast<int64_t>(request.prompt.size()))
      return error(Code::Internal, "an image at token {} of {}", i.first, request.prompt.size());
    end = i.first + count;
  }
  return Status::ok();
}

Status Scheduler::check(const Request& request) const {
  const int64_t vocab = executor_.vocab_size(), context = executor_.context_length();
  const auto size = static_cast<int64_t>(request.prompt.size());
  if (!request.sink) return invalid("a request needs a sink");
  if (size == 0) return invalid("the prompt is empty; at least one token is needed");
  const bool pooled = executor_.pooled_size() > 0;
  if (pooled && size > context) return invalid("the text is {} tokens long and the context {}", size, context);
  if (executor_.whole_prompts() && size > executor_.max_step_tokens())
    return invalid("the text is {} tokens long, and a step computes {} (`chunked_prefill_size`)", size,
                   executor_.max_step_tokens());
  if (request.score_from) {
    if (pooled) return error(Code::Unsupported, "this model gives vectors or scores of texts, and predicts no tokens");
    if (*request.score_from < 1 || *request.score_from >= size)
      return invalid("a prompt of {} tokens scored from {} on; allowed: 1 to the last", size, *request.score_from);
    if (size > context) return invalid("the text is {} tokens long and the context {}", size, context);
  } else if (!pooled && size >= context) {
    return invalid("the prompt is {} tokens long and the context {}: there is no room for an answer", size, context);
  }
  for (int32_t id : request.prompt)
    if (id < 0 || id >= vocab)
      return invalid("the prompt holds token {}, which is not in the vocabulary (0 to {})", id, vocab - 1);
  RETURN_IF_ERROR(check_images(request));
  const int64_t pages = executor_.kv_pool().total_pages();
  if (kv::pages_for(size - (request.score_from ? 1 : 0)) > pages)
    return error(Code::Invalid,
                 "the prompt of {} tokens needs {} KV pages of {} tokens, but the pool has {} (`max_total_tokens`, "
                 "`mem_fraction_static`)",
                 size, kv::pages_for(size), kv::kPageTokens, pages);
  return request.sampling.check(vocab);
}

// The last token that is generated needs no place in the cache.
int64_t Scheduler::most_new_tokens(const Request& request) const {
  if (executor_.pooled_size() > 0 || request.score_from) return 0;
  const auto size = static_cast<int64_t>(request.prompt.size());
  const int64_t room =
      std::min(executor_.context_length() - size, executor_.kv_pool().total_pages() * kv::kPageTokens - size + 1);
  return std::min(request.sampling.max_new_tokens, room);
}

Status Scheduler::place_for(int64_t tokens) const {
  if (closed_) return error(Code::Busy, "the server is shutting down and takes no new requests");
  const int64_t most = options_.max_running + options_.max_queued;
  if (unfinished_.load() >= most)
    return error(Code::Busy, "{} requests are running or waiting, which is the most this server holds", most);
  if (options_.max_queued_tokens > 0 && queued_ > 0 && queued_tokens_ + tokens > options_.max_queued_tokens)
    return error(Code::Busy, "the waiting requests may take {} tokens, and this one {}; at most {} may wait",
                 queued_tokens_, tokens, options_.max_queued_tokens);
  return Status::ok();
}

bool Scheduler::full(const Request& request) const {
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + most_new_tokens(request);
  std::lock_guard lock(mutex_);
  return !place_for(tokens).is_ok();
}

Result<RequestId> Scheduler::add(Request request) {
  RETURN_IF_ERROR(check(request));
  const int64_t most_new = most_new_tokens(request);
  request.cache_salt = salt_with(request.adapter, request.cache_salt);
  if (request.adapter) request.adapter->requests.fetch_add(1);
  if (options_.small_priorities_first) request.priority = -request.priority;
  auto live = std::make_unique<LiveRequest>(0, std::move(request), options_.eos_tokens);
  live->most_new_tokens = most_new;
  live->result.arrived = Clock::now();
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(lost_);
  const int64_t tokens = tokens_of(*live);
  RETURN_IF_ERROR(place_for(tokens));
  if (!live->request.images.empty()) live->image_key = live->request.prompt;
  for (const engine::SequenceImage& i : live->request.images) {
    ASSIGN_OR_RETURN(const int32_t key, image_keys_.key(i.key()));
    std::fill_n(live->image_key.begin() + i.first, i.high * i.wide, key);
  }
  const RequestId id = last_id_ == 0 ? options_.first_id : last_id_ + options_.id_step;
  last_id_ = id;
  live->id = live->result.id = id;
  ++queued_;
  queued_tokens_ += tokens;
  ++stats_.requests;
  unfinished_.fetch_add(1);
  mail_.push_back({id, std::move(live), {}, false});
  wake();
  return id;
}

void Scheduler::cancel(RequestId id) {
  std::lock_guard lock(mutex_);
  mail_.push_back({id, nullptr, {}, true});
  wake();
}

void Scheduler::cancel_all() { cancel(0); }

void Scheduler::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

void Scheduler::post(std::function<void()> what) {
  std::lock_guard lock(mutex_);
  mail_.push_back({0, nullptr, std::move(what), false});
  wake();
}

SchedulerStats Scheduler::stats() const {
  std::lock_guard lock(mutex_);
  SchedulerStats s = stats_;
  // The number of running requests is of the last step's end, and some of them may have ended since.
  const int64_t unfinished = unfinished_.load();
  s.running = std::min(s.running, unfinished);
  s.waiting = unfinished - s.running;
  s.waiting_tokens = queued_tokens_;
  return s;
}

bool Scheduler::take_mail() {
  std::vector<Mail> mail;
  {
    std::lock_guard lock(mutex_);
    mail.swap(mail_);
  }
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
  {
    std::lock_guard lock(mutex_);
    if (!r.result.admitted) {
      --queued_;
      queued_tokens_ -= tokens_of(r);
    }
    unfinished_.fetch_sub(1);
  }
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
  std::lock_guard lock(mutex_);
  ++stats_.preemptions;
}

void Scheduler::wake() {
  wake_.notify_all();
  if (options_.bell) options_.bell->ring();
}

// Whether there was mail.
bool Scheduler::begin_step(Clock::time_point begin) {
  {
    std::lock_guard lock(mutex_);
    stats_.step_since = begin;
  }
  const bool mail = take_mail();
  drop_late();
  return mail;
}

void Scheduler::end_step() {
  if (flights_.empty()) {
    std::lock_guard lock(mutex_);
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
  wake();
}

bool Scheduler::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

Status Scheduler::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

void Scheduler::publish() {
  std::lock_guard lock(mutex_);
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
  std::lock_guard lock(mutex_);
  int64_t unfinished = static_cast<int64_t>(running_.size() + admission_.waiting().size());
  for (const Mail& m : mail_) unfinished += m.request != nullptr;
  if (unfinished != unfinished_.load())
    return error(Code::Internal, "{} requests are known, {} are unfinished", unfinished, unfinished_.load());
  return Status::ok();
}

}  // namespace reprise::sched
