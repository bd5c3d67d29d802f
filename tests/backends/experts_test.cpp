// Ops of a mixture of experts against loops in double precision, and grouped products against linear, bit for bit.
#include <algorithm>
#include <numeric>

#include "backends/op_runner.h"

namespace reprise::cpu::experts_test {
namespace {

class Experts : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};
};

struct GateCase {
  int64_t experts, top_k;
  std::string score = "softmax";
  bool normalise = false, bias = false;
  double scale = 1;
  int64_t groups = 1, top_groups = 1;
  std::string group_score = "max";

  Attrs attrs() const {
    return {{"top_k", top_k},   {"score", score},           {"normalise", int64_t{normalise}}, {"scale", scale},
            {"groups", groups}, {"top_groups", top_groups}, {"group_score", group_score}};
  }
};

struct Choice {
  std::vector<size_t> experts;
  std::vector<double> weights;
};

// The largest `count` of values, the smaller index on ties.
std::vector<size_t> best_of(const std::vector<double>& values, int64_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

Choice choose(const std::vector<double>& logits, const std::vector<double>& bias, const GateCase& g) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> score;
  double sum = 0;
  for (double x : logits) {
    score.push_back(g.score == "sigmoid" ? 1 / (1 + std::exp(-x)) : std::exp(x - top));
    sum += score.back();
  }
  if (g.score == "softmax")
    for (double& s : score) s /= sum;
  std::vector<double> by = score;
  for (size_t e = 0; e < bias.size(); ++e) by[e] += bias[e];
  const size_t each = logits.size() / static_cast<size_t>(g.groups);
  std::vector<double> group;
  for (size_t first = 0; first < by.size(); first += each) {
    std::vector<double> of(by.begin() + static_cast<ptrdiff_t>(first),
                           by.begin() + static_cast<ptrdiff_t>(first + each));
    std::sort(of.rbegin(), of.rend());
    group.push_back(g.group_score == "top2" ? of[0] + of[1] : of[0]);
  }
  const std::vector<size_t> kept = best_of(group, g.top_groups);
  for (size_t e = 0; e < by.size(); ++e)
    if (std::find(kept.begin(), kept.end(), e / each) == kept.end()) by[e] = -1e300;
  Choice c{best_of(by, g.top_k), {}};
  double all = 0;
  for (size_t e : c.experts) all += score[e];
  for (size_t e : c.experts) c.weights.push_back(score[e] / (g.normalise ? all : 1) * g.scale);
  return c;
}

TEST_P(Experts, TheGateChoosesAsTheReferenceDoes) {
  const GateCase cases[] = {{1, 1},
                            {5, 2},
                            {7, 3, "softmax", true},
                            {60, 4},
                            {128, 8, "softmax", true},
                            {257, 8, "softmax", false, false, 2.5},
                            {13, 13, "softmax", true},
                            {16, 4, "sigmoid", true, true, 2.5, 4, 2, "top2"},
                            {256, 8, "sigmoid", true, true, 2.5, 8, 4, "top2"},
                            {64, 6, "softmax", false, false, 16, 8, 3, "max"},
                            {20, 1, "sigmoid"}};
  constexpr int64_t kTokens = 37;
  for (const GateCase& g : cases) {
    const TestTensor logits = random_tensor(DType::F32, {kTokens, g.experts}, 3, -4, 4);
    const TestTensor bias = random_tensor(DType::F32, {g.experts}, 4, -0.5, 0.5);
    TestTensor slots = zero_tensor(DType::I32, {kTokens});
    slots.set(11, -1);
    std::vector<TestTensor> in{logits, slots};
    if (g.bias) in.push_back(bias);
    const std::vector<TestTensor> out = runner.run("moe_gate", in, g.attrs());
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::vector<double> row = to_doubles(rows_of(logits, t, 1));
      const Choice want = choose(row, g.bias ? to_doubles(bias) : std::vector<double>{}, g);
      for (int64_t j = 0; j < g.top_k; ++j) {
        const int64_t at = t * g.top_k + j;
        if (t == 11) {
          ASSERT_EQ(out[1].get(at), static_cast<double>(g.experts));
          ASSERT_EQ(out[0].get(at), 0);
          continue;
        }
        ASSERT_EQ(out[1].get(at), static_cast<double>(want.experts[static_cast<size_t>(j)]))
            << g.experts << " experts, token " << t << ", choice " << j;
        ASSERT_NEAR(out[0].get(at), want.weights[static_cast<size_t>(j)],
                    1e-5 * want.weights[static_cast<size_t>(j)] + 1e-9);
      }
    }
    for (int threads : {2, 3}) {
      const std::vector<TestTensor> again = runner.run("moe_gate", in, g.attrs(), {.threads = threads});
      for (size_t i : {0, 1}) expect_same_bits(out[i], again[i], fmt::format("{} threads", threads));
    }
  }
}

