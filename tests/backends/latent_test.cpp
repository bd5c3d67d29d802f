// The ops of multi-head latent attention against double precision and against themselves: the bits rule over batches,
// chunks, page places, pool sizes, and caches full of NaN where nothing was written.
#include <gtest/gtest.h>

#include "backends/paged_step.h"

namespace reprise::cpu::latent_test {
namespace {

constexpr DType kDtypes[] = {DType::F32, DType::BF16, DType::F16};

TEST(PerHeadMatmul, IsALinearForEveryHead) {
  struct Case {
    int64_t tokens, heads, k, n;
  };
  const Case cases[] = {{1, 3, 12, 20},   {5, 3, 20, 10},   {7, 2, 33, 64},
                        {13, 1, 128, 65}, {97, 2, 17, 130}, {3, 5, 64, 200}};
  for (const Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const DType dtype : kDtypes)
      for (const Case& c : cases) {
        const std::string what =
            fmt::format("{} {} T {} H {} K {} N {}", isa_name(isa), dtype_name(dtype), c.tokens, c.heads, c.k, c.n);
        const TestTensor x = random_tensor(dtype, {c.tokens, c.heads, c.k}, 1);
        const TestTensor w = random_tensor(dtype, {c.heads, c.n, c.k}, 2);
        const TestTensor got = runner.run("per_head_matmul", {x, w})[0];
        for (const int threads : {2, 3})
          expect_same_bits(runner.run("per_head_matmul", {x, w}, {}, {.threads = threads})[0], got, what);
        for (int64_t h = 0; h < c.heads; ++h) {
          TestTensor rows = zero_tensor(dtype, {c.tokens, c.k}), part = zero_tensor(dtype, {c.tokens, c.n});
          for (int64_t t = 0; t < c.tokens; ++t) {
            for (int64_t i = 0; i < c.k; ++i) rows.set(t * c.k + i, x.get((t * c.heads + h) * c.k + i));
            for (int64_t i = 0; i < c.n; ++i) part.set(t * c.n + i, got.get((t * c.heads + h) * c.n + i));
          }
          TestTensor matrix = rows_of(w, h, 1);
          matrix.type.shape = constant_shape({c.n, c.k});
          expect_same_bits(runner.run("linear", {rows, matrix})[0], part, what);
        }
      }
  }
}

TEST(Rope, InterleavedTurnsNeighboursAndPutsThemApart) {
  for (const Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const DType dtype : kDtypes)
      for (const int64_t size : {2, 8, 12, 16, 40, 64}) {
        const int64_t tokens = 3, heads = 2, rot = size > 8 ? size - 4 : size;
        const TestTensor x = random_tensor(dtype, {tokens, heads, size}, 5),
                         table = random_tensor(DType::F32, {tokens, rot}, 6);
        // The same pairs, the first of all before the second of all.
        const auto place = [&](int64_t i) { return i >= rot ? i : i % 2 * (rot / 2) + i / 2; };
        TestTensor apart = x;
        for (int64_t r = 0; r < tokens * heads; ++r)
          for (int64_t i = 0; i < size; ++i) apart.set(r * size + place(i), x.get(r * size + i));
        const TestTensor want = runner.run("rope", {apart, table})[0];
        const TestTensor got = runner.run("rope", {x, table}, {{"interleaved", int64_t{1}}}, {.threads = 2})[0];
        expect_same_bits(got, want, fmt::format("{} {} size {}", isa_name(isa), dtype_name(dtype), size));
      }
  }
}

TEST(Slice, TakesColumnsOfEveryHead) {
  const OpRunner runner(Isa::Baseline);
  const TestTensor x = random_tensor(DType::BF16, {3, 5, 11}, 7);
  const TestTensor got = runner.run("slice", {x}, {{"begin", int64_t{4}}, {"size", int64_t{6}}}, {.threads = 2})[0];
  ASSERT_EQ(got.size(), 3 * 5 * 6);
  for (int64_t r = 0; r < 15; ++r)
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(got.get(r * 6 + i), x.get(r * 11 + 4 + i));
}

