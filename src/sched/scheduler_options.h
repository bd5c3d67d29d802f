// SchedulerOptions: how a scheduler orders requests and what it holds; the policies by name; and Bell, at which a
// thread sleeps that drives several schedulers. Plain values; Bell is for any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "sched/request.h"
#include "spec/drafter.h"
#include "spec/options.h"

namespace reprise::sched {

// SGLang's policies. They order the requests of one priority.
enum class Policy : uint8_t {
  Fcfs,           // in the order of arrival
  LongestPrefix,  // the longest prefix in the cache first; after kLongestWait a request goes before all others
  DfsWeight,      // by a walk of the prefix tree that visits the branches with most requests first
  Random,
  LongestOutput,  // the largest max_new_tokens first
};
Result<Policy> parse_policy(std::string_view name);  // "fcfs", "lpm", "dfs-weight", "random", "lof"
std::string_view policy_name(Policy policy);

constexpr int64_t kMixedPrefillTokens = 256, kMaxPrefillTokens = 16384;

// What a thread sleeps at that drives several schedulers.
class Bell {
 public:
  void ring() {
    {
      std::lock_guard lock(mutex_);
      ++rings_;
    }
    wake_.notify_all();
  }
  uint64_t rings() const {
    std::lock_guard lock(mutex_);
    return rings_;
  }
  // Until it rings once more than so often.
  void wait(uint64_t heard) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return rings_ != heard; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  uint64_t rings_ = 0;
};

struct SchedulerOptions {
  Policy policy = Policy::Fcfs;
  int64_t max_running = 0;           // 0: what a step holds
  int64_t max_queued = 2048;         // requests that wait
  int64_t max_queued_tokens = 0;     // of their prompts and answers; 0: no bound of its own
  int64_t mixed_prefill_tokens = 0;  // see BatchLimits; 0: 256
  int64_t max_prefill_tokens = 0;    // see BatchLimits; 0: 16384
  int64_t prefill_requests = 0;      // see BatchLimits
  bool prefix_cache = true;
  bool overlap = true;  // form the next batch while the current one runs, where the executor can
  bool small_priorities_first = false;
  // A waiting request whose priority is larger by more than this preempts running ones; none: priorities order the
  // queue alone.
  std::optional<int64_t> preemption_threshold = {};
  bool log_failures = true;             // a failed step is an error in the log; its requests hear of it anyway
  uint64_t seed = 0;                    // of Policy::Random
  RequestId first_id = 1, id_step = 1;  // its requests are first_id, first_id + id_step, ...
  std::vector<int32_t> eos_tokens = {};
  Bell* bell = nullptr;  // rings when there is something to do; outlives the scheduler
  spec::SpecOptions speculation = {};
  // Makes the drafter, in place of what `speculation` names; for tests.
  std::function<std::unique_ptr<spec::Drafter>()> drafter = {};
};

}  // namespace reprise::sched
