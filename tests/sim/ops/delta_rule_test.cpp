// The simulator's RecurrentGatedDeltaRule against the recurrence of its document in double precision.
#include <cmath>

#include "sim/ops/bench.h"

namespace sim_test {
namespace {

class DeltaRule : public OpsTest {};

constexpr int64_t kHeads = 4, kKeyHeads = 2, kKey = 12, kValue = 7, kStates = 9;

struct RuleRows {
  std::vector<double> q, k, v, beta, g, gk;
};

RuleRows rows_of(int64_t n) {
  RuleRows r{kept(kBf16, numbers(n * kKeyHeads * kKey, 1, -0.4, 0.4)),
             kept(kBf16, numbers(n * kKeyHeads * kKey, 2, -0.4, 0.4)),
             kept(kBf16, numbers(n * kHeads * kValue, 3)),
             kept(kBf16, numbers(n * kHeads, 4, 0, 1)),
             kept(kFloat, numbers(n * kHeads, 5, -1, 0)),
             kept(kFloat, numbers(n * kHeads * kKey, 6, -1, 0))};
  return r;
}

// The document's formula: S := a S + beta (v - a S k) k^T and o := S q scale, with a = exp(g) Diag(exp(gk)).
void recurrence(const RuleRows& r, const Dims& lengths, const Dims& from, const Dims& slots, double scale,
                std::vector<double>& states, std::vector<double>& out) {
  const auto was = states;
  size_t row = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const auto at = [&](int64_t slot) { return static_cast<size_t>((slot * kHeads + h) * kValue * kKey); };
      const auto first = was.begin() + static_cast<int64_t>(at(from[b]));
      std::vector<double> s(first, first + kValue * kKey);
      for (size_t t = row; t < row + static_cast<size_t>(lengths[b]); ++t) {
        const auto head = t * kHeads + static_cast<size_t>(h);
        const auto of_key = (t * kKeyHeads + static_cast<size_t>(h / (kHeads / kKeyHeads))) * kKey;
        for (size_t i = 0; i < kValue; ++i) {
          double found = 0, sum = 0;
          for (size_t j = 0; j < kKey; ++j) {
            double& x = s[i * kKey + j];
            x *= std::exp(r.g[head]) * (r.gk.empty() ? 1 : std::exp(r.gk[head * kKey + j]));
            found += x * r.k[of_key + j];
          }
          for (size_t j = 0; j < kKey; ++j) {
            double& x = s[i * kKey + j];
            x += r.beta[head] * (r.v[head * kValue + i] - found) * r.k[of_key + j];
            sum += x * r.q[of_key + j];
          }
          out[head * kValue + i] = sum * scale;
        }
        std::copy(s.begin(), s.end(), states.begin() + static_cast<int64_t>(at(slots[t])));
      }
    }
    row += static_cast<size_t>(lengths[b]);
  }
}

TEST_F(DeltaRule, IsTheRecurrenceOfTheDocument) {
  const Dims lengths{1, 3, 2}, slots{2, 4, 5, 6, 8, 7}, accepted{1, 2, 1};
  for (const aclDataType type : {kFloat, kBf16})
    for (const bool by_key : {false, true})
      for (const bool drafts : {false, true}) {
        RuleRows r = rows_of(6);
        if (!by_key) r.gk.clear();
        std::vector<double> states = kept(type, numbers(kStates * kHeads * kValue * kKey, 7)), out(6 * kHeads * kValue);
        Array state(type, {kStates, kHeads, kValue, kKey}, states);
        recurrence(r, lengths, drafts ? Dims{2, 5, 8} : Dims{2, 4, 8}, slots, 0.3, states, out);
        Array q(kBf16, {6, kKeyHeads, kKey}, r.q), k(kBf16, {6, kKeyHeads, kKey}, r.k),
            v(kBf16, {6, kHeads, kValue}, r.v), beta(kBf16, {6, kHeads}, r.beta), g(kFloat, {6, kHeads}, r.g),
            count(kInt32, {3}, {1, 3, 2}), where(kInt32, {6}, {2, 4, 5, 6, 8, 7}), came(kInt32, {3}, {1, 2, 1}),
            result(kBf16, {6, kHeads, kValue});
        const auto gk = by_key ? std::make_unique<Array>(kFloat, Dims{6, kHeads, kKey}, r.gk) : nullptr;
        ASSERT_EQ(RUN_OP(aclnnRecurrentGatedDeltaRule, q, k, v, beta, state, count, where, g, gk ? gk->get() : nullptr,
                         drafts ? came.get() : nullptr, 0.3f, result),
                  0)
            << bench().error;
        expect_close(result.get_all(), out, kBf16, 1e-3);
        expect_close(state.get_all(), states, type, 1e-5, type == kFloat ? 64 : 1.01);
      }
}

TEST_F(DeltaRule, MalformedCallsAreRefused) {
  Array q(kBf16, {2, 1, 8}, numbers(16, 1)), v(kBf16, {2, 1, 8}, numbers(16, 2)), beta(kBf16, {2, 1}, {0, 1}),
      state(kFloat, {4, 1, 8, 8}, numbers(256, 3)), turned(kFloat, {4, 1, 8, 6}), half(kHalf, {2, 1, 8}),
      count(kInt32, {1}, {2}), wide(kInt64, {1}, {2}), where(kInt32, {2}, {0, 9}), out(kBf16, {2, 1, 8});
  const auto ask = [&](const Array& query, const Array& states, const Array& lengths) {
    return REFUSED(aclnnRecurrentGatedDeltaRule, query, q, v, beta, states, lengths, where, nullptr, nullptr, nullptr,
                   1.0f, out);
  };
  EXPECT_EQ(ask(q, state, count), 0) << bench().error;
  EXPECT_EQ(ask(half, state, count), kBad);
  EXPECT_EQ(ask(q, state, wide), kBad);
  EXPECT_EQ(ask(q, turned, count), kLimit);
  EXPECT_EQ(
      REFUSED(aclnnRecurrentGatedDeltaRule, q, q, v, beta, nullptr, count, where, nullptr, nullptr, nullptr, 1.0f, out),
      kNull);
  EXPECT_EQ(
      RUN_OP(aclnnRecurrentGatedDeltaRule, q, q, v, beta, state, count, where, nullptr, nullptr, nullptr, 1.0f, out),
      361001);
  EXPECT_NE(bench().error.find("state 9 is none of the 4"), std::string::npos) << bench().error;
}

TEST_F(DeltaRule, SoftplusIsLinearAboveItsThreshold) {
  Array x(kFloat, {4}, {-3, 0, 2, 30}), y(kFloat, {4});
  const Number one(1.0f), twenty(20.0f);
  ASSERT_EQ(RUN_OP(aclnnSoftplus, x, one, twenty, y), 0) << bench().error;
  expect_close(y.get_all(), {std::log1p(std::exp(-3.0)), std::log(2.0), std::log1p(std::exp(2.0)), 30}, kFloat);
  ASSERT_EQ(RUN_OP(aclnnExp, x, y), 0) << bench().error;
  expect_close(y.get_all(), {std::exp(-3.0), 1, std::exp(2.0), std::exp(30.0)}, kFloat);
}

}  // namespace
}  // namespace sim_test
