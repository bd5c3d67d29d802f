#include "kv/kv_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "backends/null/null_device.h"

namespace reprise::kv {
namespace {

struct KvPoolTest : testing::Test {
  std::unique_ptr<Device> device = null::make_null_device();
  KvShape shape{3, 2, 10, DType::BF16};
};

TEST_F(KvPoolTest, HandsOutEveryPageOnceAndNeverTheScratchPage) {
  auto pool = KvPool::create(device->pool(), shape, 7);
  ASSERT_TRUE(pool.is_ok());
  auto pages = pool->allocate(7);
  ASSERT_TRUE(pages.is_ok());
  const std::set<PageId> unique(pages->begin(), pages->end());
  EXPECT_EQ(unique.size(), 7u);
  EXPECT_FALSE(unique.contains(kScratchPage));
  EXPECT_EQ(pool->free_pages(), 0);
  auto more = pool->allocate(1);
  ASSERT_FALSE(more.is_ok());
  EXPECT_EQ(more.status().code(), Code::OutOfMemory);
  pool->release(*pages);
  EXPECT_EQ(pool->free_pages(), 7);
  EXPECT_TRUE(pool->check_integrity().is_ok());
}

TEST_F(KvPoolTest, RowsOfInt8HaveAScale) {
  EXPECT_EQ(shape.token_bytes(), 3u * 2 * 2 * 20);
  shape.dtype = DType::I8;
  EXPECT_EQ(shape.token_bytes(), 3u * 2 * 2 * 14);
  EXPECT_EQ(shape.page_bytes_per_layer(), 128u * 2 * 2 * 14);
}

TEST_F(KvPoolTest, LayersDoNotOverlap) {
  auto pool = KvPool::create(device->pool(), shape, 4);
  ASSERT_TRUE(pool.is_ok());
  const size_t layer_bytes = shape.page_bytes_per_layer() * 5;  // four and the scratch page
  EXPECT_EQ(pool->bytes(), layer_bytes * 3);
  auto* first = static_cast<uint8_t*>(pool->layer(0));
  EXPECT_EQ(static_cast<uint8_t*>(pool->layer(1)) - first, static_cast<ptrdiff_t>(layer_bytes));
  EXPECT_EQ(static_cast<uint8_t*>(pool->layer(2)) - first, static_cast<ptrdiff_t>(2 * layer_bytes));
}

TEST_F(KvPoolTest, AllocatingNothingIsFine) {
  auto pool = KvPool::create(device->pool(), shape, 1);
  ASSERT_TRUE(pool.is_ok());
  EXPECT_TRUE(pool->allocate(0)->empty());
  EXPECT_FALSE(pool->allocate(-1).is_ok());
  EXPECT_FALSE(KvPool::create(device->pool(), shape, 0).is_ok());
}

TEST_F(KvPoolTest, ReleasingTwiceStops) {
  auto pool = KvPool::create(device->pool(), shape, 2);
  ASSERT_TRUE(pool.is_ok());
  auto pages = pool->allocate(1);
  pool->release(*pages);
  EXPECT_DEATH(pool->release(*pages), "not in use");
}

TEST_F(KvPoolTest, RandomTrafficKeepsIntegrity) {
  auto pool = KvPool::create(device->pool(), shape, 50);
  ASSERT_TRUE(pool.is_ok());
  std::vector<std::vector<PageId>> held;
  uint32_t state = 12345;
  auto random = [&](uint32_t n) { return (state = state * 1664525u + 1013904223u) / 65536 % n; };
  for (int i = 0; i < 2000; ++i) {
    if (random(2) == 0) {
      if (auto pages = pool->allocate(random(9)); pages.is_ok()) held.push_back(*pages);
    } else if (!held.empty()) {
      const size_t at = random(static_cast<uint32_t>(held.size()));
      pool->release(held[at]);
      held.erase(held.begin() + static_cast<ptrdiff_t>(at));
    }
    ASSERT_TRUE(pool->check_integrity().is_ok()) << pool->check_integrity().message();
    size_t used = 0;
    for (auto& h : held) used += h.size();
    ASSERT_EQ(pool->free_pages(), static_cast<int64_t>(50 - used));
  }
}

}  // namespace
}  // namespace reprise::kv
