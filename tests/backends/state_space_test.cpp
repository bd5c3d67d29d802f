// The ops of Mamba-2's layers: the state-space step against the sum that it unfolds to, in double precision: y_t = sum
// over s <= t of exp(-exp(a_log) (step_(s+1) + ... + step_t)) step_s (C_t B_s) x_s, and d x_t (arXiv 2405.21060,
// section 6; the blocks of transformers 5.23.0, modeling_granitemoehybrid.py, mamba2_chunk_scan, are this sum in
// parts); the bits rule over chunks, batches, threads, slots and drafts; the convolution with a bias, and the norm
// behind a gate.
#include <gtest/gtest.h>

#include "backends/reference.h"
#include "backends/state_steps.h"
#include "ops/recurrent.h"

namespace reprise::cpu::state_space_test {
namespace {

using namespace state_steps;

struct Space {
  DType dtype = DType::F32;
  int64_t heads = 6, groups = 2, state = 12, head = 20;
  double least = 0, most = 0;
  int64_t width() const { return heads * head + 2 * groups * state; }
  Attrs attrs() const { return {{"groups", groups}, {"least_step", least}, {"most_step", most}}; }
  std::string name() const {
    return fmt::format("{} H {} G {} N {} P {}, steps {} to {}", dtype_name(dtype), heads, groups, state, head, least,
                       most);
  }
};

const std::vector<Space>& spaces() {
  static const std::vector<Space> all{{},
                                      {.heads = 3, .groups = 3, .state = 16, .head = 8, .least = 0.3, .most = 0.9},
                                      {.heads = 2, .groups = 1, .state = 37, .head = 70, .most = 1.5},
                                      {.heads = 1, .groups = 1, .state = 1, .head = 1, .least = 0.1}};
  return all;
}

struct SpaceRows {
  TestTensor xbc, dt, a_log, dt_bias, d;
};

SpaceRows make_rows(const Space& m, int64_t tokens, uint32_t seed) {
  return {random_tensor(m.dtype, {tokens, m.width()}, seed, -1, 1),
          random_tensor(m.dtype, {tokens, m.heads}, seed + 1, -4, 3),
          random_tensor(DType::F32, {m.heads}, seed + 2, -4, 1), random_tensor(DType::F32, {m.heads}, seed + 3, -1, 1),
          random_tensor(DType::F32, {m.heads}, seed + 4, -1, 1)};
}

// The states and the rows.
std::vector<TestTensor> space_step(const OpRunner& runner, const Space& m, const SpaceRows& all,
                                   const TestTensor& states, const std::vector<Part>& parts, int threads = 1,
                                   int64_t padding = 0) {
  const Indices at(parts);
  return runner.run("state_space",
                    {states, rows_of_parts(all.xbc, parts, padding), rows_of_parts(all.dt, parts, padding), all.a_log,
                     all.dt_bias, all.d, at.read, at.write, at.borders},
                    m.attrs(), {.threads = threads});
}

// One head in double precision, every row from all rows before it.
struct HeadOfSpace {
  HeadOfSpace(const Space& m, const SpaceRows& r, int64_t tokens, int64_t h) {
    const int64_t group = h / (m.heads / m.groups);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto part = [&](int64_t first, int64_t count) {
        Numbers out;
        for (int64_t i = 0; i < count; ++i) out.push_back(r.xbc.get(t * m.width() + first + i));
        return out;
      };
      x.push_back(part(h * m.head, m.head));
      b.push_back(part(m.heads * m.head + group * m.state, m.state));
      c.push_back(part(m.heads * m.head + (m.groups + group) * m.state, m.state));
      double s = std::max(std::log1p(std::exp(r.dt.get(t * m.heads + h) + r.dt_bias.get(h))), m.least);
      if (m.most > 0) s = std::min(s, m.most);
      step.push_back(s);
      faded.push_back((faded.empty() ? 0 : faded.back()) - std::exp(r.a_log.get(h)) * s);
    }
  }

