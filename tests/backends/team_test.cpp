// The CPU's team of threads: barriers hold with as many ranks as processors, with more, and beside programs that want
// the processors too.
#include "backends/cpu/team.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>

namespace reprise::cpu::team_test {
namespace {

constexpr int kRanks = 3, kPhases = 100;

struct Counted {
  std::array<std::atomic<int>, kPhases> arrived{};
  std::atomic<int> early{0};
};

// Behind a barrier everybody must have been before it.
void count(void* context, Team& team, int rank, int ranks) {
  auto& c = *static_cast<Counted*>(context);
  for (auto& phase : c.arrived) {
    phase.fetch_add(1);
    team.barrier(rank);
    if (phase.load() != ranks) c.early.fetch_add(1);
  }
}

void run_and_check(Team& team) {
  Counted c;
  team.run(count, &c);
  EXPECT_EQ(c.early.load(), 0);
  for (const auto& phase : c.arrived) EXPECT_EQ(phase.load(), team.ranks());
}

TEST(Team, BarriersHold) {
  for (const int ranks : {1, 2, kRanks}) {
    Team team(ranks, true);
    for (int i = 0; i < 5; ++i) run_and_check(team);
  }
}

// Threads that never give way stand for other programs.
struct Load {
  Load() {
    for (size_t i = 0; i < Team::allowed_processors().size(); ++i)
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

TEST(Team, BarriersHoldBesideOtherPrograms) {
  const Load load;
  for (const int ranks : {2, kRanks}) {
    Team team(ranks, true);
    run_and_check(team);
    run_and_check(team);
  }
}

// Whoever waits long for a rank that does not compute must be found again when that one arrives.
TEST(Team, SleepersAreWoken) {
  const Load load;
  Team team(2, true);
  for (int i = 0; i < 10; ++i) {
    team.run(
        [](void*, Team& t, int rank, int) {
          if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          t.barrier(rank);
          if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        },
        nullptr);
  }
}

}  // namespace
}  // namespace reprise::cpu::team_test
