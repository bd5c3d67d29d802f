#include "sched/page_budget.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/log.h"

namespace reprise::sched {
namespace {

// Its last token is computed in any case: the next token comes of that row.
std::span<const int32_t> reusable(const LiveRequest& r) {
  return r.key().first(static_cast<size_t>(r.sequence.size() - 1));
}

}  // namespace

int64_t PageBudget::known_tokens(const LiveRequest& r) const {
  return cache_.known_tokens(r.request.cache_salt, reusable(r));
}

std::vector<size_t> PageBudget::depth_first_order(const std::vector<LivePtr>& requests) const {
  std::vector<kv::RadixCache::Key> keys;
  keys.reserve(requests.size());
  for (const LivePtr& r : requests) keys.push_back({r->request.cache_salt, reusable(*r)});
  return cache_.depth_first_order(keys);
}

int64_t PageBudget::missing(const LiveRequest& r, int64_t keep) {
  kv::RadixCache::Match match;
  if (prefix_cache_ && !r.wants_prompt()) match = cache_.match(r.request.cache_salt, reusable(r));
  match.partial_lease.reset();
  const int64_t need = kv::pages_for(r.sequence.size()) - static_cast<int64_t>(match.pages.size());
  return need + keep - executor_.kv_pool().free_pages() - cache_.evictable_pages();
}

Status PageBudget::admit(LiveRequest& r, int64_t keep) {
  kv::KvPool& pool = executor_.kv_pool();
  kv::RadixCache::Match match;
  if (prefix_cache_ && !r.wants_prompt()) match = cache_.match(r.request.cache_salt, reusable(r));
  const auto shared = static_cast<int64_t>(match.pages.size());
  const int64_t need = kv::pages_for(r.sequence.size()) - shared;
  const auto available = [&] { return pool.free_pages() + cache_.evictable_pages(); };
  if (available() < need) match.partial_lease.reset();  // a copy for which there are no pages
  if (available() < need + keep)
    return error(Code::Busy, "{} pages are free or evictable; {} are needed, and {} stay free", available(), need,
                 keep);
  if (pool.free_pages() < need) cache_.evict(need - pool.free_pages());
  auto fresh = pool.allocate(need);
  CHECK(fresh.is_ok(), "{}", fresh.status().message());
  int64_t cached = match.tokens;
  Status copied;
  if (match.partial_lease) {
    copied = executor_.copy_page(match.partial_page, fresh->front());
    if (copied.code() == Code::Busy) copied = Status(Code::Device, copied.message());  // Busy is about pages alone
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
  r.prompt_cached = !prefix_cache_;
  return copied.at("copying a page of the prefix cache");
}

bool PageBudget::hold(LiveRequest& r, int64_t tokens) {
  auto& pages = r.sequence.pages();
  if (kv::pages_for(tokens) <= static_cast<int64_t>(pages.size())) return true;
  kv::KvPool& pool = executor_.kv_pool();
  if (pool.free_pages() == 0 && cache_.evict(1) == 0) return false;
  auto page = pool.allocate(1);
  CHECK(page.is_ok(), "{}", page.status().message());
  pages.push_back(page->front());
  return true;
}

int64_t PageBudget::spare(int64_t keep) const { return std::max<int64_t>(0, executor_.kv_pool().free_pages() - keep); }

void PageBudget::share_prompt(LiveRequest& r) {
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

void PageBudget::keep_state_at(LiveRequest& r, int64_t end) {
  if (end % kv::kPageTokens != 0 || end != r.sequence.cached()) return;
  const bool in_prompt = r.sequence.uncached() > 0;
  const bool lasting = end % kKeptStateTokens == 0 || (in_prompt && end == last_state_border(r.sequence));
  if (lasting || !in_prompt) keep_state(r, end, !lasting);
}

void PageBudget::keep_state(LiveRequest& r, int64_t tokens, bool until_next) {
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
void PageBudget::cache_states(LiveRequest& r, int64_t checked) {
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

void PageBudget::give_back(LiveRequest& r) {
  auto& pages = r.sequence.pages();
  if (keeps_states()) {
    cache_states(r, std::min(r.checked, r.sequence.cached()));
    executor_.kv_pool().release(std::span(pages).subspan(static_cast<size_t>(r.shared_pages)));
  } else if (prefix_cache_) {
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

int64_t PageBudget::flush() {
  copied_.clear();
  return cache_.clear();
}

void PageBudget::publish(SchedulerStats& stats) const {
  const kv::KvPool& pool = executor_.kv_pool();
  stats.pages = pool.total_pages();
  stats.free_pages = pool.free_pages();
  stats.cached_pages = cache_.held_pages();
  stats.evictable_pages = cache_.evictable_pages();
  stats.evicted_pages = cache_.evicted_pages();
}

Status PageBudget::check_integrity(const std::vector<LivePtr>& running, const std::vector<LivePtr>& waiting,
                                   bool resting) const {
  const kv::KvPool& pool = executor_.kv_pool();
  RETURN_IF_ERROR(pool.check_integrity());
  RETURN_IF_ERROR(cache_.check_integrity());
  std::set<kv::PageId> own;
  for (const LivePtr& r : running) {
    const auto& pages = r->sequence.pages();
    // Between steps: the last token is in no page, and no draft among the tokens.
    if (resting && (r->sequence.uncached() < 1 || r->sequence.pending()))
      return error(Code::Internal, "request {} has {} tokens, {} of them cached", r->id, r->sequence.size(),
                   r->sequence.cached());
    if (kv::pages_for(r->sequence.cached()) > static_cast<int64_t>(pages.size()))
      return error(Code::Internal, "request {} has {} pages for {} tokens", r->id, pages.size(), r->sequence.cached());
    if (r->shared_pages > static_cast<int64_t>(pages.size()) || (r->shared_pages > 0) != static_cast<bool>(r->lease))
      return error(Code::Internal, "request {} shares {} pages {} a lease", r->id, r->shared_pages,
                   r->lease ? "with" : "without");
    for (size_t i = static_cast<size_t>(r->shared_pages); i < pages.size(); ++i)
      if (!pool.in_use(pages[i]) || !own.insert(pages[i]).second)
        return error(Code::Internal, "page {} of request {} is not its own", pages[i], r->id);
  }
  int64_t kept = cache_.held_states();
  for (const LivePtr& r : running) kept += static_cast<int64_t>(r->kept.size());
  if (const kv::StatePool* states = executor_.kept_states(); states && states->kept() != kept)
    return error(Code::Internal, "{} states are kept, {} are known", states->kept(), kept);
  for (const LivePtr& r : waiting)
    if (!r->sequence.pages().empty() || r->lease || !r->kept.empty())
      return error(Code::Internal, "request {} waits and holds pages", r->id);
  const int64_t all = pool.free_pages() + cache_.held_pages() + static_cast<int64_t>(own.size());
  if (all != pool.total_pages())
    return error(Code::Internal, "of {} pages {} are free, {} cached and {} in sequences", pool.total_pages(),
                 pool.free_pages(), cache_.held_pages(), own.size());
  return Status::ok();
}

}  // namespace reprise::sched