TEST_P(Experts, TiesGoToTheSmallerIndexAndNanChoosesDistinctExperts) {
  TestTensor logits = zero_tensor(DType::F32, {3, 21});
  for (int64_t e = 0; e < 21; ++e) {
    logits.set(e, e == 4 || e == 9 || e == 20 ? 1 : 0);
    logits.set(21 + e, -1e30);
    logits.set(42 + e, e == 7 ? std::nan("") : 1);
  }
  const auto out = runner.run("moe_gate", {logits, zero_tensor(DType::I32, {3})}, {{"top_k", int64_t{4}}});
  const std::vector<double> chosen = to_doubles(out[1]);
  EXPECT_EQ(std::vector<double>(chosen.begin(), chosen.begin() + 8), (std::vector<double>{4, 9, 20, 0, 0, 1, 2, 3}));
  for (int64_t j = 0; j < 4; ++j) {
    EXPECT_TRUE(std::isnan(out[0].get(8 + j)));  // nothing is hidden
    EXPECT_GE(chosen[static_cast<size_t>(8 + j)], 0);
    EXPECT_LT(chosen[static_cast<size_t>(8 + j)], 21);
    for (int64_t i = 0; i < j; ++i) EXPECT_NE(chosen[static_cast<size_t>(8 + i)], chosen[static_cast<size_t>(8 + j)]);
  }
}

TEST_P(Experts, RoutingIsAStableSortByExpert) {
  struct Case {
    int64_t tokens, k, experts, first, count;
  };
  for (const Case& c : {Case{1, 8, 128, 0, 128}, Case{37, 3, 7, 0, 7}, Case{50, 2, 300, 0, 300}, Case{40, 4, 12, 3, 5},
                        Case{9, 1, 3, 0, 3}}) {
    std::mt19937 random(static_cast<uint32_t>(c.tokens));
    TestTensor experts = zero_tensor(DType::I32, {c.tokens, c.k});
    std::vector<std::vector<int64_t>> choices(static_cast<size_t>(c.count));
    for (int64_t i = 0; i < experts.size(); ++i) {
      // One expert gets nothing; one token in seven is padding.
      int64_t e = random() % static_cast<uint32_t>(c.experts);
      if (e == c.first + 1) e = c.first;
      if (i / c.k % 7 == 6) e = c.experts;
      experts.set(i, static_cast<double>(e));
      if (e >= c.first && e < c.first + c.count) choices[static_cast<size_t>(e - c.first)].push_back(i);
    }
    for (int threads : {1, 2, 3}) {
      const auto out =
          runner.run("moe_route", {experts}, {{"first", c.first}, {"count", c.count}}, {.threads = threads});
      std::vector<double> token(static_cast<size_t>(experts.size()), -1), place = token, starts{0};
      size_t at = 0;
      for (const auto& of : choices) {
        for (int64_t i : of) {
          token[at] = static_cast<double>(i / c.k);
          place[static_cast<size_t>(i)] = static_cast<double>(at++);
        }
        starts.push_back(static_cast<double>(at));
      }
      EXPECT_EQ(to_doubles(out[0]), token);
      EXPECT_EQ(to_doubles(out[1]), place);
      EXPECT_EQ(to_doubles(out[2]), starts);
    }
  }
}

