// A replayed step allocates nothing: every operator new of this program is counted (F01). Sanitizers bring their own
// allocator, so there the counter stays out of the way.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/sanitizer.h"
#include "support/tiny_models.h"

#if REPRISE_ASAN || REPRISE_TSAN
#define REPRISE_COUNTS_ALLOCATIONS 0
#else
#define REPRISE_COUNTS_ALLOCATIONS 1
namespace {
std::atomic<uint64_t> allocations{0};
void* counted(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(size ? size : 1)
                : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (!p) throw std::bad_alloc();
  return p;
}
}  // namespace
void* operator new(std::size_t size) { return counted(size, 1); }
void* operator new[](std::size_t size) { return counted(size, 1); }
void* operator new(std::size_t size, std::align_val_t a) { return counted(size, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t size, std::align_val_t a) { return counted(size, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
#endif

namespace reprise::no_allocation_test {
namespace {

TEST(Replay, AllocatesNothingAndCapturesNothing) {
#if !REPRISE_COUNTS_ALLOCATIONS
  GTEST_SKIP() << "the sanitizer's allocator is in place";
#else
  for (const char* model : {"qwen3_tied", "llama_gqa3_tied", "deepseek_v3_moe", "qwen2_moe_shared"}) {
    auto opened = testing_support::open_engine(testing_support::tiny_model_path(model), {.rows = 8});
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    engine::Engine& e = **opened;
    std::vector<engine::Sequence> sequences;
    for (int i = 0; i < 5; ++i) sequences.emplace_back(std::vector<int32_t>{1, 2, 3 + i});
    std::vector<engine::StepItem> items;
    for (auto& s : sequences) {
      ASSERT_TRUE(e.reserve(s, 100).is_ok());
      items.push_back({&s, 3, 1});
    }
    const auto captures = e.counters().captures;
    auto step = [&](bool greedy) {
      if (greedy) return e.step_greedy(items).status();
      return e.step(items).status();
    };
    ASSERT_TRUE(step(false).is_ok());
    for (auto& item : items) item.count = 1;
    for (int i = 0; i < 20; ++i) {
      for (auto& s : sequences) s.append(7 + i);
      const uint64_t before = allocations.load();
      const Status done = step(i % 2 == 0);
      const uint64_t after = allocations.load();
      ASSERT_TRUE(done.is_ok()) << done.message();
      // The first step of each kind may grow buffers that are kept; an eager run counts its reason.
      if (i >= 2) {
        EXPECT_EQ(after - before, 0u) << model << " step " << i;
      }
    }
    EXPECT_EQ(e.counters().captures, captures);
    for (auto& s : sequences) e.release(s);
  }
#endif
}

}  // namespace
}  // namespace reprise::no_allocation_test
