// AlignedPool over a runtime that gives what the test says.
#include "device/aligned_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace reprise::aligned_pool_test {
namespace {

constexpr size_t kLarge = size_t{2} << 20;

// One arena; each block begins `skew` bytes behind an address that large blocks want.
class SkewedPool final : public AlignedPool {
 public:
  SkewedPool() : AlignedPool(4 * kLarge), arena_(8 * kLarge, 0xa5) {}

  std::vector<size_t> asked;
  int live = 0;
  size_t skew = 0;
  bool refuses_to_zero = false;

 private:
  Status allocate_raw(size_t bytes, void** raw) override {
    asked.push_back(bytes);
    const auto first = (reinterpret_cast<uintptr_t>(arena_.data()) + kLarge - 1) / kLarge * kLarge;
    *raw = reinterpret_cast<void*>(first + skew);
    ++live;
    return Status::ok();
  }
  void free_raw(void*) override { --live; }
  Status zero(void* data, size_t bytes) override {
    if (refuses_to_zero) return error(Code::Device, "no");
    std::memset(data, 0, bytes);
    return Status::ok();
  }

  std::vector<uint8_t> arena_;
};

TEST(AlignedPoolTest, RoomForTheAlignmentIsTakenOnlyWhereItIsNeeded) {
  SkewedPool pool;
  EXPECT_EQ(pool.allocate(100, "a").value().size(), 100u);
  EXPECT_EQ(pool.asked, std::vector<size_t>{100});
  pool.asked.clear();
  pool.skew = 64;
  const Buffer b = pool.allocate(kLarge, "a").value();
  EXPECT_EQ(pool.asked, (std::vector<size_t>{kLarge, 2 * kLarge}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % kLarge, 0u);
  EXPECT_EQ(pool.live, 1);
  EXPECT_EQ(pool.stats().live_bytes, kLarge);
}

TEST(AlignedPoolTest, WhatFailsLeavesNothing) {
  SkewedPool pool;
  const auto more = pool.allocate(4 * kLarge + 1, "weights");
  ASSERT_FALSE(more.is_ok());
  EXPECT_EQ(more.status().code(), Code::OutOfMemory);
  EXPECT_EQ(more.status().message(), "weights: 8388609 bytes could not be allocated: there are 8388608 in all");
  EXPECT_TRUE(pool.asked.empty());
  pool.refuses_to_zero = true;
  EXPECT_EQ(pool.allocate(10, "weights").status().message(), "weights: no");
  EXPECT_EQ(pool.live, 0);
  EXPECT_EQ(pool.stats().peak_bytes, 0u);
}

}  // namespace
}  // namespace reprise::aligned_pool_test