  Numbers row(size_t t, double d) const {
    Numbers y(x[t].size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = d * x[t][i];
    for (size_t s = 0; s <= t; ++s) {
      double score = 0;
      for (size_t n = 0; n < b[s].size(); ++n) score += c[t][n] * b[s][n];
      for (size_t i = 0; i < y.size(); ++i) y[i] += std::exp(faded[t] - faded[s]) * step[s] * score * x[s][i];
    }
    return y;
  }
  // Number n of what row `last` leaves, of x number i.
  double left(size_t last, size_t n, size_t i) const {
    double sum = 0;
    for (size_t s = 0; s <= last; ++s) sum += std::exp(faded[last] - faded[s]) * step[s] * b[s][n] * x[s][i];
    return sum;
  }

  std::vector<Numbers> x, b, c;
  Numbers step, faded;
};

class StateSpace : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};
};

TEST_P(StateSpace, RowsAndStatesAreTheSumsThatTheyUnfoldTo) {
  for (const DType dtype : kDTypes)
    for (Space m : spaces()) {
      m.dtype = dtype;
      constexpr int64_t kTokens = 71;
      const SpaceRows rows = make_rows(m, kTokens, 7);
      const auto got = space_step(runner, m, rows, empty_states({m.heads, m.state, m.head}, 4), {{0, kTokens, 1, 3}});
      const TestTensor state = state_of(got[0], 3);
      double worst = 0, largest = 0, worst_state = 0, largest_state = 0;
      for (int64_t h = 0; h < m.heads; ++h) {
        const HeadOfSpace head(m, rows, kTokens, h);
        for (int64_t t = 0; t < kTokens; ++t) {
          const Numbers want = head.row(static_cast<size_t>(t), rows.d.get(h));
          for (int64_t i = 0; i < m.head; ++i) {
            const double y = want[static_cast<size_t>(i)];
            largest = std::max(largest, std::abs(y));
            worst = std::max(worst, std::abs(got[1].get((t * m.heads + h) * m.head + i) - y));
          }
        }
        for (int64_t n = 0; n < m.state; ++n)
          for (int64_t i = 0; i < m.head; ++i) {
            const double s = head.left(kTokens - 1, static_cast<size_t>(n), static_cast<size_t>(i));
            largest_state = std::max(largest_state, std::abs(s));
            worst_state = std::max(worst_state, std::abs(state.get((h * m.state + n) * m.head + i) - s));
          }
      }
      EXPECT_GT(largest, 0.1) << m.name();
      EXPECT_LT(worst, (unit_roundoff(dtype) + 3e-6) * largest) << m.name();
      EXPECT_LT(worst_state, 3e-6 * largest_state) << m.name();
    }
}

TEST_P(StateSpace, HasTheSameBitsInChunksBatchesAndThreads) {
  for (const DType dtype : kDTypes)
    for (Space m : {Space{}, Space{.heads = 4, .groups = 1, .state = 9, .head = 75}}) {
      m.dtype = dtype;
      constexpr int64_t kTokens = 77;
      const SpaceRows rows = make_rows(m, kTokens, 11);
      const TestTensor empty = empty_states({m.heads, m.state, m.head}, 6);
      const auto whole = space_step(runner, m, rows, empty, {{0, kTokens, 1, 2}});
      for (const int threads : {2, 3, 7}) {
        const auto again = space_step(runner, m, rows, empty, {{0, kTokens, 1, 2}}, threads);
        for (size_t i : {0, 1}) expect_same_bits(again[i], whole[i], m.name());
      }
      for (const int64_t size : {1, 31, 32, 33, 64}) {
        TestTensor states = empty;
        for (int64_t from = 0, turn = 0; from < kTokens; from += size, ++turn) {
          const int64_t to = std::min(from + size, kTokens);
          const auto part = static_cast<int32_t>(turn % 2);
          const auto step = space_step(runner, m, rows, states, {{from, to, from == 0 ? 1 : 2 + part, 3 - part}}, 2);
          expect_same_bits(step[1], rows_of(whole[1], from, to - from), m.name());
          states = step[0];
          if (to == kTokens) expect_same_bits(state_of(states, 3 - part), state_of(whole[0], 2), m.name());
        }
      }
      // Beside others, in other slots, before rows of no sequence; one has no rows and keeps its state.
      const auto first = space_step(runner, m, rows, empty, {{0, 20, 1, 4}});
      const std::vector<Part> parts{{5, 9, 1, 0}, {20, kTokens, 4, 5}, {3, 7, 1, -1}, {0, 0, 4, 2}};
      for (const int threads : {1, 3}) {
        const auto batch = space_step(runner, m, rows, first[0], parts, threads, 3);
        expect_same_bits(rows_of(batch[1], 4, kTokens - 20), rows_of(whole[1], 20, kTokens - 20), m.name());
        expect_same_bits(state_of(batch[0], 5), state_of(whole[0], 2), m.name());
        for (const int64_t kept : {2, 4}) expect_same_bits(state_of(batch[0], kept), state_of(first[0], 4), m.name());
        const TestTensor zeros = rows_of(batch[1], 4 + kTokens - 20, 7);
        for (int64_t i = 0; i < zeros.size(); ++i) ASSERT_EQ(zeros.get(i), 0) << m.name();
      }
    }
}

