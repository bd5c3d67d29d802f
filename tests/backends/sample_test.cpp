// The op that draws tokens: the same on every instruction set and number of threads, as the rule of ops/draw_rule.h
// compiled for the plain processor has it; log-probabilities against double arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backends/op_runner.h"
#include "ops/draw_rule.h"

namespace reprise::cpu::sample_test {
namespace {

constexpr int64_t kMost = kMostTopTokens;

TestTensor draws_of(const std::vector<Draw>& draws) {
  TestTensor t = zero_tensor(DType::I32, {static_cast<int64_t>(draws.size()), kDrawWords});
  std::memcpy(t.bytes.data(), draws.data(), t.bytes.size());
  return t;
}

// Rows of logits as models give them: a normal cloud, and a few tokens far above it.
TestTensor logits_of(int64_t rows, int64_t n, uint32_t seed) {
  TestTensor t = zero_tensor(DType::F32, {rows, n});
  std::mt19937 gen(seed);
  std::normal_distribution<double> cloud(0, 2);
  for (int64_t i = 0; i < t.size(); ++i) t.set(i, cloud(gen));
  for (int64_t r = 0; r < rows; ++r)
    for (int i = 0; i < 5; ++i) t.set(r * n + static_cast<int64_t>(gen() % static_cast<uint64_t>(n)), 6 + 1.5 * i);
  return t;
}

std::vector<Draw> draws_for(int64_t rows, uint64_t seed) {
  std::vector<Draw> out;
  for (int64_t r = 0; r < rows; ++r) {
    Draw d{.scale = 0.3f + 0.25f * static_cast<float>(r % 7), .seed = seed, .position = r};
    if (r % 8 == 1) d.scale = 0;
    if (r % 8 == 2) d.top_k = 1 + static_cast<int32_t>(r * 3);
    if (r % 8 == 3) d.top_p = 0.9f;
    if (r % 8 == 4) d.min_p = 0.05f;
    if (r % 8 == 5) d.top_k = 50, d.top_p = 0.7f, d.min_p = 0.01f;
    if (r % 8 == 6) d.top_p = 0.999f, d.scale = 0.05f;
    if (r % 8 == 7) d.top_k = 1 << 30;
    d.logprobs = static_cast<int32_t>(r % 3 == 0 ? -1 : r % 21);
    out.push_back(d);
  }
  return out;
}

TEST(Sample, IsTheRuleOnEverySetAndTeam) {
  for (const int64_t n : {1, 7, 64, 255, 1000, 5003}) {
    const int64_t rows = 24;
    const TestTensor logits = logits_of(rows, n, static_cast<uint32_t>(n));
    const std::vector<Draw> draws = draws_for(rows, 77);
    std::vector<draw::Candidate> scratch(static_cast<size_t>(n));
    TestTensor want = zero_tensor(DType::I32, {rows});
    for (int64_t r = 0; r < rows; ++r)
      want.set(r, draw::token(logits.as<float>() + r * n, n, draws[static_cast<size_t>(r)], scratch.data()));
    std::vector<TestTensor> first;
    for (const Isa isa : supported_isas()) {
      const OpRunner runner(isa);
      for (const int threads : {1, 2, 3}) {
        const auto out = runner.run("sample", {logits, draws_of(draws)}, {}, {.threads = threads});
        expect_same_bits(out[0], want, fmt::format("{} columns on {}", n, isa_name(isa)));
        if (first.empty()) first = out;
        for (size_t i = 0; i < out.size(); ++i) expect_same_bits(out[i], first[i], fmt::format("result {}", i));
      }
    }
  }
}

TEST(Sample, LogProbabilitiesAreThoseOfTheWholeRow) {
  const OpRunner runner(supported_isas().back());
  const int64_t rows = 24, n = 3001;
  const TestTensor logits = logits_of(rows, n, 5);
  const std::vector<Draw> draws = draws_for(rows, 3);
  const auto out = runner.run("sample", {logits, draws_of(draws)}, {}, {});
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(logits.get(r * n + i));
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return logits.get(r * n + a) > logits.get(r * n + b); });
    const int32_t asked = draws[static_cast<size_t>(r)].logprobs;
    const auto token = static_cast<int64_t>(out[0].get(r));
    EXPECT_NEAR(out[1].get(r), asked < 0 ? 0 : logits.get(r * n + token) - std::log(sum), 1e-5);
    for (int64_t i = 0; i < kMost; ++i) {
      const bool told = i < asked;
      EXPECT_EQ(out[2].get(r * kMost + i), told ? static_cast<double>(order[static_cast<size_t>(i)]) : -1);
      EXPECT_NEAR(out[3].get(r * kMost + i),
                  told ? logits.get(r * n + order[static_cast<size_t>(i)]) - std::log(sum) : 0, 1e-5);
    }
  }
}

TEST(Sample, RowsWithoutANumberGiveNoToken) {
  const OpRunner runner(supported_isas().back());
  const int64_t n = 333;
  TestTensor logits = logits_of(5, n, 9);
  logits.set(0 * n + 332, NAN);
  logits.set(1 * n + 40, INFINITY);
  for (int64_t i = 0; i < n; ++i) logits.set(2 * n + i, -INFINITY);
  for (int64_t i = 0; i < n; ++i)
    if (i != 17) logits.set(3 * n + i, -INFINITY);
  const std::vector<Draw> draws(5, Draw{.scale = 1, .top_p = 0.9f, .seed = 4, .logprobs = 3});
  const auto out = runner.run("sample", {logits, draws_of(draws)}, {}, {});
  for (const int64_t r : {0, 1, 2}) EXPECT_EQ(out[0].get(r), -1);
  EXPECT_EQ(out[0].get(3), 17);
  EXPECT_EQ(out[1].get(3), 0);
  EXPECT_EQ(out[2].get(3 * kMost), 17);
  EXPECT_EQ(out[2].get(3 * kMost + 1), -1);
  EXPECT_GE(out[0].get(4), 0);
}

// Of equal logits the smaller ids are kept, whatever their number is.
TEST(Sample, TiesAreKeptInTheOrderOfIds) {
  const OpRunner runner(supported_isas().back());
  const int64_t n = 700, rows = 200;
  TestTensor logits = zero_tensor(DType::F32, {rows, n});
  std::vector<Draw> draws;
  for (int64_t r = 0; r < rows; ++r)
    draws.push_back({.scale = 1, .top_k = 90, .seed = static_cast<uint64_t>(r), .position = 1});
  const auto out = runner.run("sample", {logits, draws_of(draws)}, {}, {});
  double largest = 0;
  for (int64_t r = 0; r < rows; ++r) largest = std::max(largest, out[0].get(r));
  EXPECT_LT(largest, 90);
  EXPECT_GT(largest, 70);
}

}  // namespace
}  // namespace reprise::cpu::sample_test
