#include "sched/admission.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/split_mix.h"

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

// A larger priority first, then who came first.
bool before(const LivePtr& a, const LivePtr& b) {
  return a->request.priority != b->request.priority ? a->request.priority > b->request.priority : a->id < b->id;
}

}  // namespace

void Admission::add(LivePtr r) {
  const auto at = std::upper_bound(waiting_.begin(), waiting_.end(), r, before);
  waiting_.insert(at, std::move(r));
}

LivePtr Admission::take(Place place) {
  LivePtr r = std::move(*place);
  waiting_.erase(place);
  ++running_by_call_[r->call()];
  return r;
}

// Whether a prompt that begins alike is being read: soon the cache knows more than `known` tokens of this one.
bool Admission::better_soon(const LiveRequest& r, int64_t known) const {
  const auto tokens = r.key().first(static_cast<size_t>(r.sequence.size() - 1));
  for (const LivePtr& other : running_) {
    if (other->prompt_cached || other->request.cache_salt != r.request.cache_salt) continue;
    const auto size = other->sequence.size();
    int64_t shared = kv::common_prefix(other->key(), tokens);
    if (pages_.keeps_states()) {
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
void Admission::rank() {
  Policy policy = options_.policy;
  // As in SGLang: without a prefix cache, and with a long queue, prefixes do not order it.
  const bool by_prefix = policy == Policy::LongestPrefix || policy == Policy::DfsWeight;
  if (by_prefix && !pages_.has_prefix_cache()) policy = Policy::Fcfs;
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
                                                                  : -pages_.known_tokens(*r);
        break;
      default: r->rank = 0;
    }
    first = false;
  }
}

void Admission::rank_by_tree() {
  const std::vector<size_t> order = pages_.depth_first_order(waiting_);
  for (size_t i = 0; i < order.size(); ++i) waiting_[order[i]]->rank = static_cast<int64_t>(i);
}

void Admission::count() {
  running_by_call_.clear();
  for (const LivePtr& r : running_) ++running_by_call_[r->call()];
}

int64_t Admission::running_of(const LiveRequest& r) const {
  const auto it = running_by_call_.find(r.call());
  return it == running_by_call_.end() ? 0 : it->second;
}

Admission::Place Admission::next() {
  size_t looked = 0;
  std::vector<Place> order;
  for (auto begin = waiting_.begin(); begin != waiting_.end() && looked < kLookAhead;) {
    const int64_t priority = (*begin)->request.priority;
    const auto end =
        std::find_if(begin, waiting_.end(), [&](const LivePtr& r) { return r->request.priority != priority; });
    order.clear();
    for (auto it = begin; it != end; ++it) order.push_back(it);
    const auto key = [&](const Place& it) { return std::tuple(running_of(**it), (*it)->rank, (*it)->id); };
    const auto most = order.begin() + static_cast<ptrdiff_t>(std::min(order.size(), kLookAhead - looked));
    std::partial_sort(order.begin(), most, order.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    for (auto it = order.begin(); it != most; ++it, ++looked) {
      const LiveRequest& r = ***it;
      if (!pages_.has_prefix_cache() || r.wants_prompt()) return *it;
      if (!better_soon(r, pages_.known_tokens(r))) return *it;
    }
    begin = end;
  }
  return waiting_.end();
}

int64_t Admission::pages_to_keep() const {
  int64_t keep = 0;
  for (const LivePtr& r : running_) {
    const int64_t end = r->result.prompt_tokens + r->most_new_tokens - 1;
    keep += kv::pages_for(end) > static_cast<int64_t>(r->sequence.pages().size());
  }
  return keep;
}

// Who is preempted next for a waiting request: of those whose priority is smaller by more than the threshold the least
// important, else the youngest sequence of the call that runs the most, if that is at least two more than the waiting
// request's call. Null: no one.
LiveRequest* Admission::victim_for(const LiveRequest& r, const std::vector<LiveRequest*>& chosen) const {
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

std::optional<std::vector<LiveRequest*>> Admission::victims_for(const LiveRequest& r, int64_t pages) {
  int64_t slots = static_cast<int64_t>(running_.size()) + 1 - options_.max_running;
  std::vector<LiveRequest*> chosen;
  while (pages > 0 || slots > 0) {
    LiveRequest* victim = victim_for(r, chosen);
    if (!victim) return std::nullopt;
    chosen.push_back(victim);
    pages -= static_cast<int64_t>(victim->sequence.pages().size()) - victim->shared_pages;
    --slots;
  }
  if (chosen.empty()) return std::nullopt;
  for (LiveRequest* victim : chosen) {
    --running_by_call_[victim->call()];
    victim->rank = INT64_MAX;  // behind those that it made room for
  }
  return chosen;
}

bool Admission::would_preempt() {
  if (waiting_.empty()) return false;
  count();
  const auto first = next();
  return first != waiting_.end() && victim_for(**first, {}) != nullptr;
}

LiveRequest& Admission::least_important() {
  CHECK(!running_.empty(), "no request runs");
  count();
  const auto key = [&](const LivePtr& v) {
    return std::tuple(v->request.priority, -running_of(*v), std::numeric_limits<RequestId>::max() - v->id);
  };
  return **std::min_element(running_.begin(), running_.end(),
                            [&](const LivePtr& a, const LivePtr& b) { return key(a) < key(b); });
}

}  // namespace reprise::sched
