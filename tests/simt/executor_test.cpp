// The executor finds what a GPU leaves undefined.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "simt/lane.h"

namespace reprise::simt::executor_test {
namespace {

// Every thread adds its neighbour's number; without the barrier the result depends on the order of lanes.
std::vector<float> neighbours(Order order, bool barrier) {
  std::vector<float> out(64);
  run_grid({1, 1, 64, 64 * sizeof(float)}, order, [&](Lane& lane) {
    auto* shared = reinterpret_cast<float*>(lane.shared());
    shared[lane.thread()] = static_cast<float>(lane.thread());
    if (barrier) lane.sync();
    out[static_cast<size_t>(lane.thread())] = shared[(lane.thread() + 1) % 64];
  });
  return out;
}

TEST(SimtExecutor, BarriersOrderLanes) {
  const auto want = neighbours(Order::Ascending, true);
  EXPECT_EQ(want[0], 1.0f);
  EXPECT_EQ(want[63], 0.0f);
  EXPECT_EQ(neighbours(Order::Descending, true), want);
  EXPECT_EQ(neighbours(Order::Shuffled, true), want);
}

TEST(SimtExecutor, AMissingBarrierReadsThePattern) {
  int poisoned = 0;
  for (float v : neighbours(Order::Ascending, false)) poisoned += std::isnan(v) ? 1 : 0;
  EXPECT_EQ(poisoned, 63);
}

TEST(SimtExecutor, ALaneThatLeavesABarrierBehindIsAnError) {
  auto early = [](Lane& lane) {
    if (lane.thread() == 40) return;
    lane.sync();
  };
  EXPECT_THROW(run_grid({1, 1, 64, 0}, Order::Ascending, early), std::logic_error);
  EXPECT_THROW(run_grid({1, 1, 64, 0}, Order::Descending, early), std::logic_error);
  auto part = [](Lane& lane) {
    if (lane.thread() % 32 < 5) (void)lane.shuffle_xor(1.0f, 1);
  };
  EXPECT_THROW(run_grid({1, 1, 32, 0}, Order::Ascending, part), std::logic_error);
}

TEST(SimtExecutor, SharedMemoryEndsWhereTheLaunchSays) {
  const auto write = [](size_t at) {
    run_grid({2, 1, 32, 100}, Order::Ascending, [at](Lane& lane) {
      if (lane.block() == 1 && lane.thread() == 7) lane.shared()[at] = 1;
    });
  };
  write(0);
  write(99);
  EXPECT_THROW(write(100), std::logic_error);
  EXPECT_THROW(write(1000), std::logic_error);
}

TEST(SimtExecutor, CopiesArriveAtTheWait) {
  const std::vector<float> from{1, 2, 3, 4, 5, 6, 7, 8};
  float before = 0, after[8] = {};
  alignas(16) float source[8];
  std::copy(from.begin(), from.end(), source);
  run_grid({1, 1, 1, 64}, Order::Ascending, [&](Lane& lane) {
    auto* shared = reinterpret_cast<float*>(lane.shared());
    lane.copy_async(shared, source, 16);
    lane.commit_copies();
    lane.copy_async(shared + 4, source + 4, 8);
    lane.commit_copies();
    before = shared[0];
    lane.wait_copies<1>();
    after[0] = shared[0];
    after[1] = shared[4];
    lane.wait_copies<0>();
    for (int i = 4; i < 8; ++i) after[i] = shared[i];
  });
  EXPECT_TRUE(std::isnan(before));
  EXPECT_EQ(after[0], 1.0f);
  EXPECT_TRUE(std::isnan(after[1])) << "the second group was not waited for";
  EXPECT_EQ(after[5], 6.0f);
  EXPECT_EQ(after[6], 0.0f) << "behind the bytes asked for there are zeros";
  auto forgotten = [&](Lane& lane) { lane.copy_async(lane.shared(), source, 16); };
  EXPECT_THROW(run_grid({1, 1, 1, 64}, Order::Ascending, forgotten), std::logic_error);
}

// A product by fragments against one by loops. Which lane holds which number is NVIDIA's PTX ISA 9.0, section 9.7.14.
TEST(SimtExecutor, MatrixFragments) {
  int8_t a[16][32], b[32][8];
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 32; ++k) a[i][k] = static_cast<int8_t>(i * 7 - k * 3);
  for (int k = 0; k < 32; ++k)
    for (int j = 0; j < 8; ++j) b[k][j] = static_cast<int8_t>(k * 5 - j * 11);
  int32_t got[16][8] = {};
  run_grid({1, 1, 32, 0}, Order::Shuffled, [&](Lane& lane) {
    const int g = lane.thread() / 4, q = lane.thread() % 4;
    auto four = [&](int row, int k) {
      uint32_t v = 0;
      for (int i = 0; i < 4; ++i) v |= static_cast<uint32_t>(static_cast<uint8_t>(a[row][k + i])) << (i * 8);
      return v;
    };
    auto column = [&](int j, int k) {
      uint32_t v = 0;
      for (int i = 0; i < 4; ++i) v |= static_cast<uint32_t>(static_cast<uint8_t>(b[k + i][j])) << (i * 8);
      return v;
    };
    int32_t d[4] = {0, 0, 0, 0};
    lane.mma(cuda::I8{}, d, {four(g, q * 4), four(g + 8, q * 4), four(g, 16 + q * 4), four(g + 8, 16 + q * 4)},
             {column(g, q * 4), column(g, 16 + q * 4)});
    got[g][q * 2] = d[0], got[g][q * 2 + 1] = d[1], got[g + 8][q * 2] = d[2], got[g + 8][q * 2 + 1] = d[3];
  });
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      int32_t want = 0;
      for (int k = 0; k < 32; ++k) want += a[i][k] * b[k][j];
      ASSERT_EQ(got[i][j], want) << i << " " << j;
    }
}

}  // namespace
}  // namespace reprise::simt::executor_test
