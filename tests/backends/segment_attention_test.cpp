// segment_attention against double precision and against itself: heads that share keys, windows, large heads; a
// sequence's bits are the same alone, in a batch and with any number of threads.
#include <gtest/gtest.h>

#include "backends/op_runner.h"
#include "backends/reference.h"

namespace reprise::cpu::segment_attention_test {
namespace {

using reference::Numbers;

struct Case {
  int64_t heads, kv_heads, size, window;
  std::string name() const { return fmt::format("H {} G {} D {} window {}", heads, kv_heads, size, window); }
};

const Case kCases[] = {{2, 2, 20, 0}, {6, 2, 12, 0}, {3, 1, 256, 9}, {6, 3, 24, 13}, {4, 1, 40, 1}, {2, 2, 64, 40}};

constexpr double kScale = 0.3;

// Borders of sequences, one of them empty; the longest has several panels of keys.
const std::vector<int64_t> kBorders{0, 17, 17, 18, 121};

struct Rows {
  TestTensor q, k, v;
};

Rows random_rows(const Case& c, DType t) {
  const int64_t rows = kBorders.back();
  return {random_tensor(t, {rows, c.heads, c.size}, 1, -2, 2), random_tensor(t, {rows, c.kv_heads, c.size}, 2, -2, 2),
          random_tensor(t, {rows, c.kv_heads, c.size}, 3)};
}

TestTensor attend(const OpRunner& runner, const Case& c, const Rows& rows, const std::vector<int64_t>& borders,
                  int threads) {
  const std::vector<double> numbers(borders.begin(), borders.end());
  const TestTensor index = tensor_of(DType::I32, {static_cast<int64_t>(numbers.size())}, numbers);
  return runner.run("segment_attention", {rows.q, rows.k, rows.v, index}, {{"scale", kScale}, {"window", c.window}},
                    {.threads = threads})[0];
}

Numbers head_of(const TestTensor& t, int64_t row, int64_t head) {
  const int64_t heads = t.type.shape[1].factor, size = t.type.shape[2].factor;
  Numbers out;
  for (int64_t d = 0; d < size; ++d) out.push_back(t.get((row * heads + head) * size + d));
  return out;
}

// Row `row` of the sequence of rows [begin, end).
Numbers expected(const Case& c, const Rows& rows, int64_t begin, int64_t end, int64_t row, int64_t head) {
  Numbers keys, values;
  const int64_t group = head / (c.heads / c.kv_heads);
  for (int64_t j = begin; j < end; ++j) {
    if (c.window > 0 && std::abs(j - row) >= c.window) continue;
    const Numbers key = head_of(rows.k, j, group), value = head_of(rows.v, j, group);
    keys.insert(keys.end(), key.begin(), key.end());
    values.insert(values.end(), value.begin(), value.end());
  }
  return reference::attend(head_of(rows.q, row, head), keys, values, 0, keys.size() / static_cast<size_t>(c.size),
                           kScale);
}

class SegmentAttention : public testing::TestWithParam<Isa> {};

TEST_P(SegmentAttention, IsThatOfTheReference) {
  const OpRunner runner(GetParam());
  for (const DType t : kDTypes)
    for (const Case& c : kCases) {
      const Rows rows = random_rows(c, t);
      Numbers want;
      for (size_t r = 0; r + 1 < kBorders.size(); ++r)
        for (int64_t row = kBorders[r]; row < kBorders[r + 1]; ++row)
          for (int64_t h = 0; h < c.heads; ++h) {
            const Numbers one = expected(c, rows, kBorders[r], kBorders[r + 1], row, h);
            want.insert(want.end(), one.begin(), one.end());
          }
      const double rounding = t == DType::F32 ? 1e-5 : unit_roundoff(t);
      expect_close(attend(runner, c, rows, kBorders, 2), want, rounding, 2e-5, c.name());
    }
}

TEST_P(SegmentAttention, GivesTheSameBitsAloneAndWithAnyNumberOfThreads) {
  const OpRunner runner(GetParam());
  for (const DType t : {DType::F32, DType::BF16})
    for (const Case& c : kCases) {
      const Rows rows = random_rows(c, t);
      const TestTensor all = attend(runner, c, rows, kBorders, 1);
      for (const int threads : {2, 5}) expect_same_bits(attend(runner, c, rows, kBorders, threads), all, c.name());
      const int64_t first = kBorders[3], count = kBorders[4] - first;
      const Rows last{rows_of(rows.q, first, count), rows_of(rows.k, first, count), rows_of(rows.v, first, count)};
      expect_same_bits(attend(runner, c, last, {0, count}, 2), rows_of(all, first, count), c.name());
    }
}

// Sets with a multiply-add of one rounding add up in one order.
TEST(SegmentAttentionOrder, IsThatOfEveryInstructionSet) {
  const std::vector<Isa> isas = supported_isas();
  for (const Case& c : kCases) {
    const Rows rows = random_rows(c, DType::F32);
    std::optional<TestTensor> first;
    for (const Isa isa : isas) {
      if (isa == Isa::Baseline) continue;
      const TestTensor out = attend(OpRunner(isa), c, rows, kBorders, 1);
      if (!first) first = out;
      expect_same_bits(out, *first, fmt::format("{} {}", isa_name(isa), c.name()));
    }
  }
}

TEST(SegmentAttentionTypes, WhatDoesNotFitIsNamed) {
  const OpRunner runner(supported_isas().front());
  const auto message = [&](std::vector<int64_t> q, std::vector<int64_t> k, int64_t window) {
    const TensorType a{DType::F32, constant_shape(q)}, b{DType::F32, constant_shape(k)};
    const auto entry =
        runner.choose("segment_attention", {a, b, b, {DType::I32, {Dim(2)}}}, {{"scale", 1.0}, {"window", window}});
    return entry.is_ok() ? std::string() : entry.status().message();
  };
  EXPECT_EQ(message({4, 6, 8}, {4, 3, 8}, 0), "");
  EXPECT_NE(message({4, 6, 8}, {4, 4, 8}, 0).find("6 query heads are not a multiple of 4"), std::string::npos);
  EXPECT_NE(message({4, 6, 8}, {4, 3, 16}, 0).find("size of a head"), std::string::npos);
  EXPECT_NE(message({4, 6, 8}, {5, 3, 8}, 0).find("number of rows"), std::string::npos);
  EXPECT_NE(message({4, 6, 8}, {4, 3, 8}, -1).find("window -1"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, SegmentAttention, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::segment_attention_test