TEST(Concat, PutsColumnsSideBySide) {
  const OpRunner runner(Isa::Baseline);
  const TestTensor a = random_tensor(DType::BF16, {5, 3}, 10), b = random_tensor(DType::BF16, {5, 4}, 11);
  const TestTensor got = runner.run("concat", {a, b}, {}, {.threads = 2})[0];
  ASSERT_EQ(got.size(), 5 * 7);
  for (int64_t r = 0; r < 5; ++r)
    for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(got.get(r * 7 + i), i < 3 ? a.get(r * 3 + i) : b.get(r * 4 + i - 3));
}

TEST(RowWrite, StoresRowsAndSkipsNegativeSlots) {
  const OpRunner runner(Isa::Baseline);
  TestTensor cache = random_tensor(DType::BF16, {3, kPageTokens, 7}, 8);
  const TestTensor rows = random_tensor(DType::BF16, {4, 7}, 9);
  const std::vector<double> slots{2 * kPageTokens + 5, -1, 0, 3 * kPageTokens - 1};
  const TestTensor got = runner.run("row_write", {cache, rows, indices(slots)}, {}, {.threads = 3})[0];
  for (size_t t = 0; t < slots.size(); ++t)
    for (int64_t i = 0; slots[t] >= 0 && i < 7; ++i)
      cache.set(static_cast<int64_t>(slots[t]) * 7 + i, rows.get(static_cast<int64_t>(t) * 7 + i));
  expect_same_bits(got, cache);
}

struct Model {
  DType dtype = DType::F32;
  int64_t heads = 3, latent = 20, rope = 8;
  double scale() const { return 1 / std::sqrt(static_cast<double>(latent)); }
  std::string name() const { return fmt::format("{} H {} C {} D {}", dtype_name(dtype), heads, latent, rope); }
};

// Queries and cache rows of every token of a sequence.
struct Sequence {
  TestTensor q, q_rope, latents, ropes;
};

Sequence make_sequence(const Model& m, int64_t length, uint32_t seed) {
  return {random_tensor(m.dtype, {length, m.heads, m.latent}, seed, -2, 2),
          random_tensor(m.dtype, {length, m.heads, m.rope}, seed + 1000, -2, 2),
          random_tensor(m.dtype, {length, m.latent}, seed + 2000, -2, 2),
          random_tensor(m.dtype, {length, m.rope}, seed + 3000, -2, 2)};
}

// Tokens [from, to) are this step's; those before are in the cache.
struct Part {
  const Sequence* sequence;
  int64_t from, to;
};

// `dot`: whether bf16 uses vdpbf16ps where it can; -1: what is faster here.
TestTensor step(const OpRunner& runner, const Model& m, const std::vector<Part>& parts, int threads = 1,
                uint32_t page_seed = 1, int dot = -1) {
  const PagedStep at(parts, page_seed);
  std::vector<TestTensor> q, q_rope, latents, ropes;
  for (const Part& p : parts) {
    q.push_back(rows_of(p.sequence->q, p.from, p.to - p.from));
    q_rope.push_back(rows_of(p.sequence->q_rope, p.from, p.to - p.from));
    latents.push_back(rows_of(p.sequence->latents, 0, p.to));
    ropes.push_back(rows_of(p.sequence->ropes, 0, p.to));
  }
  const auto cache = [&](int64_t width, const std::vector<TestTensor>& rows) {
    TestTensor empty = zero_tensor(m.dtype, {at.pages, kPageTokens, width});
    std::fill(empty.bytes.begin(), empty.bytes.end(), uint8_t{0xff});
    return runner.run("row_write", {empty, concat(rows), at.slots}, {}, {.threads = threads})[0];
  };
  RunOptions run{.threads = threads};
  if (dot >= 0) run.adjust = [dot](LaunchArgs& args) { args.way = dot; };
  return runner.run(
      "latent_attention",
      {concat(q), concat(q_rope), cache(m.latent, latents), cache(m.rope, ropes), at.table, at.lengths, at.starts},
      {{"scale", m.scale()}}, run)[0];
}

