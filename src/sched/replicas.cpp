#include "sched/replicas.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>

#include "base/kv_page.h"

namespace reprise::sched {
namespace {

struct NamedBalance {
  std::string_view name;
  Balance value;
};
constexpr NamedBalance kBalances[] = {{"auto", Balance::Prefix},
                                      {"round_robin", Balance::RoundRobin},
                                      {"total_requests", Balance::TotalRequests},
                                      {"total_tokens", Balance::TotalTokens},
                                      {"shortest_queue", Balance::TotalRequests},
                                      {"minimum_tokens", Balance::TotalTokens},
                                      {"follow_bootstrap_room", Balance::Prefix}};

// Pages of prompts that are remembered: 8 million tokens.
constexpr size_t kMostBlocks = size_t{1} << 16;
// A replica keeps its prefixes up to so many times the requests of the least one, once requests wait there.
constexpr double kMostLoad = 1.25;

int64_t requests_of(const SchedulerStats& s) { return s.running + s.waiting; }
// What is held is counted in pages; what may be given up is not held.
int64_t tokens_of(const SchedulerStats& s) {
  return s.waiting_tokens + (s.pages - s.free_pages - s.evictable_pages) * kv::kPageTokens;
}

// A step of FNV-1a, by words. Two prompts with one hash go to one replica; nothing else follows from it.
uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x100000001b3u;
  return hash ^ (hash >> 29);
}

}  // namespace

Result<Balance> parse_balance(std::string_view name) {
  for (const NamedBalance& b : kBalances)
    if (b.name == name) return b.value;
  return invalid(
      "load balance method \"{}\"; allowed: auto, round_robin, total_requests, total_tokens, shortest_queue, "
      "minimum_tokens",
      name);
}

std::string_view balance_name(Balance balance) {
  for (const NamedBalance& b : kBalances)
    if (b.value == balance) return b.name;
  return "";
}

Replicas::Replicas(std::vector<Scheduler*> schedulers, Balance balance)
    : schedulers_(std::move(schedulers)), balance_(balance) {}

std::vector<uint64_t> Replicas::blocks_of(const Request& request) const {
  std::vector<uint64_t> out;
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : request.cache_salt) hash = mixed(hash, static_cast<uint8_t>(c));
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    hash = mixed(hash, static_cast<uint32_t>(request.prompt[i]));
    if ((i + 1) % kv::kPageTokens == 0) out.push_back(hash);
  }
  return out;
}

size_t Replicas::least(const std::vector<SchedulerStats>& now, int64_t (*load)(const SchedulerStats&)) {
  size_t best = next_ % size();
  for (size_t i = 1; i < size(); ++i) {
    const size_t at = (next_ + i) % size();
    if (load(now[at]) < load(now[best])) best = at;
  }
  next_ = best + 1;
  return best;
}

// The replica that was sent most of the prompt before, unless it is so busy that the others would wait for work.
std::optional<size_t> Replicas::holder(const std::vector<SchedulerStats>& now,
                                       const std::vector<uint64_t>& blocks) const {
  Mask have = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto found = blocks_.find(blocks[i]);
    const Mask both = found == blocks_.end() ? 0 : i == 0 ? found->second : have & found->second;
    if (both == 0) break;
    have = both;
  }
  if (have == 0) return std::nullopt;
  int64_t least = INT64_MAX;
  for (const SchedulerStats& s : now) least = std::min(least, requests_of(s));
  std::optional<size_t> best;
  for (size_t r = 0; r < size(); ++r)
    if ((have >> r & 1) != 0 && (!best || requests_of(now[r]) < requests_of(now[*best]))) best = r;
  const SchedulerStats& s = now[*best];
  const bool busy = s.waiting > 0 && static_cast<double>(requests_of(s)) > kMostLoad * static_cast<double>(least);
  return busy ? std::nullopt : best;
}

size_t Replicas::choose(const std::vector<SchedulerStats>& now, const std::vector<uint64_t>& blocks) {
  switch (balance_) {
    case Balance::RoundRobin: return next_++ % size();
    case Balance::TotalTokens: return least(now, tokens_of);
    case Balance::Prefix:
      if (const auto held = holder(now, blocks)) return *held;
      break;
    case Balance::TotalRequests: break;
  }
  return least(now, requests_of);
}

