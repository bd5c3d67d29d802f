#include "kv/radix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "backends/null/null_device.h"
#include "kv/token_run.h"

namespace reprise::kv::radix_cache_test {
namespace {

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct RadixCacheTest : testing::Test {
  std::unique_ptr<Device> device = null::make_null_device();
  KvPool pool = std::move(KvPool::create(device->pool(), KvShape::grouped(1, 1, 2, DType::F32), 40)).value();
  RadixCache cache{pool};

  // A sequence that ran to its end without help of the cache.
  std::vector<PageId> finish(const Tokens& tokens, std::string_view salt = "") {
    auto pages = pool.allocate(pages_for(static_cast<int64_t>(tokens.size()))).value();
    const auto kept = pages;
    cache.insert(salt, tokens, pages, 0, true);
    check();
    return kept;
  }
  void check() {
    const Status tree = cache.check_integrity(), pages = pool.check_integrity();
    ASSERT_TRUE(tree.is_ok()) << tree.message();
    ASSERT_TRUE(pages.is_ok()) << pages.message();
  }
};

TEST_F(RadixCacheTest, FindsWholePagesAndTheBeginningOfTheNext) {
  const auto pages = finish(run(300));
  EXPECT_EQ(cache.held_pages(), 3);
  EXPECT_EQ(pool.free_pages(), 37);
  auto m = cache.match("", run(290) + Tokens{7, 7});
  EXPECT_EQ(m.tokens, 256);
  EXPECT_EQ(m.pages, (std::vector<PageId>{pages[0], pages[1]}));
  EXPECT_EQ(m.partial_tokens, 34);
  EXPECT_EQ(m.partial_page, pages[2]);
  EXPECT_EQ(cache.known_tokens("", run(290) + Tokens{7, 7}), 290);
  // The middle of a full page counts as well.
  m = cache.match("", run(200));
  EXPECT_EQ(m.tokens, 128);
  EXPECT_EQ(m.partial_tokens, 72);
  EXPECT_EQ(m.partial_page, pages[1]);
  // Too little to be worth a copy, and nothing.
  EXPECT_EQ(cache.match("", run(5)).partial_tokens, 0);
  EXPECT_EQ(cache.match("", run(300, 1)).tokens, 0);
  EXPECT_EQ(cache.match("", {}).tokens, 0);
  check();
}

TEST_F(RadixCacheTest, SaltsShareNothing) {
  finish(run(256), "a");
  EXPECT_EQ(cache.match("b", run(256)).tokens, 0);
  EXPECT_EQ(cache.match("", run(256)).tokens, 0);
  EXPECT_EQ(cache.match("a", run(256)).tokens, 256);
  finish(run(256), "b");
  EXPECT_EQ(cache.held_pages(), 4);
}

TEST_F(RadixCacheTest, ReplacesPagesThatItHasAlready) {
  const auto first = finish(run(200));
  auto pages = pool.allocate(3).value();
  const auto own = pages;
  // Grows: the second page is a different one, the third is not full and stays the caller's.
  const Tokens other = run(128) + run(128, 1000) + run(10);
  auto in = cache.insert("", other, pages, 0, false);
  EXPECT_EQ(in.pages, 2);
  EXPECT_EQ(pages, (std::vector<PageId>{first[0], own[1], own[2]}));
  EXPECT_FALSE(pool.in_use(own[0]));
  EXPECT_EQ(cache.held_pages(), 3);
  EXPECT_EQ(cache.evictable_pages(), 1);  // the 72 tokens of the first sequence
  // Its end: what is leased is not looked for again.
  in = cache.insert("", other, pages, in.pages, true);
  EXPECT_EQ(cache.held_pages(), 4);
  check();
}

TEST_F(RadixCacheTest, ALongerRunTakesThePlaceOfItsBeginning) {
  finish(run(150));
  finish(run(200));
  EXPECT_EQ(cache.held_pages(), 2);
  finish(run(170));  // known: its page goes back
  EXPECT_EQ(cache.held_pages(), 2);
  finish(run(256));
  EXPECT_EQ(cache.held_pages(), 2);
  finish(run(256 + 3));  // three tokens are not worth a page
  EXPECT_EQ(cache.held_pages(), 2);
  EXPECT_EQ(pool.free_pages(), 38);
  EXPECT_EQ(cache.known_tokens("", run(259)), 256);
}

TEST_F(RadixCacheTest, EvictsTheLongestUnusedLeavesAndNothingLeased) {
  finish(run(256));                       // 2 pages
  finish(run(256, 5000));                 // 2 pages
  auto held = cache.match("", run(128));  // the first page of the first
  cache.match("", run(256, 5000));
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_EQ(cache.known_tokens("", run(256)), 128);
  EXPECT_EQ(cache.evict(10), 2);
  EXPECT_EQ(cache.held_pages(), 1);
  EXPECT_EQ(cache.evictable_pages(), 0);
  EXPECT_EQ(cache.evict(0), 0);
  held = {};
  EXPECT_EQ(cache.evict(10), 1);
  EXPECT_EQ(pool.free_pages(), 40);
  EXPECT_EQ(cache.evicted_pages(), 4u);
  check();
}

TEST_F(RadixCacheTest, APartlyFilledPageStaysWhileItIsCopied) {
  const auto pages = finish(run(100));
  auto m = cache.match("", run(120));
  EXPECT_EQ(m.partial_tokens, 100);
  EXPECT_EQ(cache.evict(5), 0);
  m.partial_lease.reset();
  EXPECT_EQ(cache.evict(5), 1);
  EXPECT_FALSE(pool.in_use(pages[0]));
}

// Random traffic against a list of all sequences that were ever inserted. Without eviction the cache knows exactly what
// the list knows; with it never more. Integrity after every step.
TEST_F(RadixCacheTest, RandomTrafficAgreesWithAListOfSequences) {
  std::mt19937 rng(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
  for (const bool evicts : {false, true}) {
    KvPool pool =
        std::move(KvPool::create(device->pool(), KvShape::grouped(1, 1, 2, DType::F32), evicts ? 25 : 9000)).value();
    RadixCache cache(pool);
    std::vector<Tokens> list;
    struct Live {
      Tokens tokens;
      std::vector<PageId> pages;
      int64_t cached = 0;
      RadixCache::Lease lease;
    };
    std::vector<Live> live;
    const auto longest = [&](const Tokens& t) {
      int64_t best = 0;
      for (const Tokens& l : list) {
        const auto n = std::min(l.size(), t.size());
        int64_t c = std::mismatch(l.begin(), l.begin() + static_cast<ptrdiff_t>(n), t.begin()).first - l.begin();
        const int64_t part = c % kPageTokens;
        if (part < 8) c -= part;
        best = std::max(best, c);
      }
      return best;
    };
    for (int i = 0; i < 3000; ++i) {
      if (live.size() < 4 && below(2) == 0) {
        // Few distinct tokens in long runs, so that prefixes coincide at odd places.
        Tokens t;
        while (below(6) != 0 && t.size() < 700)
          t = t + Tokens(static_cast<size_t>(1 + below(90)), static_cast<int32_t>(below(2)));
        if (t.empty()) continue;
        const int64_t known = cache.known_tokens("", t);
        if (evicts)
          ASSERT_LE(known, longest(t));
        else
          ASSERT_EQ(known, longest(t)) << i;
        Live l;
        auto m = cache.match("", t);
        ASSERT_EQ(m.tokens + m.partial_tokens, known);
        const int64_t need = pages_for(static_cast<int64_t>(t.size())) - static_cast<int64_t>(m.pages.size());
        if (evicts) cache.evict(std::max<int64_t>(0, need - pool.free_pages()));
        auto fresh = pool.allocate(need);
        ASSERT_TRUE(evicts || fresh.is_ok());
        if (!fresh) continue;
        l = {t, m.pages, static_cast<int64_t>(m.pages.size()), std::move(m.lease)};
        l.pages.insert(l.pages.end(), fresh->begin(), fresh->end());
        live.push_back(std::move(l));
      } else if (!live.empty()) {
        Live& l = live[static_cast<size_t>(below(static_cast<int64_t>(live.size())))];
        const bool ends = below(2) == 0;
        auto in = cache.insert("", l.tokens, l.pages, l.cached, ends);
        l.cached = in.pages;
        l.lease = std::move(in.lease);
        Tokens known = l.tokens;
        if (!ends) known.resize(static_cast<size_t>(in.pages * kPageTokens));
        list.push_back(std::move(known));
        if (ends) {
          std::swap(l, live.back());
          live.pop_back();
        }
      }
      const Status ok = cache.check_integrity();
      ASSERT_TRUE(ok.is_ok()) << ok.message();
      ASSERT_TRUE(pool.check_integrity().is_ok());
      int64_t own = 0;
      for (const Live& l : live) own += static_cast<int64_t>(l.pages.size()) - l.cached;
      ASSERT_EQ(pool.free_pages() + cache.held_pages() + own, pool.total_pages());
    }
    for (Live& l : live) {
      l.lease.reset();
      pool.release(std::span(l.pages).subspan(static_cast<size_t>(l.cached)));
    }
  }
}

}  // namespace
}  // namespace reprise::kv::radix_cache_test