TEST_P(StateSpace, RowsBehindDraftsHaveTheBitsOfPlainRows) {
  for (const DType dtype : kDTypes)
    for (Space m : {Space{}, Space{.heads = 2, .groups = 2, .state = 9, .head = 75, .most = 0.7}}) {
      m.dtype = dtype;
      const int64_t tokens = length_of_course();
      const SpaceRows rows = make_rows(m, tokens, 31), wrong = make_rows(m, 8, 57);
      const auto whole = space_step(runner, m, rows, empty_states({m.heads, m.state, m.head}, 5), {{0, tokens, 1, 2}});
      Attrs attrs = m.attrs();
      attrs.set("most_drafts", kMostDrafts);
      for (const int threads : {1, 5})
        expect_rows_of_plain_steps(
            whole[1], empty_states({m.heads, delta_state_rows(m.state, m.head, kMostDrafts), m.head}, 5),
            [&](const TestTensor& states, int64_t at, const Guesses& g, int64_t came_true, int32_t read,
                int32_t write) {
              std::vector<TestTensor> in{states,
                                         rows_of_step(rows.xbc, wrong.xbc, at, g),
                                         rows_of_step(rows.dt, wrong.dt, at, g),
                                         rows.a_log,
                                         rows.dt_bias,
                                         rows.d};
              for (TestTensor& t : places(g, came_true, read, write)) in.push_back(std::move(t));
              return runner.run("state_space", in, attrs, {.threads = threads});
            },
            m.name());
    }
}

// Steps far out: a state that is kept or forgotten at once, and never a number that is none.
TEST_P(StateSpace, StepsMayBeAnyNumber) {
  const Space m{.heads = 4, .groups = 2, .state = 5, .head = 3};
  SpaceRows rows = make_rows(m, 8, 21);
  for (int64_t i = 0; i < rows.dt.size(); ++i) rows.dt.set(i, (i % 2 ? 1 : -1) * 200.0 * static_cast<double>(i % 5));
  rows.a_log.set(0, 20), rows.a_log.set(1, -80);
  const auto got = space_step(runner, m, rows, empty_states({m.heads, m.state, m.head}, 3), {{0, 8, 1, 2}});
  for (int64_t i = 0; i < got[1].size(); ++i) ASSERT_TRUE(std::isfinite(got[1].get(i))) << i;
  const TestTensor state = state_of(got[0], 2);
  for (int64_t i = 0; i < state.size(); ++i) ASSERT_TRUE(std::isfinite(state.get(i))) << i;
}

