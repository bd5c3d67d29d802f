// Pages: who is admitted, what the prefix cache gives and gets, and who goes when there are none left.
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "sched/scheduler.h"

namespace reprise::sched {
namespace {

// Under LongestPrefix: who has waited so long is next, whatever the cache knows.
constexpr auto kLongestWait = std::chrono::seconds(5);
// How many waiting requests are looked at for the next one.
constexpr size_t kLookAhead = 128;
// It pays to wait for the prompt of another request when that saves more tokens than this.
constexpr int64_t kWorthWaiting = 32;

// Its last token is computed in any case: somebody must give the next one.
std::span<const int32_t> reusable(const LiveRequest& r) {
  return std::span(r.sequence.tokens()).first(static_cast<size_t>(r.sequence.size() - 1));
}

}  // namespace

// Somebody is reading a prompt that begins alike: soon the cache knows more than `known` tokens of this one.
bool Scheduler::better_soon(const LiveRequest& r, int64_t known) const {
  const auto tokens = reusable(r);
  for (const LivePtr& other : running_) {
    if (other->prompt_cached || other->request.cache_salt != r.request.cache_salt) continue;
    const auto size = other->sequence.size();
    const int64_t shared = other->request.several ? size : size / kv::kPageTokens * kv::kPageTokens;
    if (std::min(shared, kv::common_prefix(other->sequence.tokens(), tokens)) > known + kWorthWaiting) return true;
  }
  return false;
}

std::vector<LivePtr>::iterator Scheduler::next_waiting() {
  if (!options_.prefix_cache) return waiting_.begin();
  const auto end = waiting_.begin() + static_cast<ptrdiff_t>(std::min(waiting_.size(), kLookAhead));
  const auto now = Clock::now();
  auto best = waiting_.end();
  int64_t best_known = -1;
  for (auto it = waiting_.begin(); it != end; ++it) {
    const LiveRequest& r = **it;
    if (best != waiting_.end() && r.request.priority != (*best)->request.priority) break;
    const int64_t known = r.wants_prompt() ? 0 : cache_.known_tokens(r.request.cache_salt, reusable(r));
    if (!r.wants_prompt() && better_soon(r, known)) continue;
    if (options_.policy == Policy::Fcfs || (it == waiting_.begin() && now - r.result.arrived > kLongestWait)) return it;
    if (known > best_known) {
      best = it;
      best_known = known;
    }
  }
  return best;
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

void Scheduler::admit() {
  while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < options_.max_running) {
    const auto next = next_waiting();
    // In order: who must wait for pages holds back those behind it, so none can starve.
    if (next == waiting_.end() || !admit_one(**next)) break;
    LivePtr r = std::move(*next);
    waiting_.erase(next);
    const auto by_arrival = [](const LivePtr& a, const LivePtr& b) { return a->id < b->id; };
    running_.insert(std::upper_bound(running_.begin(), running_.end(), r, by_arrival), std::move(r));
  }
  forget_finished();
}

// False: there are not enough pages now.
bool Scheduler::admit_one(LiveRequest& r) {
  kv::KvPool& pool = executor_.kv_pool();
  kv::RadixCache::Match match;
  if (options_.prefix_cache && !r.wants_prompt()) match = cache_.match(r.request.cache_salt, reusable(r));
  const auto shared = static_cast<int64_t>(match.pages.size());
  const int64_t need = kv::pages_for(r.sequence.size()) - shared;
  const auto available = [&] { return pool.free_pages() + cache_.evictable_pages(); };
  if (available() < need) match.partial_lease.reset();  // a copy that nobody can afford
  if (available() < need + pages_to_keep()) return false;
  if (pool.free_pages() < need) cache_.evict(need - pool.free_pages());
  auto fresh = pool.allocate(need);
  CHECK(fresh.is_ok(), "{}", fresh.status().message());
  int64_t cached = match.tokens;
  Status copied;
  if (match.partial_lease) {
    copied = executor_.copy_page(match.partial_page, fresh->front());
    cached += match.partial_tokens;
  }
  auto& pages = r.sequence.pages();
  pages = std::move(match.pages);
  pages.insert(pages.end(), fresh->begin(), fresh->end());
  r.shared_pages = shared;
  r.lease = std::move(match.lease);
  r.sequence.set_cached(cached);
  r.prompt_cached = !options_.prefix_cache;
  if (!r.result.admitted) {
    r.result.admitted = Clock::now();
    r.result.cached_tokens = cached;
    std::lock_guard lock(mutex_);
    --queued_;
    queued_tokens_ -= r.result.prompt_tokens + r.most_new_tokens;
    stats_.prompt_tokens += static_cast<uint64_t>(r.result.prompt_tokens);
    stats_.cached_tokens += static_cast<uint64_t>(cached);
  }
  if (!copied.is_ok()) finish(r, FinishReason::Cancelled, copied.at("copying a page of the prefix cache"));
  return true;
}

// Who decodes gets the page that its next token begins, if it begins one. False: somebody was preempted for it.
bool Scheduler::provide_pages() {
  kv::KvPool& pool = executor_.kv_pool();
  bool all = true;
  for (size_t i = 0; i < running_.size(); ++i) {
    LiveRequest& r = *running_[i];
    auto& pages = r.sequence.pages();
    if (kv::pages_for(r.sequence.size()) <= static_cast<int64_t>(pages.size())) continue;
    if (pool.free_pages() == 0 && cache_.evict(1) == 0) {
      // The least important, then whoever came last; perhaps this one.
      const auto victim = std::min_element(running_.begin(), running_.end(), [](const LivePtr& a, const LivePtr& b) {
        return a->request.priority != b->request.priority ? a->request.priority < b->request.priority : a->id > b->id;
      });
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
  const auto cached = std::span(r.sequence.tokens()).first(static_cast<size_t>(r.sequence.cached()));
  auto in = cache_.insert(r.request.cache_salt, cached, r.sequence.pages(), r.shared_pages, false);
  r.shared_pages = in.pages;
  r.lease = std::move(in.lease);
  kv::KvPool& pool = executor_.kv_pool();
  if (!r.request.several || r.sequence.cached() % kv::kPageTokens == 0 || pool.free_pages() == 0) return;
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

void Scheduler::give_back_pages(LiveRequest& r) {
  auto& pages = r.sequence.pages();
  if (options_.prefix_cache) {
    const auto cached = std::span(r.sequence.tokens()).first(static_cast<size_t>(r.sequence.cached()));
    cache_.insert(r.request.cache_salt, cached, pages, r.shared_pages, true);
  } else {
    executor_.kv_pool().release(pages);
  }
  r.lease.reset();
  pages.clear();
  r.shared_pages = 0;
  r.sequence.set_cached(0);
}

int64_t Scheduler::flush_cache() { return cache_.clear(); }

}  // namespace reprise::sched
