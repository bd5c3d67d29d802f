// What every MemoryPool must do (device/memory.h).
#include <algorithm>
#include <atomic>
#include <thread>

#include "device/conformance.h"

namespace reprise::conformance::pool_conformance_test {
namespace {

REPRISE_CONFORMANCE(Pool);

constexpr size_t kLarge = size_t{2} << 20;

TEST_P(Pool, IsZeroFilled) {
  for (size_t bytes : {size_t{1}, size_t{255}, size_t{4097}, kLarge, 3 * kLarge + 5}) {
    const std::vector<uint8_t> dirt(bytes, 0xa5);
    for (int again = 0; again < 3; ++again) {  // bytes that come back must be clean as well
      const Buffer b = memory(bytes);
      ASSERT_EQ(b.size(), bytes);
      const auto found = read_bytes(b);
      EXPECT_TRUE(std::all_of(found.begin(), found.end(), [](uint8_t v) { return v == 0; })) << bytes;
      write(b, dirt.data(), bytes);
      EXPECT_EQ(read_bytes(b), dirt) << bytes;
    }
  }
}

TEST_P(Pool, IsAligned) {
  std::vector<Buffer> held;
  for (size_t bytes : {size_t{1}, size_t{3}, size_t{257}, size_t{5000}, kLarge - 1, kLarge, kLarge + 1, 2 * kLarge + 3})
    for (int i = 0; i < 3; ++i) {
      held.push_back(memory(bytes));
      const size_t alignment = bytes >= kLarge ? kLarge : 256;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(held.back().data()) % alignment, 0u) << bytes;
    }
}

TEST_P(Pool, NoBytesGiveAnEmptyBuffer) {
  const Buffer b = memory(0);
  EXPECT_FALSE(b);
  EXPECT_EQ(b.size(), 0u);
  EXPECT_TRUE(device->pool().stats().live_by_label.empty());
}

TEST_P(Pool, CountsLiveAndPeakBytesByLabel) {
  MemoryPool& pool = device->pool();
  const PoolStats before = pool.stats();
  {
    Buffer a = pool.allocate(1000, "a").value();
    Buffer b = pool.allocate(77, "b").value();
    Buffer more = pool.allocate(23, "a").value();
    PoolStats s = pool.stats();
    EXPECT_EQ(s.live_bytes, before.live_bytes + 1100);
    EXPECT_EQ(s.live_by_label.at("a"), 1023u);
    EXPECT_EQ(s.live_by_label.at("b"), 77u);
    b = Buffer();
    s = pool.stats();
    EXPECT_EQ(s.live_bytes, before.live_bytes + 1023);
    EXPECT_EQ(s.peak_bytes, before.live_bytes + 1100);
    EXPECT_FALSE(s.live_by_label.contains("b"));
    Buffer moved = std::move(a);
    EXPECT_EQ(pool.stats().live_bytes, before.live_bytes + 1023);
  }
  EXPECT_EQ(pool.stats().live_bytes, before.live_bytes);
  EXPECT_EQ(pool.stats().peak_bytes, before.live_bytes + 1100);
  EXPECT_EQ(pool.stats().live_by_label, before.live_by_label);
}

TEST_P(Pool, RefusesWhatCannotBeHad) {
  MemoryPool& pool = device->pool();
  const PoolStats before = pool.stats();
  for (size_t bytes : {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 4, size_t{1} << 60}) {
    auto b = pool.allocate(bytes, "everything");
    ASSERT_FALSE(b) << bytes;
    EXPECT_EQ(b.status().code(), Code::OutOfMemory);
    EXPECT_NE(b.status().message().find("everything"), std::string::npos) << b.status().message();
    EXPECT_NE(b.status().message().find(std::to_string(bytes)), std::string::npos) << b.status().message();
  }
  EXPECT_EQ(pool.stats().live_bytes, before.live_bytes);
  EXPECT_EQ(pool.stats().peak_bytes, before.peak_bytes);
  EXPECT_TRUE(memory(64)) << "the pool is not usable any more";
}

TEST_P(Pool, ServesManyThreads) {
  MemoryPool& pool = device->pool();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::string label = "thread " + std::to_string(t);
      for (size_t i = 1; i <= 50; ++i) {
        auto a = pool.allocate(i * 37, label), b = pool.allocate(i, "shared");
        if (!a || !b || pool.stats().live_by_label[label] != i * 37) ++failures;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(pool.stats().live_bytes, 0u);
}

TEST_P(Pool, HostMemoryIsTheHosts) {
  MemoryPool& pool = device->host_pool();
  EXPECT_EQ(&pool == &device->pool(), info().host_visible);
  const Buffer b = pool.allocate(777, "host").value();
  for (size_t i = 0; i < b.size(); ++i) {
    EXPECT_EQ(b.as<uint8_t>()[i], 0u);
    b.as<uint8_t>()[i] = static_cast<uint8_t>(i);
  }
  EXPECT_EQ(b.as<uint8_t>()[776], 8u);
  EXPECT_EQ(pool.stats().live_by_label.at("host"), 777u);
}

}  // namespace
}  // namespace reprise::conformance::pool_conformance_test