TEST_P(StateSpace, AConvolutionBeginsWithItsBias) {
  for (const DType dtype : kDTypes)
    for (const auto& [columns, taps] : {std::pair<int64_t, int64_t>{45, 4}, {16, 2}, {130, 3}}) {
      const std::string what = fmt::format("{} K {} C {}", dtype_name(dtype), taps, columns);
      constexpr int64_t kTokens = 21;
      const TestTensor x = random_tensor(dtype, {kTokens, columns}, 5, -3, 3),
                       w = random_tensor(dtype, {columns, 1, taps}, 6, -1, 1),
                       bias = random_tensor(dtype, {columns}, 7, -1, 1);
      const auto run = [&](const TestTensor& states, const std::vector<Part>& parts, int threads) {
        const Indices at(parts);
        return runner.run("causal_conv_biased",
                          {states, rows_of_parts(x, parts, 2), w, bias, at.read, at.write, at.borders}, {},
                          {.threads = threads});
      };
      const TestTensor empty = empty_states({taps - 1, columns}, 4);
      const auto whole = run(empty, {{0, kTokens, 1, 2}}, 1);
      Numbers want;
      for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t c = 0; c < columns; ++c) {
          double sum = bias.get(c);
          for (int64_t j = std::max<int64_t>(0, taps - 1 - t); j < taps; ++j)
            sum += w.get(c * taps + j) * x.get((t - taps + 1 + j) * columns + c);
          want.push_back(reference::silu(sum));
        }
      expect_close(rows_of(whole[1], 0, kTokens), want, unit_roundoff(dtype) + 2e-6, 2e-6, what);
      const auto first = run(empty, {{0, 9, 1, 2}}, 3), second = run(first[0], {{9, kTokens, 2, 3}}, 2);
      expect_same_bits(rows_of(second[1], 0, kTokens - 9), rows_of(whole[1], 9, kTokens - 9), what);
      expect_same_bits(state_of(second[0], 3), state_of(whole[0], 2), what);
    }
}

TEST_P(StateSpace, TheNormIsBehindTheGateAndOfEachGroup) {
  for (const DType dtype : kDTypes)
    for (const std::pair<int64_t, int64_t>& size : {std::pair<int64_t, int64_t>{48, 1}, {54, 3}, {130, 2}, {7, 7}}) {
      const int64_t width = size.first, groups = size.second;
      const std::string what = fmt::format("{} {} in {} groups", dtype_name(dtype), width, groups);
      constexpr int64_t kRows = 5;
      constexpr double kEps = 1e-5;
      const TestTensor x = random_tensor(dtype, {kRows, width}, 1, -3, 3),
                       z = random_tensor(dtype, {kRows, width}, 2, -3, 3),
                       w = random_tensor(dtype, {width}, 3, 0.5, 1.5);
      const auto run = [&](int threads) {
        return runner.run("rms_norm_gated", {x, z, w}, {{"groups", groups}, {"eps", kEps}}, {.threads = threads})[0];
      };
      const TestTensor got = run(1);
      const int64_t each = width / groups;
      Numbers want;
      for (int64_t part = 0; part < kRows * groups; ++part) {
        Numbers v;
        double squares = 0;
        for (int64_t i = part * each; i < (part + 1) * each; ++i) {
          v.push_back(x.get(i) * reference::silu(z.get(i)));
          squares += v.back() * v.back();
        }
        const double by = 1 / std::sqrt(squares / static_cast<double>(each) + kEps);
        for (int64_t i = 0; i < each; ++i)
          want.push_back(v[static_cast<size_t>(i)] * by * w.get(part % groups * each + i));
      }
      expect_close(got, want, unit_roundoff(dtype) + 2e-6, 2e-6, what);
      for (const int threads : {2, 3, 8}) expect_same_bits(run(threads), got, what);
    }
}

TEST_P(StateSpace, SizesThatDoNotFitAreNamed) {
  const Space m;
  const SpaceRows rows = make_rows(m, 3, 1);
  const Indices at({{0, 3, 1, 2}});
  const auto refused = [&](const std::vector<int64_t>& state, const Attrs& attrs) {
    return runner
        .choose("state_space",
                {empty_states(state, 3).type, rows.xbc.type, rows.dt.type, rows.a_log.type, rows.dt_bias.type,
                 rows.d.type, at.read.type, at.write.type, at.borders.type},
                attrs)
        .status()
        .message();
  };
  EXPECT_EQ(refused({6, 12, 20}, m.attrs()), "");
  EXPECT_NE(refused({6, 12, 20}, {{"groups", int64_t{4}}}).find("6 heads are not a multiple of 4 groups"),
            std::string::npos);
  EXPECT_NE(refused({6, 13, 20}, m.attrs()).find("sizes of x, B and C"), std::string::npos);
  EXPECT_NE(refused({6, 12, 20}, Space{.least = 0.5, .most = 0.2}.attrs()).find("steps from 0.5 to 0.2; allowed"),
            std::string::npos);
  EXPECT_NE(
      refused({6, 12, 20}, {{"groups", int64_t{2}}, {"most_drafts", int64_t{2}}}).find("2 drafts, and 9 operands"),
      std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Isas, StateSpace, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::state_space_test
