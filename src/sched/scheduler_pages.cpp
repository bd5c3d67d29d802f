// Pages: who is admitted, what the prefix cache gives and gets, and who goes when there are none left.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/split_mix.h"
#include "sched/scheduler.h"

namespace reprise::sched {
namespace {

// Under LongestPrefix: a request that has waited so long is next, also without a prefix in the cache.
constexpr auto kLongestWait = std::chrono::seconds(5);
// Under LongestPrefix: longer queues are not ordered by prefixes, as in SGLang.
constexpr size_t kMostPrefixRanks = 128;
// How many waiting requests are looked at for the next one.
constexpr size_t kLookAhead = 128;
// It pays to wait for the prompt of another request when that saves more tokens than this.
constexpr int64_t kWorthWaiting = 32;

// Its last token is computed in any case: the next token comes of that row.
std::span<const int32_t> reusable(const LiveRequest& r) {
  return r.key().first(static_cast<size_t>(r.sequence.size() - 1));
}

}  // namespace

// Whether a prompt that begins alike is being read: soon the cache knows more than `known` tokens of this one.
bool Scheduler::better_soon(const LiveRequest& r, int64_t known) const {
  const auto tokens = reusable(r);
  for (const LivePtr& other : running_) {
    if (other->prompt_cached || other->request.cache_salt != r.request.cache_salt) continue;
    const auto size = other->sequence.size();
    int64_t shared = kv::common_prefix(other->key(), tokens);
    if (keeps_states()) {
      const int64_t last = last_state_border(other->sequence);
      shared = shared >= last ? last : shared / kKeptStateTokens * kKeptStateTokens;
    } else if (!other->request.several) {
      shared = std::min(shared, size / kv::kPageTokens * kv::kPageTokens);
    }
    if (shared > known + kWorthWaiting) return true;
  }
  return false;
}

// The order of the waiting requests by the policy, for the admissions that follow.
void Scheduler::rank_waiting() {
  Policy policy = options_.policy;
  // As in SGLang: without a prefix cache, and with a long queue, prefixes do not order it.
  const bool by_prefix = policy == Policy::LongestPrefix || policy == Policy::DfsWeight;
  if (by_prefix && !options_.prefix_cache) policy = Policy::Fcfs;
  if (policy == Policy::LongestPrefix && waiting_.size() > kMostPrefixRanks) policy = Policy::Fcfs;
  if (policy == Policy::DfsWeight) return rank_by_tree();
  const auto now = Clock::now();
  bool first = true;
  for (const LivePtr& r : waiting_) {
    switch (policy) {
      case Policy::Random: r->rank = static_cast<int64_t>(split_mix(split_mix(options_.seed) + ++draws_) >> 1); break;
      case Policy::LongestOutput: r->rank = -r->request.sampling.max_new_tokens; break;
      case Policy::LongestPrefix:
        r->rank = first && now - r->result.arrived > kLongestWait ? INT64_MIN
                  : r->wants_prompt()                             ? 0
                                      : -cache_.known_tokens(r->request.cache_salt, reusable(*r));
        break;
      default: r->rank = 0;
    }
    first = false;
  }
}

void Scheduler::rank_by_tree() {
  std::vector<kv::RadixCache::Key> keys;
  keys.reserve(waiting_.size());
  for (const LivePtr& r : waiting_) keys.push_back({r->request.cache_salt, reusable(*r)});
  const std::vector<size_t> order = cache_.depth_first_order(keys);
  for (size_t i = 0; i < order.size(); ++i) waiting_[order[i]]->rank = static_cast<int64_t>(i);
}

void Scheduler::count_running() {
  running_by_call_.clear();
  for (const LivePtr& r : running_) ++running_by_call_[r->call()];
}

int64_t Scheduler::running_of(const LiveRequest& r) const {
  const auto it = running_by_call_.find(r.call());
  return it == running_by_call_.end() ? 0 : it->second;
}

// The next request to admit is of the highest priority; among these the call with the fewest sequences running goes
// first, then the policy's order, then that of arrival. A request whose prompt begins like one that is being read waits
// for that one.
std::vector<LivePtr>::iterator Scheduler::next_waiting() {
  size_t looked = 0;
  std::vector<std::vector<LivePtr>::iterator> order;
  for (auto begin = waiting_.begin(); begin != waiting_.end() && looked < kLookAhead;) {
    const int64_t priority = (*begin)->request.priority;
    const auto end =
        std::find_if(begin, waiting_.end(), [&](const LivePtr& r) { return r->request.priority != priority; });
    order.clear();
    for (auto it = begin; it != end; ++it) order.push_back(it);
    const auto key = [&](const std::vector<LivePtr>::iterator& it) {
      return std::tuple(running_of(**it), (*it)->rank, (*it)->id);
    };
    const auto most = order.begin() + static_cast<ptrdiff_t>(std::min(order.size(), kLookAhead - looked));
    std::partial_sort(order.begin(), most, order.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    for (auto it = order.begin(); it != most; ++it, ++looked) {
      const LiveRequest& r = ***it;
      if (!options_.prefix_cache || r.wants_prompt()) return *it;
      if (!better_soon(r, cache_.known_tokens(r.request.cache_salt, reusable(r)))) return *it;
    }
    begin = end;
  }
  return waiting_.end();
}

// One page for everybody who may soon begin a new one; without them the next steps would preempt whom we admit.
int64_t Scheduler::pages_to_keep() const {
  int64_t keep = 0;
  for (const LivePtr& r : running_) {
    const int64_t end = r->result.prompt_tokens + r->most_new_tokens - 1;
    keep += kv::pages_for(end) > static_cast<int64_t>(r->sequence.pages().size());
  }
  return keep;
}

void Scheduler::admit(bool may_preempt) {
  if (waiting_.empty()) return;
  const auto full = [&] { return static_cast<int64_t>(running_.size()) >= options_.max_running; };
  if (full() && !may_preempt) return;
  count_running();
  const bool shared = options_.preemption_threshold || running_by_call_.size() < running_.size();
  if (full() && !shared) return;
  rank_waiting();
  while (!waiting_.empty() && (may_preempt || !full())) {
    const auto next = next_waiting();
    if (next == waiting_.end()) break;
    if (full() || !admit_one(**next)) {
      // In order: who must wait for pages holds back those behind it, so none can starve.
      if (may_preempt && make_room(**next)) continue;
      break;
    }
    LivePtr r = std::move(*next);
    waiting_.erase(next);
    ++running_by_call_[r->call()];
    const auto by_arrival = [](const LivePtr& a, const LivePtr& b) { return a->id < b->id; };
    running_.insert(std::upper_bound(running_.begin(), running_.end(), r, by_arrival), std::move(r));
  }
  forget_finished();
}

// How many pages are missing for it now.
int64_t Scheduler::pages_short(const LiveRequest& r) {
  kv::RadixCache::Match match;
  if (options_.prefix_cache && !r.wants_prompt()) match = cache_.match(r.request.cache_salt, reusable(r));
  match.partial_lease.reset();
  const int64_t need = kv::pages_for(r.sequence.size()) - static_cast<int64_t>(match.pages.size());
  return need + pages_to_keep() - executor_.kv_pool().free_pages() - cache_.evictable_pages();
}

// Who is preempted next for a waiting request: of those whose priority is smaller by more than the threshold the least
// important, else the youngest sequence of the call that runs the most, if that is at least two more than the waiting
// request's call. Null: no one.
LiveRequest* Scheduler::victim_for(const LiveRequest& r, const std::vector<LiveRequest*>& chosen) const {
  LiveRequest* less_important = nullptr;
  LiveRequest* of_largest = nullptr;
  auto left = running_by_call_;
  for (const LiveRequest* v : chosen) --left[v->call()];
  for (const LivePtr& v : running_) {
    if (std::find(chosen.begin(), chosen.end(), v.get()) != chosen.end()) continue;
    const int64_t difference = r.request.priority - v->request.priority;
    if (options_.preemption_threshold && difference > *options_.preemption_threshold &&
        (!less_important || v->request.priority <= less_important->request.priority))
      less_important = v.get();
    // The list is in the order of arrival, so the last one that is as good is the youngest.
    if (difference >= 0 && left[v->call()] >= running_of(r) + 2 &&
        (!of_largest || left[v->call()] >= left[of_largest->call()]))
      of_largest = v.get();
  }
  return less_important ? less_important : of_largest;
}

// Preempts what it takes to admit the request, or no one when that would not do.
bool Scheduler::make_room(const LiveRequest& r) {
  int64_t pages = pages_short(r);
  int64_t slots = static_cast<int64_t>(running_.size()) + 1 - options_.max_running;
  std::vector<LiveRequest*> chosen;
  while (pages > 0 || slots > 0) {
    LiveRequest* victim = victim_for(r, chosen);
    if (!victim) return false;
    chosen.push_back(victim);
    pages -= static_cast<int64_t>(victim->sequence.pages().size()) - victim->shared_pages;
    --slots;
  }
  if (chosen.empty()) return false;
  for (LiveRequest* victim : chosen) {
    --running_by_call_[victim->call()];
    victim->rank = INT64_MAX;  // behind those that it made room for
    preempt(*victim);
  }
  return true;
}

// False: there are not enough pages now.
bool Scheduler::admit_one(LiveRequest& r) {
  kv::KvPool& pool = executor_.kv_pool();
  kv::RadixCache::Match match;
  if (options_.prefix_cache && !r.wants_prompt()) match = cache_.match(r.request.cache_salt, reusable(r));
  const auto shared = static_cast<int64_t>(match.pages.size());
  const int64_t need = kv::pages_for(r.sequence.size()) - shared;
  const auto available = [&] { return pool.free_pages() + cache_.evictable_pages(); };
  if (available() < need) match.partial_lease.reset();  // a copy for which there are no pages
  if (available() < need + pages_to_keep()) return false;
  if (pool.free_pages() < need) cache_.evict(need - pool.free_pages());
  auto fresh = pool.allocate(need);
  CHECK(fresh.is_ok(), "{}", fresh.status().message());
  int64_t cached = match.tokens;
  Status copied;
  if (match.partial_lease) {
    copied = executor_.copy_page(match.partial_page, fresh->front());
    cached += match.partial_tokens;
    if (executor_.overlaps()) copied_.push_back(std::move(match.partial_lease));
  }
  auto& pages = r.sequence.pages();
  pages = std::move(match.pages);
  pages.insert(pages.end(), fresh->begin(), fresh->end());
  r.shared_pages = shared;
  r.lease = std::move(match.lease);
  r.sequence.set_cached(cached);
  if (match.state != kv::kZeroSlot) r.sequence.begin_with(match.state);
  r.checked = cached;
  r.prompt_cached = !options_.prefix_cache;
  if (r.result.admitted) {
    r.request.sink->resumed();
  } else {
    r.result.admitted = Clock::now();
    r.result.cached_tokens = cached;
    r.request.sink->admitted(cached);
    std::lock_guard lock(mutex_);
    --queued_;
    queued_tokens_ -= r.result.prompt_tokens + r.most_new_tokens;
    stats_.prompt_tokens += static_cast<uint64_t>(r.result.prompt_tokens);
    stats_.cached_tokens += static_cast<uint64_t>(cached);
  }
  if (!copied.is_ok()) finish(r, FinishReason::Cancelled, copied.at("copying a page of the prefix cache"));
  return true;
}

// Whether a waiting request would have a running one preempted, if no step were running.
bool Scheduler::would_preempt() {
  if (waiting_.empty()) return false;
  count_running();
  const auto next = next_waiting();
  return next != waiting_.end() && victim_for(**next, {}) != nullptr;
}

// A request that decodes gets the page that its next token begins, if it begins one. False: a request was preempted for
// it, or must be.
bool Scheduler::provide_pages(bool may_preempt) {
  kv::KvPool& pool = executor_.kv_pool();
  bool all = true;
  for (size_t i = 0; i < running_.size(); ++i) {
    LiveRequest& r = *running_[i];
    auto& pages = r.sequence.pages();
    if (kv::pages_for(r.sequence.size()) <= static_cast<int64_t>(pages.size())) continue;
    if (pool.free_pages() == 0 && cache_.evict(1) == 0) {
      if (!may_preempt) return false;
      // The least important, then of the call that runs the most, then the latest arrival; perhaps this one.
      count_running();
      const auto key = [&](const LivePtr& v) {
        return std::tuple(v->request.priority, -running_of(*v), std::numeric_limits<RequestId>::max() - v->id);
      };
      const auto victim = std::min_element(running_.begin(), running_.end(),
                                           [&](const LivePtr& a, const LivePtr& b) { return key(a) < key(b); });
      CHECK(running_.size() > 1, "one request of {} tokens does not fit into {} pages", r.sequence.size(),
            pool.total_pages());
      preempt(**victim);
      all = false;
      i = static_cast<size_t>(-1);  // the list has changed
      continue;
    }
    auto page = pool.allocate(1);
    CHECK(page.is_ok(), "{}", page.status().message());
    pages.push_back(page->front());
  }
  return all;
}

// Others may begin with the same prompt while this one is still answering.
void Scheduler::share_prompt(LiveRequest& r) {
  r.prompt_cached = true;
  if (keeps_states()) return cache_states(r, r.checked);
  const auto cached = r.key().first(static_cast<size_t>(r.checked));
  auto in = cache_.insert(r.request.cache_salt, cached, r.sequence.pages(), r.shared_pages, false);
  r.shared_pages = in.pages;
  r.lease = std::move(in.lease);
  kv::KvPool& pool = executor_.kv_pool();
  if (!r.request.several || r.checked % kv::kPageTokens == 0 || pool.free_pages() == 0) return;
  // The rest of the prompt lies in a page that this request goes on writing: the others get a copy.
  auto copy = pool.allocate(1);
  CHECK(copy.is_ok());
  const Status copied = executor_.copy_page(r.sequence.pages()[static_cast<size_t>(r.shared_pages)], copy->front());
  if (!copied.is_ok()) {
    pool.release(*copy);
    log::warning("a prompt is not shared to its end: {}", copied.message());
    return;
  }
  std::vector<kv::PageId> pages(r.sequence.pages().begin(), r.sequence.pages().begin() + r.shared_pages);
  pages.push_back(copy->front());
  cache_.insert(r.request.cache_salt, cached, pages, r.shared_pages, true);
}

// Keeps the states behind borders of pages of a finished step's requests, before anything else is done with them.
void Scheduler::keep_states(const Submitted& step) {
  for (size_t i = 0; i < step.batch.items.size(); ++i) {
    LiveRequest& r = *step.batch.owners[i];
    const int64_t end = step.ends[i];
    if (r.result.finish != FinishReason::None || end % kv::kPageTokens != 0 || end != r.sequence.cached()) continue;
    const bool in_prompt = r.sequence.uncached() > 0;
    const bool lasting = end % kKeptStateTokens == 0 || (in_prompt && end == last_state_border(r.sequence));
    if (lasting || !in_prompt) keep_state(r, end, !lasting);
  }
}

void Scheduler::keep_state(LiveRequest& r, int64_t tokens, bool until_next) {
  kv::StatePool& states = *executor_.kept_states();
  if (!r.kept.empty() && r.kept.back().until_next) {
    states.forget(r.kept.back().slot);
    r.kept.pop_back();
  }
  auto slot = states.keep(r.sequence.states());
  if (!slot && cache_.evict_state()) slot = states.keep(r.sequence.states());
  if (!slot) return;
  r.sequence.begin_with(*slot);
  r.kept.push_back({tokens, *slot, until_next});
}

// The cache gets the states that are kept behind checked tokens, with the pages up to each; the others are forgotten.
void Scheduler::cache_states(LiveRequest& r, int64_t checked) {
  for (const LiveRequest::KeptState& k : std::exchange(r.kept, {})) {
    if (k.tokens > checked) {
      executor_.kept_states()->forget(k.slot);
      continue;
    }
    const auto tokens = r.key().first(static_cast<size_t>(k.tokens));
    auto in = cache_.insert(r.request.cache_salt, tokens, r.sequence.pages(), r.shared_pages, false, k.slot);
    r.shared_pages = in.pages;
    r.lease = std::move(in.lease);
    if (k.tokens == r.sequence.cached()) r.sequence.begin_with(in.state);  // what the next step reads
  }
}

void Scheduler::give_back_pages(LiveRequest& r) {
  auto& pages = r.sequence.pages();
  if (keeps_states()) {
    cache_states(r, std::min(r.checked, r.sequence.cached()));
    executor_.kv_pool().release(std::span(pages).subspan(static_cast<size_t>(r.shared_pages)));
  } else if (options_.prefix_cache) {
    // What no checked logits followed from may hold anything.
    const auto good = static_cast<size_t>(std::min(r.checked, r.sequence.cached()));
    cache_.insert(r.request.cache_salt, r.key().first(good), pages, r.shared_pages, true);
  } else {
    executor_.kv_pool().release(pages);
  }
  r.lease.reset();
  r.sequence.forget();
  r.shared_pages = 0;
  r.checked = 0;
}

int64_t Scheduler::flush_cache() {
  complete_all();
  copied_.clear();
  if (speculation_) speculation_->flush();
  return cache_.clear();
}

}  // namespace reprise::sched
