// The CPU's pool of threads: barriers hold with as many threads as processors, with more, and beside programs that want
// the processors too.
#include "backends/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

namespace reprise::cpu::thread_pool_test {
namespace {

constexpr int kThreads = 3, kPhases = 100;

struct Counted {
  std::array<std::atomic<int>, kPhases> arrived{};
  std::atomic<int> early{0};
};

// Behind a barrier everybody must have been before it.
void count(void* context, ThreadPool& pool, int thread, int threads) {
  auto& c = *static_cast<Counted*>(context);
  for (auto& phase : c.arrived) {
    phase.fetch_add(1);
    pool.barrier(thread);
    if (phase.load() != threads) c.early.fetch_add(1);
  }
}

void run_and_check(ThreadPool& pool) {
  Counted c;
  pool.run(count, &c);
  EXPECT_EQ(c.early.load(), 0);
  for (const auto& phase : c.arrived) EXPECT_EQ(phase.load(), pool.threads());
}

TEST(ThreadPool, BarriersHold) {
  for (const int threads : {1, 2, kThreads}) {
    ThreadPool pool(threads, true);
    for (int i = 0; i < 5; ++i) run_and_check(pool);
  }
}

// Above eight threads a barrier has groups, the last of which may be one thread.
TEST(ThreadPool, BarriersOfGroupsHold) {
  for (const int threads : {8, 9, 16, 17, 20}) {
    ThreadPool pool(threads, true);
    for (int i = 0; i < 2; ++i) run_and_check(pool);
  }
}

// Either half meets by itself, at its own pace, and then both together.
TEST(ThreadPool, HalvesMeetByThemselves) {
  struct Halves {
    std::array<Counted, 2> counted;
    std::atomic<int> together{0}, early{0};
  };
  for (const int threads : {2, 3, 17, 20}) {
    ThreadPool pool(threads, true);
    Halves halves;
    pool.run(
        [](void* context, ThreadPool& t, int thread, int all) {
          auto& h = *static_cast<Halves*>(context);
          const bool first = thread < t.first_half();
          const int mine = first ? t.first_half() : all - t.first_half();
          auto& c = h.counted[first ? 0 : 1];
          for (size_t i = 0; i < (first ? 60 : 20); ++i) {
            c.arrived[i].fetch_add(1);
            t.half_barrier(thread);
            if (c.arrived[i].load() != mine) c.early.fetch_add(1);
          }
          h.together.fetch_add(1);
          t.barrier(thread);
          if (h.together.load() != all) h.early.fetch_add(1);
        },
        &halves);
    EXPECT_EQ(halves.counted[0].early + halves.counted[1].early + halves.early, 0) << threads;
  }
}

TEST(ThreadPool, ThreadsAreOneForEachCoreThatMayBeUsed) {
  const std::vector<int> allowed = ThreadPool::allowed_processors();
  EXPECT_GE(ThreadPool::usual_threads(), 1);
  EXPECT_LE(ThreadPool::usual_threads(), static_cast<int>(allowed.size()));
  std::vector<int> sorted = allowed;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
}

// Threads that never give way stand for other programs.
struct Load {
  Load() {
    for (size_t i = 0; i < ThreadPool::allowed_processors().size(); ++i)
      threads.emplace_back([this] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
  }
  ~Load() {
    stop.store(true);
    for (auto& t : threads) t.join();
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
};

TEST(ThreadPool, BarriersHoldBesideOtherPrograms) {
  const Load load;
  for (const int threads : {2, kThreads}) {
    ThreadPool pool(threads, true);
    run_and_check(pool);
    run_and_check(pool);
  }
}

// Whoever waits long for a thread that does not compute must be found again when that one arrives.
TEST(ThreadPool, SleepersAreWoken) {
  const Load load;
  ThreadPool pool(2, true);
  for (int i = 0; i < 10; ++i) {
    pool.run(
        [](void*, ThreadPool& t, int thread, int) {
          if (thread == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          t.barrier(thread);
          if (thread == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        },
        nullptr);
  }
}

}  // namespace
}  // namespace reprise::cpu::thread_pool_test