std::vector<double> reference(const Model& m, const Sequence& s, int64_t from, int64_t to) {
  std::vector<double> out;
  for (int64_t t = from; t < to; ++t)
    for (int64_t h = 0; h < m.heads; ++h) {
      std::vector<double> weights;
      double top = -1e300, sum = 0;
      for (int64_t j = 0; j <= t; ++j) {
        double dot = 0;
        for (int64_t i = 0; i < m.latent; ++i)
          dot += s.q.get((t * m.heads + h) * m.latent + i) * s.latents.get(j * m.latent + i);
        for (int64_t i = 0; i < m.rope; ++i)
          dot += s.q_rope.get((t * m.heads + h) * m.rope + i) * s.ropes.get(j * m.rope + i);
        weights.push_back(dot * m.scale());
        top = std::max(top, weights.back());
      }
      for (double& w : weights) sum += w = std::exp(w - top);
      for (int64_t i = 0; i < m.latent; ++i) {
        double value = 0;
        for (int64_t j = 0; j <= t; ++j) value += weights[static_cast<size_t>(j)] * s.latents.get(j * m.latent + i);
        out.push_back(value / sum);
      }
    }
  return out;
}

const Model kModels[] = {{DType::F32, 3, 20, 8},     {DType::F32, 16, 64, 16}, {DType::BF16, 5, 36, 12},
                         {DType::BF16, 16, 128, 64}, {DType::F16, 1, 17, 6},   {DType::BF16, 40, 80, 2},
                         {DType::F32, 7, 512, 64}};

TEST(LatentAttention, MatchesTheReference) {
  for (const Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const Model& m : kModels) {
      const Sequence s = make_sequence(m, 293, 11);
      const double e = unit_roundoff(m.dtype);
      for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 1}, {0, 61}, {127, 128}, {128, 130}, {200, 293}})
        // With the dot instruction and on tiles, weights are rounded to bf16: half a unit of them, times values up
        // to 2.
        expect_close(step(runner, m, {{&s, from, to}}), reference(m, s, from, to), 1.01 * e,
                     m.dtype == DType::F32                                          ? 3e-6
                     : m.dtype == DType::BF16 && (is_avx512(isa) || has_tiles(isa)) ? 2 * e
                                                                                    : 1e-5,
                     fmt::format("{} {} {}..{}", isa_name(isa), m.name(), from, to));
    }
  }
}

TEST(LatentAttention, SameBitsInAnyBatchChunkTeamAndPlace) {
  for (const Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const Model& m : kModels) {
      const std::string what = fmt::format("{} {}", isa_name(isa), m.name());
      const Sequence a = make_sequence(m, 300, 21), b = make_sequence(m, 140, 22), c = make_sequence(m, 129, 23);
      const TestTensor whole = step(runner, m, {{&a, 0, 300}});
      for (const int threads : {2, 3}) expect_same_bits(step(runner, m, {{&a, 0, 300}}, threads, 5), whole, what);
      for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 1}, {1, 131}, {131, 132}, {255, 300}, {299, 300}})
        for (const int threads : {1, 2})
          expect_same_bits(step(runner, m, {{&a, from, to}}, threads, 9), rows_of(whole, from, to - from), what);
      const TestTensor batch = step(runner, m, {{&b, 139, 140}, {&a, 250, 300}, {&c, 0, 129}, {&a, 299, 300}}, 3);
      expect_same_bits(rows_of(batch, 0, 1), step(runner, m, {{&b, 139, 140}}), what);
      expect_same_bits(rows_of(batch, 1, 50), rows_of(whole, 250, 50), what);
      expect_same_bits(rows_of(batch, 51, 129), step(runner, m, {{&c, 0, 129}}, 2), what);
      expect_same_bits(rows_of(batch, 180, 1), rows_of(whole, 299, 1), what);
    }
  }
}