void Replicas::remember(const std::vector<uint64_t>& blocks, size_t replica) {
  for (const uint64_t block : blocks) {
    const auto [at, is_new] = blocks_.try_emplace(block, 0);
    at->second |= Mask{1} << replica;
    if (is_new) order_.push_back(block);
  }
  while (order_.size() > kMostBlocks) {
    blocks_.erase(order_.front());
    order_.pop_front();
  }
}

Result<RequestId> Replicas::add(Request request) {
  if (size() == 1) return schedulers_[0]->add(std::move(request));
  const std::vector<uint64_t> blocks = balance_ == Balance::Prefix ? blocks_of(request) : std::vector<uint64_t>();
  std::lock_guard lock(mutex_);  // two that come at once see each other
  size_t to = choose(each(), blocks);
  for (size_t i = 0; i < size() && schedulers_[to]->full(request); ++i) to = (to + 1) % size();
  auto id = schedulers_[to]->add(std::move(request));
  if (!id.is_ok()) return id;
  remember(blocks, to);
  return id;
}

void Replicas::cancel(RequestId id) {
  if (id > 0) schedulers_[(id - 1) % size()]->cancel(id);
}
void Replicas::cancel_all() {
  for (Scheduler* s : schedulers_) s->cancel_all();
}
void Replicas::close() {
  for (Scheduler* s : schedulers_) s->close();
}
void Replicas::stop() {
  for (Scheduler* s : schedulers_) s->stop();
}
bool Replicas::idle() const {
  return std::all_of(schedulers_.begin(), schedulers_.end(), [](const Scheduler* s) { return s->idle(); });
}

Status Replicas::lost() const {
  for (const Scheduler* s : schedulers_) RETURN_IF_ERROR(s->lost());
  return Status::ok();
}

std::vector<SchedulerStats> Replicas::each() const {
  std::vector<SchedulerStats> out;
  for (const Scheduler* s : schedulers_) out.push_back(s->stats());
  return out;
}

SchedulerStats added_up(const std::vector<SchedulerStats>& each) {
  SchedulerStats sum;
  for (const SchedulerStats& s : each) {
    for (auto member :
         {&SchedulerStats::running, &SchedulerStats::waiting, &SchedulerStats::waiting_tokens, &SchedulerStats::pages,
          &SchedulerStats::free_pages, &SchedulerStats::cached_pages, &SchedulerStats::evictable_pages})
      sum.*member += s.*member;
    for (auto member :
         {&SchedulerStats::steps, &SchedulerStats::requests, &SchedulerStats::preemptions,
          &SchedulerStats::evicted_pages, &SchedulerStats::failed_steps, &SchedulerStats::prompt_tokens,
          &SchedulerStats::cached_tokens, &SchedulerStats::generated_tokens, &SchedulerStats::device_draws})
      sum.*member += s.*member;
    for (size_t i = 0; i < sum.host_draws.size(); ++i) sum.host_draws[i] += s.host_draws[i];
    for (size_t i = 0; i < sum.overlap_stops.size(); ++i) sum.overlap_stops[i] += s.overlap_stops[i];
    sum.decode_steps = std::max(sum.decode_steps, s.decode_steps);
    sum.decode_runs += s.decode_runs;
    sum.decode_run_steps += s.decode_run_steps;
    sum.rows_for_nothing += s.rows_for_nothing;
    for (size_t i = 0; i < sum.run_stops.size(); ++i) sum.run_stops[i] += s.run_stops[i];
    sum.answer_steps += s.answer_steps;
    sum.speculation.on |= s.speculation.on;
    sum.speculation.algorithm = s.speculation.algorithm;
    sum.speculation += s.speculation;
    sum.busy_s += s.busy_s;
    sum.tokens_per_s += s.tokens_per_s;
    if (s.step_since && (!sum.step_since || *s.step_since < *sum.step_since)) sum.step_since = s.step_since;
  }
  return sum;
}

void Replicas::flush_cache(std::function<void(int64_t pages)> done) {
  struct Flush {
    std::function<void(int64_t)> done;
    std::atomic<int64_t> pages{0};
    std::atomic<size_t> left;
  };
  auto flush = std::make_shared<Flush>();
  flush->done = std::move(done);
  flush->left = size();
  {
    std::lock_guard lock(mutex_);
    blocks_.clear();
    order_.clear();
  }
  for (Scheduler* s : schedulers_)
    s->post([s, flush] {
      flush->pages += s->flush_cache();
      if (--flush->left == 0) flush->done(flush->pages);
    });
}

}  // namespace reprise::sched
