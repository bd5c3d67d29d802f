#include "backends/cpu/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>

#include "base/spin.h"

namespace reprise::cpu {
namespace {

// A pause takes 15 to 60 ns on current processors, so this is 30 to 120 us: longer than any wait inside a step of a
// healthy team, short enough not to burn a time slice when another program has the processor.
constexpr int kSpins = 2000;
constexpr int kSpinsCrowded = 500;  // beside other programs: a wait for a rank that runs is shorter
constexpr int kSpinsShared = 50;    // when ranks share processors, give way soon
constexpr int kYieldsBeforeSleep = 200;
// A yield to nobody takes less than a microsecond, one to another thread of the team as long as that computes, one to
// another program a time slice, which is a millisecond at least.
constexpr std::chrono::microseconds kLateYield{500};
// So many waits sleep before one tries a yield again.
constexpr int kCrowdedWaits = 200;
// Nothing is lost when a sleeper is not told: it looks again after this.
constexpr timespec kNap{0, 500'000};

}  // namespace

std::vector<int> Team::allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) out.push_back(i);
  if (out.empty()) out.push_back(0);
  return out;
}

Team::Team(int ranks, bool pin)
    : ranks_(ranks),
      done_(new Flag[static_cast<size_t>(ranks)]),
      arrived_(new Flag[static_cast<size_t>(ranks)]),
      passed_(new Flag[static_cast<size_t>(ranks)]) {
  const std::vector<int> processors = allowed_processors();
  const bool room = static_cast<int>(processors.size()) >= ranks;
  spins_ = room ? kSpins : kSpinsShared;
  for (int rank = 1; rank < ranks; ++rank) {
    threads_.emplace_back([this, rank] { worker(rank); });
    if (pin && room) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(processors[static_cast<size_t>(rank)], &set);
      pthread_setaffinity_np(threads_.back().native_handle(), sizeof set, &set);
    }
  }
}

Team::~Team() {
  stop_.store(true);
  epoch_.value.fetch_add(1);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (auto& t : threads_) t.join();
}

void Team::wait_until(const std::atomic<uint64_t>& flag, uint64_t at_least) {
  const bool crowded = crowd_.waits.load(std::memory_order_relaxed) > 0;
  const int spins = crowded ? std::min(spins_, kSpinsCrowded) : spins_;
  for (int i = 0; i < spins; ++i) {
    if (flag.load(std::memory_order_acquire) >= at_least) return;
    spin_pause();
  }
  wait_long(flag, at_least);
}

void Team::wait_long(const std::atomic<uint64_t>& flag, uint64_t at_least) {
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

void Team::sleep_until(const std::atomic<uint64_t>& flag, uint64_t at_least) {
  crowd_.sleeping.fetch_add(1);
  while (true) {
    const uint32_t seen = crowd_.bell.load();
    if (flag.load() >= at_least) break;
    syscall(SYS_futex, &crowd_.bell, FUTEX_WAIT_PRIVATE, seen, &kNap, nullptr, 0);
  }
  crowd_.sleeping.fetch_sub(1);
}

// No fence between the two: it would cost every barrier more than a nap costs the rare sleeper that it missed.
void Team::tell(std::atomic<uint64_t>& flag, uint64_t value) {
  flag.store(value, std::memory_order_release);
  if (crowd_.sleeping.load(std::memory_order_relaxed) == 0) return;
  crowd_.bell.fetch_add(1);
  syscall(SYS_futex, &crowd_.bell, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Team::run(Job job, void* context) {
  if (ranks_ == 1) {
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
  job(context, *this, 0, ranks_);
  for (int r = 1; r < ranks_; ++r) wait_until(done_[r].value, epoch);
}

void Team::barrier(int rank) {
  if (ranks_ == 1) return;
  const uint64_t turn = passed_[rank].value.load(std::memory_order_relaxed) + 1;
  passed_[rank].value.store(turn, std::memory_order_relaxed);
  tell(arrived_[rank].value, turn);
  for (int r = 0; r < ranks_; ++r)
    if (r != rank) wait_until(arrived_[r].value, turn);
}

void Team::worker(int rank) {
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
    job_(context_, *this, rank, ranks_);
    tell(done_[rank].value, finished);
  }
}

}  // namespace reprise::cpu
