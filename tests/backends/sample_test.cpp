// The ops that draw tokens and change logits before that: the same on every instruction set and number of threads, as
// the rules of ops/draw_rule.h and ops/logit_edit.h have it; log-probabilities against double arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backends/draw_cases.h"
#include "ops/draw_rule.h"

namespace reprise::cpu::sample_test {
namespace {

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

// The token comes from the row that the Draw names, its log-probability from the row as it was.
TEST(Sample, DrawsFromTheEditedRow) {
  const int64_t rows = 3, n = 777;
  const TestTensor logits = logits_of(rows, n, 3), edited = logits_of(2, n, 4);
  std::vector<Draw> draws(3, Draw{.scale = 0, .logprobs = 2});
  draws[0].edited = 2, draws[2].edited = 1;
  const auto best = [&](const TestTensor& t, int64_t row) {
    const float* begin = t.as<float>() + row * n;
    return std::max_element(begin, begin + n) - begin;
  };
  for (const Isa isa : supported_isas()) {
    const auto out = OpRunner(isa).run("sample", {logits, draws_of(draws), edited}, {}, {});
    EXPECT_EQ(out[0].get(0), best(edited, 1));
    EXPECT_EQ(out[0].get(1), best(logits, 1));
    EXPECT_EQ(out[0].get(2), best(edited, 0));
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(logits.get(i));
    EXPECT_NEAR(out[1].get(0), logits.get(best(edited, 1)) - std::log(sum), 1e-5);
    for (int64_t r = 0; r < rows; ++r) EXPECT_EQ(out[2].get(r * kMost), best(logits, r));
  }
}

// What the documentation says, token by token.
std::vector<float> plainly_edited(const float* row, int64_t n, const EditCase& c) {
  std::vector<float> out(row, row + n);
  for (int64_t i = 0; i < n && !c.allowed.empty(); ++i)
    if (!c.allowed[static_cast<size_t>(i)]) out[static_cast<size_t>(i)] = -INFINITY;
  for (const TokenBias& b : c.biases) out[static_cast<size_t>(b.token)] += b.value;
  for (const auto& [token, times] : c.counts) {
    if (token < 0 || token >= n) continue;
    float& v = out[static_cast<size_t>(token)];
    v = v > 0 ? v / c.repetition : v * c.repetition;
    if (times > 0) v = v - c.frequency * static_cast<float>(times) - c.presence;
  }
  return out;
}

TEST(MaskLogits, IsTheRuleOnEverySetAndTeam) {
  for (const int64_t n : {1, 7, 31, 32, 33, 255, 4096, 5003}) {
    const int64_t rows = 4;
    const TestTensor logits = logits_of(rows, n, static_cast<uint32_t>(n));
    const std::vector<EditCase> cases = edit_cases(rows, n, 11);
    const EditTensors t = staged(cases);
    TestTensor want = zero_tensor(DType::F32, {static_cast<int64_t>(cases.size()), n});
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto row = plainly_edited(logits.as<float>() + cases[i].row * n, n, cases[i]);
      std::copy(row.begin(), row.end(), want.as<float>() + static_cast<int64_t>(i) * n);
    }
    for (const Isa isa : supported_isas())
      for (const int threads : {1, 2, 3})
        expect_same_bits(OpRunner(isa).run("mask_logits", {logits, t.edits, t.words}, {}, {.threads = threads})[0],
                         want, fmt::format("{} columns on {}", n, isa_name(isa)));
  }
}

// A row that is broken stays so, whatever is masked; without rows there is nothing to do.
TEST(MaskLogits, WhatIsNoNumberIsNotHidden) {
  TestTensor logits = logits_of(1, 70, 5);
  logits.set(40, NAN);
  logits.set(41, INFINITY);
  EditCase c;
  c.allowed.assign(70, false);
  c.allowed[3] = true;
  const EditTensors t = staged({c});
  const OpRunner runner(supported_isas().back());
  const TestTensor out = runner.run("mask_logits", {logits, t.edits, t.words}, {}, {})[0];
  EXPECT_TRUE(std::isnan(out.get(40)));
  EXPECT_EQ(out.get(41), INFINITY);
  EXPECT_EQ(out.get(3), logits.get(3));
  EXPECT_EQ(out.get(4), -INFINITY);
  EXPECT_EQ(runner.run("sample", {logits, draws_of({Draw{.edited = 1}}), out}, {}, {})[0].get(0), -1);
}

}  // namespace
}  // namespace reprise::cpu::sample_test