// Groups of 0, 1, a few and many rows; what lies in front of the first or behind the last belongs to none.
TEST_P(Experts, RowsOfAGroupHaveTheBitsOfLinear) {
  const std::vector<std::vector<double>> borders{{0, 0, 1, 1, 6, 103},
                                                 {0, 110, 110, 110, 110, 110},
                                                 {0, 1, 2, 3, 4, 5},
                                                 {0, 0, 0, 0, 0, 0},
                                                 {0, 3, 20, 41, 90, 110},
                                                 {7, 7, 20, 41, 42, 95},
                                                 {110, 110, 110, 110, 110, 110}};
  constexpr int64_t kRows = 110, kGroups = 5;
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{37, 48}, {130, 65}, {64, 129}}) {
      const TestTensor x = random_tensor(dtype, {kRows, k}, 5), weight = random_tensor(dtype, {kGroups, n, k}, 6);
      TestTensor token = zero_tensor(DType::I32, {kRows});
      for (int64_t i = 0; i < kRows; ++i) token.set(i, static_cast<double>(i * 37 % kRows));
      token.set(2, -1);
      const TestTensor gathered = runner.run("index_select", {x, token})[0];
      for (const auto& border : borders) {
        const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, border);
        const TestTensor out = runner.run("grouped_linear", {x, starts, weight})[0];
        for (size_t g = 0; g < kGroups; ++g) {
          const auto first = static_cast<int64_t>(border[g]), count = static_cast<int64_t>(border[g + 1]) - first;
          if (count == 0) continue;
          TestTensor matrix = rows_of(weight, static_cast<int64_t>(g), 1);
          matrix.type.shape = constant_shape({n, k});
          for (int64_t i = first; i < first + count; ++i)
            expect_same_bits(runner.run("linear", {rows_of(x, i, 1), matrix})[0], rows_of(out, i, 1),
                             fmt::format("{} n {} k {} row {} of group {}", dtype_name(dtype), n, k, i, g));
          if (HasFatalFailure()) return;
        }
        const auto used = static_cast<int64_t>(border.back());
        if (used < kRows) {
          const TestTensor rest = rows_of(out, used, kRows - used);
          for (int64_t i = 0; i < rest.size(); ++i) ASSERT_EQ(rest.get(i), 0);
        }
        for (int64_t i = 0; i < static_cast<int64_t>(border[0]) * n; ++i) ASSERT_EQ(out.get(i), 0);
        for (int threads : {2, 3})
          expect_same_bits(out, runner.run("grouped_linear", {x, starts, weight}, {}, {.threads = threads})[0]);
        const TestTensor by_rows = runner.run("grouped_linear", {gathered, starts, weight})[0];
        for (int threads : {1, 2})
          expect_same_bits(by_rows,
                           runner.run("grouped_linear_rows", {x, token, starts, weight}, {}, {.threads = threads})[0]);
        if (HasFatalFailure()) return;
      }
    }
}

