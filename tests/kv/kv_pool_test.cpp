#include "kv/kv_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "backends/null/null_device.h"

namespace reprise::kv::kv_pool_test {
namespace {

struct KvPoolTest : testing::Test {
  std::unique_ptr<Device> device = null::make_null_device();
  KvShape shape = KvShape::grouped(3, 2, 10, DType::BF16);
};

TEST(Pages, ForLengths) {
  EXPECT_EQ(pages_for(0), 0);
  EXPECT_EQ(pages_for(1), 1);
  EXPECT_EQ(pages_for(127), 1);
  EXPECT_EQ(pages_for(128), 1);
  EXPECT_EQ(pages_for(129), 2);
  EXPECT_EQ(pages_for(640), 5);
}

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

TEST_F(KvPoolTest, MoreScratchPagesLieBehindThoseThatAreHandedOut) {
  auto pool = KvPool::create(device->pool(), shape, 4, 3);
  ASSERT_TRUE(pool.is_ok());
  EXPECT_EQ(pool->total_pages(), 4);
  EXPECT_EQ(pool->scratch_pages(), 3);
  EXPECT_EQ(pool->bytes(), shape.page_bytes() * 7);
  EXPECT_EQ(pool->page(1, 0) - pool->page(0, 0), static_cast<ptrdiff_t>(shape.caches[0].page_bytes * 7));
  auto pages = pool->allocate(4);
  ASSERT_TRUE(pages.is_ok());
  for (const PageId p : *pages) EXPECT_TRUE(p >= 1 && p <= 4) << p;
  EXPECT_FALSE(pool->allocate(1).is_ok());
  const auto copy = [](void* to, const void* from, size_t n) { return std::memcpy(to, from, n), Status::ok(); };
  ASSERT_TRUE(pool->resize(device->pool(), 9, copy).is_ok());
  EXPECT_EQ(pool->total_pages(), 9);
  EXPECT_EQ(pool->scratch_pages(), 3);
  EXPECT_EQ(pool->bytes(), shape.page_bytes() * 12);
  EXPECT_TRUE(pool->check_integrity().is_ok());
  pool->release(*pages);
}

TEST_F(KvPoolTest, RowsOfInt8HaveAScale) {
  EXPECT_EQ(shape.token_bytes(), 3u * 2 * 2 * 20);
  shape = KvShape::grouped(3, 2, 10, DType::I8);
  EXPECT_EQ(shape.token_bytes(), 3u * 2 * 2 * 14);
  EXPECT_EQ(shape.caches[0].page_bytes, 128u * 2 * 2 * 14);
}

TEST_F(KvPoolTest, CachesDoNotOverlap) {
  auto pool = KvPool::create(device->pool(), shape, 4);
  ASSERT_TRUE(pool.is_ok());
  const size_t cache_bytes = shape.caches[0].page_bytes * 5;  // four and the scratch page
  EXPECT_EQ(pool->bytes(), cache_bytes * 3);
  auto* first = static_cast<uint8_t*>(pool->cache(0));
  EXPECT_EQ(static_cast<uint8_t*>(pool->cache(1)) - first, static_cast<ptrdiff_t>(cache_bytes));
  EXPECT_EQ(static_cast<uint8_t*>(pool->cache(2)) - first, static_cast<ptrdiff_t>(2 * cache_bytes));
}

TEST_F(KvPoolTest, CachesMayDiffer) {
  shape.caches = {{"latent", 1000}, {"rope", 24}, {"latent2", 1000}};
  EXPECT_EQ(shape.page_bytes(), 2024u);
  auto pool = KvPool::create(device->pool(), shape, 4);
  ASSERT_TRUE(pool.is_ok());
  auto* first = static_cast<uint8_t*>(pool->cache(0));
  EXPECT_EQ(static_cast<uint8_t*>(pool->cache(1)) - first, 5000);
  EXPECT_EQ(static_cast<uint8_t*>(pool->cache(2)) - first, 5000 + 5 * 24);
  const std::vector<PageId> pages = *pool->allocate(2);
  const auto copy = [](void* to, const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return Status::ok();
  };
  for (size_t c = 0; c < 3; ++c)
    std::memset(pool->page(c, pages[0]), static_cast<int>(c) + 1, shape.caches[c].page_bytes);
  ASSERT_TRUE(pool->copy_page(pages[0], pages[1], copy).is_ok());
  // A device that only queues copies does them when it is waited for, and the old memory is there until then.
  std::vector<std::function<void()>> queued;
  const auto queue = [&](void* to, const void* from, size_t bytes) {
    queued.emplace_back([=] { std::memcpy(to, from, bytes); });
    return Status::ok();
  };
  const auto wait = [&] {
    for (const auto& one : queued) one();
    return Status::ok();
  };
  ASSERT_TRUE(pool->resize(device->pool(), 9, queue, wait).is_ok());
  EXPECT_EQ(queued.size(), 2 * shape.caches.size());
  for (size_t c = 0; c < 3; ++c)
    for (size_t i = 0; i < shape.caches[c].page_bytes; ++i)
      ASSERT_EQ(pool->page(c, pages[1])[i], c + 1) << c << " " << i;
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
}  // namespace reprise::kv::kv_pool_test
