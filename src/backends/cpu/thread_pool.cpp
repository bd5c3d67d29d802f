#include "backends/cpu/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>

#include "base/hooks.h"
#include "base/spin.h"
#include "ranks/processors.h"

namespace reprise::cpu {
namespace {

// A pause takes 15 to 60 ns on current processors, so this is 30 to 120 us: longer than any wait inside a step of a
// healthy pool, short enough not to burn a time slice when another program has the processor.
constexpr int kSpins = 2000;
constexpr int kSpinsCrowded = 500;  // with other programs running: a wait for a thread that runs is shorter
constexpr int kSpinsShared = 50;    // when threads share processors, give way soon
constexpr int kYieldsBeforeSleep = 200;
// A yield without another thread takes less than a microsecond, one to another thread of the pool as long as that
// computes, one to another program a time slice, which is a millisecond at least.
constexpr std::chrono::microseconds kLateYield{500};
// So many waits sleep before one tries a yield again.
constexpr int kCrowdedWaits = 200;
// Nothing is lost when a sleeper is not told: it looks again after this.
constexpr timespec kNap{0, 500'000};
constexpr const char* kSystem = "/sys/devices/system";

}  // namespace

std::vector<int> ThreadPool::allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) out.push_back(i);
  if (out.empty()) out.push_back(0);
  // Which of two comes first does not matter.
  return out.size() <= 2 ? out : ranks::Processors(out, kSystem).in_thread_order();
}

int ThreadPool::usual_threads() {
  const std::vector<int> allowed = allowed_processors();
  const int all = static_cast<int>(allowed.size());
  if (all <= 2) return all;
  const int cores = ranks::Processors(allowed, kSystem).cores();
  return cores == 1 ? all : cores;
}

ThreadPool::ThreadPool(int threads, bool pin)
    : count_(threads),
      done_(new Flag[static_cast<size_t>(threads)]),
      all_(static_cast<size_t>(threads)),
      halves_(static_cast<size_t>(threads)) {
  const std::vector<int> processors = allowed_processors();
  const bool room = static_cast<int>(processors.size()) >= threads;
  spins_ = room ? kSpins : kSpinsShared;
  for (int thread = 1; thread < threads; ++thread) {
    workers_.push_back(start_thread("compute", [this, thread] { worker(thread); }));
    if (pin && room) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(processors[static_cast<size_t>(thread)], &set);
      pthread_setaffinity_np(workers_.back().native_handle(), sizeof set, &set);
    }
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.value.fetch_add(1);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (auto& t : workers_) t.join();
}

void ThreadPool::wait_until(const std::atomic<uint64_t>& flag, uint64_t at_least) {
  const bool crowded = crowd_.waits.load(std::memory_order_relaxed) > 0;
  const int spins = crowded ? std::min(spins_, kSpinsCrowded) : spins_;
  for (int i = 0; i < spins; ++i) {
    if (flag.load(std::memory_order_acquire) >= at_least) return;
    spin_pause();
  }
  wait_long(flag, at_least);
}

void ThreadPool::wait_long(const std::atomic<uint64_t>& flag, uint64_t at_least) {
  using Clock = std::chrono::steady_clock;
  if (crowd_.waits.load(std::memory_order_relaxed) > 0) {
    crowd_.waits.fetch_sub(1, std::memory_order_relaxed);
    return sleep_until(flag, at_least);
  }
  auto before = Clock::now();
  while (flag.load(std::memory_order_acquire) < at_least) {
    sched_yield();
    const auto after = Clock::now();
    if (after - before > kLateYield) {
      crowd_.waits.store(kCrowdedWaits, std::memory_order_relaxed);
      return sleep_until(flag, at_least);
    }
    before = after;
  }
}

void ThreadPool::sleep_until(const std::atomic<uint64_t>& flag, uint64_t at_least) {
  crowd_.sleeping.fetch_add(1);
  while (true) {
    const uint32_t seen = crowd_.bell.load();
    if (flag.load() >= at_least) break;
    syscall(SYS_futex, &crowd_.bell, FUTEX_WAIT_PRIVATE, seen, &kNap, nullptr, 0);
  }
  crowd_.sleeping.fetch_sub(1);
}

// No fence between the two: it would cost every barrier more than a nap costs the rare sleeper that it missed.
void ThreadPool::tell(std::atomic<uint64_t>& flag, uint64_t value) {
  flag.store(value, std::memory_order_release);
  if (crowd_.sleeping.load(std::memory_order_relaxed) == 0) return;
  crowd_.bell.fetch_add(1);
  syscall(SYS_futex, &crowd_.bell, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void ThreadPool::run(Job job, void* context) {
  if (count_ == 1) {
    job(context, *this, 0, 1);
    return;
  }
  job_ = job;
  context_ = context;
  // Sequentially consistent with the worker's sleepers_ / epoch_ pair: either it sees the new epoch, or we see the
  // sleeper.
  const uint64_t epoch = epoch_.value.fetch_add(1) + 1;
  if (sleepers_.load() > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  job(context, *this, 0, count_);
  for (int r = 1; r < count_; ++r) wait_until(done_[r].value, epoch);
}

void ThreadPool::barrier(int thread) { meet(all_, thread, 0, count_); }

void ThreadPool::half_barrier(int thread) {
  const bool first = thread < first_half();
  meet(halves_, thread, first ? 0 : first_half(), first ? first_half() : count_);
}

void ThreadPool::meet(Meeting& meeting, int thread, int begin, int end) {
  if (end - begin == 1) return;
  const uint64_t turn = meeting.passed[thread].value.load(std::memory_order_relaxed) + 1;
  meeting.passed[thread].value.store(turn, std::memory_order_relaxed);
  tell(meeting.arrived[thread].value, turn);
  if (end - begin <= kGroup) {
    for (int r = begin; r < end; ++r)
      if (r != thread) wait_until(meeting.arrived[r].value, turn);
    return;
  }
  const int first = begin + (thread - begin) / kGroup * kGroup;
  if (thread != first) return wait_until(meeting.released[first].value, turn);
  for (int r = first + 1; r < std::min(first + kGroup, end); ++r) wait_until(meeting.arrived[r].value, turn);
  tell(meeting.gathered[first].value, turn);
  for (int r = begin; r < end; r += kGroup)
    if (r != first) wait_until(meeting.gathered[r].value, turn);
  tell(meeting.released[first].value, turn);
}

void ThreadPool::worker(int thread) {
  uint64_t finished = 0;
  while (true) {
    int idle = 0;
    while (epoch_.value.load(std::memory_order_acquire) == finished) {
      ++idle;
      if (idle < spins_) {
        spin_pause();
      } else if (idle < spins_ + kYieldsBeforeSleep) {
        sched_yield();
      } else {
        const uint32_t seen = wake_.load();
        sleepers_.fetch_add(1);
        if (epoch_.value.load() == finished) wake_.wait(seen);
        sleepers_.fetch_sub(1);
      }
    }
    if (stop_.load()) return;
    ++finished;
    job_(context_, *this, thread, count_);
    tell(done_[thread].value, finished);
  }
}

}  // namespace reprise::cpu