// Groups of 0, 1, a few and all rows; several row tiles and blocks of k; rows that belong to none.
TEST_P(Experts, Int8RowsOfAGroupHaveTheBitsOfLinear) {
  constexpr int64_t kRows = 107, kGroups = 4;
  const std::vector<std::vector<double>> borders{
      {0, 0, 1, 8, 57}, {0, 107, 107, 107, 107}, {0, 0, 0, 0, 0}, {9, 12, 12, 57, 100}};
  for (const char* out_type : {"f32", "bf16", "f16"})
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{37, 48}, {130, 67}, {64, 1030}}) {
      const TestTensor x = random_tensor(DType::I8, {kRows, k}, 5, -128, 127);
      const TestTensor x_scale = random_tensor(DType::F32, {kRows, 1}, 6, 0.01, 0.02);
      const TestTensor weight = random_tensor(DType::I8, {kGroups, n, k}, 7, -128, 127);
      const TestTensor scale = random_tensor(DType::F32, {kGroups * n}, 8, 0.0001, 0.0002);
      const TestTensor bias = random_tensor(DType::I32, {kGroups * n}, 9, -1e6, 1e6);
      const Attrs out_attr{{"out", std::string(out_type)}};
      for (const std::vector<double>& border : borders) {
        const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, border);
        for (const bool is_static : {false, true}) {
          const std::string kind = is_static ? "static" : "dynamic";
          const std::string op = "grouped_linear_w8a8_" + kind;
          const std::vector<TestTensor> in =
              is_static ? std::vector{x, starts, weight, scale, bias} : std::vector{x, x_scale, starts, weight, scale};
          const TestTensor out = runner.run(op, in, out_attr)[0];
          for (int64_t g = 0; g < kGroups; ++g) {
            const auto first = static_cast<int64_t>(border[static_cast<size_t>(g)]);
            const int64_t count = static_cast<int64_t>(border[static_cast<size_t>(g) + 1]) - first;
            if (count == 0) continue;
            TestTensor matrix = rows_of(weight, g, 1);
            matrix.type.shape = constant_shape({n, k});
            const TestTensor rows = rows_of(x, first, count), scales = rows_of(scale, g * n, n);
            const std::vector<TestTensor> plain =
                is_static ? std::vector{rows, matrix, scales, rows_of(bias, g * n, n)}
                          : std::vector{rows, rows_of(x_scale, first, count), matrix, scales};
            expect_same_bits(runner.run("linear_w8a8_" + kind, plain, out_attr)[0], rows_of(out, first, count),
                             fmt::format("{} {} n {} k {} group {}", kind, out_type, n, k, g));
            if (HasFatalFailure()) return;
          }
          for (int64_t i = static_cast<int64_t>(border.back()) * n; i < out.size(); ++i) ASSERT_EQ(out.get(i), 0);
          for (int64_t i = 0; i < static_cast<int64_t>(border[0]) * n; ++i) ASSERT_EQ(out.get(i), 0);
          for (int threads : {2, 3}) expect_same_bits(out, runner.run(op, in, out_attr, {.threads = threads})[0]);
        }
      }
    }
}

TEST_P(Experts, RowsAreQuantisedByTheNumbersOfTheirGroup) {
  constexpr int64_t kRows = 23, kGroups = 4;
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (int64_t n : {1, 37, 128}) {
      const TestTensor x = random_tensor(dtype, {kRows, n}, 11, -3, 3);
      const TestTensor scale = tensor_of(DType::F32, {kGroups}, {40, 20, 90, 33});
      const TestTensor offset = tensor_of(DType::F32, {kGroups}, {0, -7, 50, 3});
      for (const std::vector<double>& border :
           {std::vector<double>{0, 5, 5, 6, 20}, {0, 0, 0, 0, 23}, {4, 5, 9, 9, 21}}) {
        const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, border);
        const TestTensor out = runner.run("quantize_groups", {x, starts, scale, offset})[0];
        for (int64_t g = 0; g < kGroups; ++g) {
          const auto first = static_cast<int64_t>(border[static_cast<size_t>(g)]);
          const int64_t count = static_cast<int64_t>(border[static_cast<size_t>(g) + 1]) - first;
          if (count == 0) continue;
          expect_same_bits(
              runner.run("quantize_static", {rows_of(x, first, count), rows_of(scale, g, 1), rows_of(offset, g, 1)})[0],
              rows_of(out, first, count), fmt::format("{} n {} group {}", dtype_name(dtype), n, g));
        }
        for (int64_t i = static_cast<int64_t>(border.back()) * n; i < out.size(); ++i) ASSERT_EQ(out.get(i), 0);
        for (int64_t i = 0; i < static_cast<int64_t>(border[0]) * n; ++i) ASSERT_EQ(out.get(i), 0);
        for (int threads : {2, 3})
          expect_same_bits(out, runner.run("quantize_groups", {x, starts, scale, offset}, {}, {.threads = threads})[0]);
      }
    }
}

TEST_P(Experts, RowsGetTheBiasOfTheirGroup) {
  constexpr int64_t kRows = 23, kGroups = 4;
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (int64_t n : {1, 37, 128}) {
      const TestTensor x = random_tensor(dtype, {kRows, n}, 11, -3, 3),
                       bias = random_tensor(dtype, {kGroups, n}, 12, -3, 3);
      for (const std::vector<double>& border :
           {std::vector<double>{0, 5, 5, 6, 20}, {0, 0, 0, 0, 23}, {4, 5, 9, 9, 21}}) {
        const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, border);
        std::vector<double> want(static_cast<size_t>(kRows * n), 0.0);
        for (int64_t g = 0; g < kGroups; ++g)
          for (auto r = static_cast<int64_t>(border[static_cast<size_t>(g)]);
               r < static_cast<int64_t>(border[static_cast<size_t>(g) + 1]); ++r)
            for (int64_t i = 0; i < n; ++i)
              want[static_cast<size_t>(r * n + i)] = x.get(r * n + i) + bias.get(g * n + i);
        const TestTensor out = runner.run("add_groups", {x, starts, bias})[0];
        expect_close(out, want, 1.01 * unit_roundoff(dtype), dtype == DType::F16 ? 3.1e-8 : 1e-37);
        for (int threads : {2, 3, 40})
          expect_same_bits(out, runner.run("add_groups", {x, starts, bias}, {}, {.threads = threads})[0]);
      }
    }
}