TEST(LatentAttention, BothWaysOfBf16PairsHaveTheSameBits) {
  if (!is_avx512(supported_isas().back())) GTEST_SKIP() << "this processor has no bf16 dot instruction";
  const OpRunner runner(Isa::Avx512);
  for (const Model& m : {Model{DType::BF16, 5, 36, 12}, Model{DType::BF16, 16, 512, 64}, Model{DType::BF16, 40, 80, 2},
                         Model{DType::BF16, 3, 1, 1}, Model{DType::BF16, 7, 97, 31}}) {
    // Subnormal numbers and products: the instruction takes them as zeros.
    Sequence s = make_sequence(m, 301, 41);
    for (int64_t i = 0; i < s.latents.size(); i += 3) s.latents.set(i, s.latents.get(i) * 1e-38);
    for (int64_t i = 1; i < s.ropes.size(); i += 5) s.ropes.set(i, s.ropes.get(i) * 1e-39);
    const TestTensor want = step(runner, m, {{&s, 0, 301}}, 1, 1, 1);
    expect_same_bits(step(runner, m, {{&s, 0, 301}}, 2, 3, 0), want, m.name());
    for (const int dot : {0, 1})
      for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}, {127, 129}, {128, 257}, {300, 301}})
        expect_same_bits(step(runner, m, {{&s, from, to}}, 3, 5, dot), rows_of(want, from, to - from),
                         fmt::format("{} tokens {} to {}, dot {}", m.name(), from, to, dot));
  }
}

TEST(LatentAttention, NaNOfALaterTokenStaysThere) {
  for (const Model& m : {Model{DType::BF16, 16, 64, 16}, Model{DType::BF16, 3, 37, 5}, Model{DType::F32, 3, 37, 5}})
    for (const Isa isa : isas_with_tiles()) {
      const OpRunner runner(isa);
      for (const int64_t late : {139, 140})
        for (const int dot : {0, 1}) {
          Sequence s = make_sequence(m, 150, 31);
          const TestTensor clean = step(runner, m, {{&s, 100, 150}}, 1, 1, dot);
          for (int64_t i = 0; i < m.latent; ++i) s.latents.set(late * m.latent + i, std::nan(""));
          const TestTensor got = step(runner, m, {{&s, 100, 150}}, 1, 1, dot);
          const int64_t before = late - 100;
          expect_same_bits(rows_of(got, 0, before), rows_of(clean, 0, before),
                           fmt::format("{} {} dot {}", isa_name(isa), m.name(), dot));
          EXPECT_TRUE(std::isnan(got.get(before * m.heads * m.latent)));
        }
    }
}

TEST(LatentOps, WrongOperandsAreNamed) {
  const OpRunner runner(Isa::Baseline);
  const auto type = [](DType t, std::initializer_list<int64_t> sizes) {
    return TensorType{t, constant_shape(std::vector<int64_t>(sizes))};
  };
  const auto refused = runner.choose("per_head_matmul", {type(DType::F32, {2, 3, 8}), type(DType::F32, {4, 8, 8})});
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("weight's number of heads"), std::string::npos)
      << refused.status().message();
  const auto page =
      runner.choose("row_write", {type(DType::F32, {2, 64, 8}), type(DType::F32, {1, 8}), type(DType::I32, {1})});
  ASSERT_FALSE(page.is_ok());
  EXPECT_NE(page.status().message().find("tokens of a page"), std::string::npos) << page.status().message();
  const auto way =
      runner.choose("rope", {type(DType::F32, {1, 1, 8}), type(DType::F32, {1, 8})}, {{"interleaved", int64_t{2}}});
  ASSERT_FALSE(way.is_ok());
  EXPECT_NE(way.status().message().find("allowed: 0, 1"), std::string::npos) << way.status().message();
}

}  // namespace
}  // namespace reprise::cpu::latent_test