// Numbers on both sides of the limit, and some whose exponential overflows.
TEST_P(Experts, TheClampedGateMatchesItsFormula) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const double limit : {0.75, 7.0}) {
      TestTensor gate = random_tensor(dtype, {9, 37}, 13, -12, 12), up = random_tensor(dtype, {9, 37}, 14, -12, 12);
      gate.set(0, 300);
      gate.set(1, -300);
      up.set(2, 1000);
      up.set(3, -1000);
      std::vector<double> want;
      for (int64_t i = 0; i < gate.size(); ++i) {
        const double g = std::min(gate.get(i), limit), u = std::clamp(up.get(i), -limit, limit);
        want.push_back((u + 1) * g / (1 + std::exp(-1.702 * g)));
      }
      for (int threads : {1, 2})
        expect_close(
            runner.run("swiglu_clamped", {gate, up}, {{"alpha", 1.702}, {"limit", limit}}, {.threads = threads})[0],
            want, 1.01 * unit_roundoff(dtype) + 3e-6, dtype == DType::F16 ? 3.1e-8 : 1e-37);
    }
}

TEST_P(Experts, CombiningAddsUpByWeight) {
  constexpr int64_t kTokens = 23, kChoices = 3;
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (int64_t n : {1, 16, 45, 100}) {
      const TestTensor y = random_tensor(dtype, {kTokens * kChoices, n}, 7);
      const TestTensor weights = random_tensor(DType::F32, {kTokens, kChoices}, 8, 0, 1);
      TestTensor place = zero_tensor(DType::I32, {kTokens, kChoices});
      for (int64_t i = 0; i < place.size(); ++i) place.set(i, static_cast<double>(i * 10 % place.size()));
      for (int64_t i : {4, 9, 10, 11}) place.set(i, -1);
      const TestTensor out = runner.run("moe_combine", {y, weights, place})[0];
      std::vector<double> want;
      for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t c = t * kChoices; c < (t + 1) * kChoices; ++c)
            if (place.get(c) >= 0) sum += weights.get(c) * y.get(static_cast<int64_t>(place.get(c)) * n + j);
          want.push_back(sum);
        }
      expect_close(out, want, 1.01 * unit_roundoff(dtype), 4e-7);
      for (int threads : {2, 3})
        expect_same_bits(out, runner.run("moe_combine", {y, weights, place}, {}, {.threads = threads})[0]);
    }
}

TEST_P(Experts, SigmoidAndScaledRows) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    TestTensor x = random_tensor(dtype, {9, 37}, 9, -20, 20);
    x.set(0, 200);
    x.set(1, -200);
    x.set(2, std::nan(""));
    const TestTensor scale = random_tensor(DType::F32, {9, 1}, 10);
    std::vector<double> sigmoid, scaled;
    for (int64_t i = 0; i < x.size(); ++i) {
      sigmoid.push_back(1 / (1 + std::exp(-x.get(i))));
      scaled.push_back(x.get(i) * scale.get(i / 37));
    }
    for (int threads : {1, 2}) {
      expect_close(runner.run("sigmoid", {x}, {}, {.threads = threads})[0], sigmoid, 1.01 * unit_roundoff(dtype) + 3e-7,
                   dtype == DType::F16 ? 3.1e-8 : 1e-37);
      expect_close(runner.run("scale_rows", {x, scale}, {}, {.threads = threads})[0], scaled,
                   1.01 * unit_roundoff(dtype), 3.1e-8);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Experts, testing::ValuesIn(isas_with_tiles()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::experts_test
