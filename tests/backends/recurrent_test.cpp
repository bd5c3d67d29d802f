// The ops of layers with a state for each sequence against double precision and against themselves: the gated delta
// rule against its form in chunks of 64, as transformers computes prompts (5.23.0, modeling_qwen3_next.py,
// torch_chunk_gated_delta_rule), and the bits rule over chunks, batches, threads and slots.
#include <gtest/gtest.h>

#include "backends/reference.h"
#include "backends/state_steps.h"
#include "ops/recurrent.h"

namespace reprise::cpu::recurrent_test {
namespace {

using namespace state_steps;

struct Delta {
  DType dtype = DType::F32;
  int64_t heads = 6, key_heads = 2, key = 12, value = 20;
  int64_t width() const { return 2 * key_heads * key + heads * value; }
  int64_t state() const { return heads * key * value; }
  std::string name() const {
    return fmt::format("{} H {} G {} K {} V {}", dtype_name(dtype), heads, key_heads, key, value);
  }
};

struct DeltaRows {
  TestTensor qkv, b, a, a_log, dt_bias;
};

DeltaRows make_rows(const Delta& m, int64_t tokens, uint32_t seed) {
  return {random_tensor(m.dtype, {tokens, m.width()}, seed, -2, 2),
          random_tensor(m.dtype, {tokens, m.heads}, seed + 1, -3, 3),
          random_tensor(m.dtype, {tokens, m.heads}, seed + 2, -4, 3),
          random_tensor(DType::F32, {m.heads}, seed + 3, -4, 1), random_tensor(DType::F32, {m.heads}, seed + 4, -1, 1)};
}

// The states and the rows.
std::vector<TestTensor> delta_step(const OpRunner& runner, const Delta& m, const DeltaRows& all,
                                   const TestTensor& states, const std::vector<Part>& parts, int threads = 1,
                                   int64_t padding = 0) {
  const Indices at(parts);
  return runner.run("gated_delta",
                    {states, rows_of_parts(all.qkv, parts, padding), rows_of_parts(all.b, parts, padding),
                     rows_of_parts(all.a, parts, padding), all.a_log, all.dt_bias, at.read, at.write, at.borders},
                    {{"key_heads", m.key_heads}}, {.threads = threads});
}

// One head of the rule in double precision, with unit keys and queries; a row is a token.
struct HeadRows {
  std::vector<Numbers> q, k, v;
  Numbers g, beta;
};

HeadRows head_rows(const Delta& m, const DeltaRows& r, int64_t tokens, int64_t h) {
  HeadRows out;
  const int64_t group = h / (m.heads / m.key_heads);
  const auto unit = [&](int64_t at, double by) {
    Numbers x(static_cast<size_t>(m.key));
    double sum = 1e-6;
    for (int64_t i = 0; i < m.key; ++i)
      x[static_cast<size_t>(i)] = r.qkv.get(at + i), sum += std::pow(r.qkv.get(at + i), 2);
    for (double& v : x) v *= by / std::sqrt(sum);
    return x;
  };
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = t * m.width();
    out.q.push_back(unit(row + group * m.key, 1 / std::sqrt(static_cast<double>(m.key))));
    out.k.push_back(unit(row + (m.key_heads + group) * m.key, 1));
    Numbers value;
    for (int64_t i = 0; i < m.value; ++i) value.push_back(r.qkv.get(row + 2 * m.key_heads * m.key + h * m.value + i));
    out.v.push_back(std::move(value));
    out.g.push_back(-std::exp(r.a_log.get(h)) * std::log1p(std::exp(r.a.get(t * m.heads + h) + r.dt_bias.get(h))));
    out.beta.push_back(1 / (1 + std::exp(-r.b.get(t * m.heads + h))));
  }
  return out;
}

double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// x += y * by
void add(Numbers& x, const Numbers& y, double by) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i] * by;
}

// Rows [from, to) of a chunk at once: state[i] is row i of S. Returns their results.
std::vector<Numbers> chunk(const HeadRows& r, size_t from, size_t to, std::vector<Numbers>& state) {
  const size_t n = to - from, key = state.size(), value = state[0].size();
  Numbers sum(n);
  for (size_t i = 0; i < n; ++i) sum[i] = r.g[from + i] + (i > 0 ? sum[i - 1] : 0);
  std::vector<Numbers> u, w, out;
  for (size_t i = 0; i < n; ++i) {  // (I + A) [U | W] = [beta v | beta k exp(sum)], A strictly lower triangular
    const size_t t = from + i;
    u.emplace_back(value, 0), w.emplace_back(key, 0);
    add(u[i], r.v[t], r.beta[t]);
    add(w[i], r.k[t], r.beta[t] * std::exp(sum[i]));
    for (size_t j = 0; j < i; ++j) {
      const double a = r.beta[t] * dot(r.k[t], r.k[from + j]) * std::exp(sum[i] - sum[j]);
      add(u[i], u[j], -a);
      add(w[i], w[j], -a);
    }
  }
  for (size_t i = 0; i < n; ++i)
    for (size_t x = 0; x < key; ++x) add(u[i], state[x], -w[i][x]);
  for (size_t i = 0; i < n; ++i) {
    const Numbers& q = r.q[from + i];
    Numbers o(value, 0);
    for (size_t x = 0; x < key; ++x) add(o, state[x], q[x] * std::exp(sum[i]));
    for (size_t j = 0; j <= i; ++j) add(o, u[j], dot(q, r.k[from + j]) * std::exp(sum[i] - sum[j]));
    out.push_back(std::move(o));
  }
  for (size_t x = 0; x < key; ++x) {
    for (double& s : state[x]) s *= std::exp(sum[n - 1]);
    for (size_t i = 0; i < n; ++i) add(state[x], u[i], r.k[from + i][x] * std::exp(sum[n - 1] - sum[i]));
  }
  return out;
}

class Recurrent : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};
};

TEST_P(Recurrent, TheGatedDeltaRuleIsItsFormInChunks) {
  for (const DType dtype : kDTypes)
    for (Delta m : {Delta{}, Delta{.heads = 3, .key_heads = 3, .key = 16, .value = 8},
                    Delta{.heads = 2, .key_heads = 1, .key = 37, .value = 70},
                    Delta{.heads = 1, .key_heads = 1, .key = 1, .value = 1}}) {
      m.dtype = dtype;
      constexpr int64_t kTokens = 131;
      const DeltaRows rows = make_rows(m, kTokens, 7);
      const auto got = delta_step(runner, m, rows, empty_states({m.heads, m.key, m.value}, 4), {{0, kTokens, 1, 3}});
      const TestTensor state = state_of(got[0], 3);
      double worst = 0, worst_state = 0;
      for (int64_t h = 0; h < m.heads; ++h) {
        const HeadRows of_head = head_rows(m, rows, kTokens, h);
        std::vector<Numbers> s(static_cast<size_t>(m.key), Numbers(static_cast<size_t>(m.value), 0));
        for (int64_t from = 0; from < kTokens; from += 64) {
          const int64_t to = std::min<int64_t>(from + 64, kTokens);
          const auto want = chunk(of_head, static_cast<size_t>(from), static_cast<size_t>(to), s);
          for (int64_t t = from; t < to; ++t)
            for (int64_t i = 0; i < m.value; ++i)
              worst = std::max(worst, std::abs(got[1].get((t * m.heads + h) * m.value + i) -
                                               want[static_cast<size_t>(t - from)][static_cast<size_t>(i)]));
        }
        for (int64_t x = 0; x < m.key; ++x)
          for (int64_t i = 0; i < m.value; ++i)
            worst_state = std::max(worst_state, std::abs(state.get((h * m.key + x) * m.value + i) -
                                                         s[static_cast<size_t>(x)][static_cast<size_t>(i)]));
      }
      EXPECT_LT(worst, unit_roundoff(dtype) * 3 + 4e-6) << m.name();
      EXPECT_LT(worst_state, 1e-5) << m.name();
    }
}

TEST_P(Recurrent, TheGatedDeltaRuleHasTheSameBitsInChunksBatchesAndThreads) {
  for (const DType dtype : kDTypes)
    for (Delta m : {Delta{}, Delta{.heads = 4, .key_heads = 1, .key = 9, .value = 75}}) {
      m.dtype = dtype;
      constexpr int64_t kTokens = 77;
      const DeltaRows rows = make_rows(m, kTokens, 11);
      const TestTensor empty = empty_states({m.heads, m.key, m.value}, 6);
      const auto whole = delta_step(runner, m, rows, empty, {{0, kTokens, 1, 2}});
      for (const int threads : {2, 3, 7}) {
        const auto again = delta_step(runner, m, rows, empty, {{0, kTokens, 1, 2}}, threads);
        for (size_t i : {0, 1}) expect_same_bits(again[i], whole[i], m.name());
      }
      for (const int64_t size : {1, 31, 32, 33, 64}) {
        TestTensor states = empty;
        for (int64_t from = 0, turn = 0; from < kTokens; from += size, ++turn) {
          const int64_t to = std::min(from + size, kTokens);
          const auto part = static_cast<int32_t>(turn % 2);
          const auto step = delta_step(runner, m, rows, states, {{from, to, from == 0 ? 1 : 2 + part, 3 - part}}, 2);
          expect_same_bits(step[1], rows_of(whole[1], from, to - from), m.name());
          states = step[0];
          if (to == kTokens) expect_same_bits(state_of(states, 3 - part), state_of(whole[0], 2), m.name());
        }
      }
      // Beside others, in other slots, before rows of no sequence.
      const auto first = delta_step(runner, m, rows, empty, {{0, 20, 1, 4}});
      const std::vector<Part> parts{{5, 9, 1, 0}, {20, kTokens, 4, 5}, {3, 7, 1, -1}, {0, 1, 1, 2}};
      for (const int threads : {1, 3}) {
        const auto batch = delta_step(runner, m, rows, first[0], parts, threads, 3);
        expect_same_bits(rows_of(batch[1], 4, kTokens - 20), rows_of(whole[1], 20, kTokens - 20), m.name());
        expect_same_bits(state_of(batch[0], 5), state_of(whole[0], 2), m.name());
        expect_same_bits(state_of(batch[0], 4), state_of(first[0], 4), m.name());
        const int64_t used = 4 + kTokens - 20;
        expect_same_bits(rows_of(batch[1], used + 4, 1), rows_of(whole[1], 0, 1), m.name());
        for (const auto& [from, count] : {std::pair<int64_t, int64_t>{used, 4}, {used + 5, 3}}) {
          const TestTensor zeros = rows_of(batch[1], from, count);
          for (int64_t i = 0; i < zeros.size(); ++i) ASSERT_EQ(zeros.get(i), 0) << m.name();
        }
      }
    }
}

// Many states of one row each are stored past the caches, where they lie so that they can be.
TEST_P(Recurrent, ManyStatesHaveTheBitsOfEachAlone) {
  for (Delta m : {Delta{DType::BF16, 8, 2, 128, 128}, Delta{DType::BF16, 8, 2, 128, 136}}) {
    constexpr int32_t kSequences = 9;
    const DeltaRows rows = make_rows(m, 2 * kSequences, 13);
    std::vector<Part> prompts, parts;
    for (int32_t i = 0; i < kSequences; ++i) {
      prompts.push_back({i, 2 * i + 1, 1, 2 + i});
      parts.push_back({2 * i + 1, 2 * i + 2, 2 + i, 2 + kSequences + i});
    }
    const TestTensor states =
        delta_step(runner, m, rows, empty_states({m.heads, m.key, m.value}, 2 + 2 * kSequences), prompts)[0];
    for (const int threads : {1, 3}) {
      const auto together = delta_step(runner, m, rows, states, parts, threads);
      for (const int32_t i : {0, 4, kSequences - 1}) {
        const auto alone = delta_step(runner, m, rows, states, {parts[static_cast<size_t>(i)]});
        expect_same_bits(rows_of(together[1], i, 1), alone[1], m.name());
        const int64_t written = parts[static_cast<size_t>(i)].write;
        expect_same_bits(state_of(together[0], written), state_of(alone[0], written), m.name());
      }
    }
  }
}

// A sequence without rows keeps its state; so does a step that is run again.
TEST_P(Recurrent, AStepMayRunAgainAndAStateIsCarriedOver) {
  const Delta m;
  const DeltaRows rows = make_rows(m, 9, 3);
  const TestTensor empty = empty_states({m.heads, m.key, m.value}, 5);
  const auto once = delta_step(runner, m, rows, empty, {{0, 8, 1, 2}});
  const auto next = delta_step(runner, m, rows, once[0], {{8, 9, 2, 3}});
  const auto again = delta_step(runner, m, rows, next[0], {{8, 9, 2, 3}, {0, 0, 2, 4}}, 2);
  expect_same_bits(again[1], next[1]);
  expect_same_bits(state_of(again[0], 3), state_of(next[0], 3));
  expect_same_bits(state_of(again[0], 4), state_of(once[0], 2));
}

TEST_P(Recurrent, AConvolutionTakesTheRowsBefore) {
  for (const DType dtype : kDTypes)
    for (const int64_t taps : {2, 3, 4, 7})
      for (const int64_t columns : {1, 16, 45, 290}) {
        const std::string what = fmt::format("{} K {} C {}", dtype_name(dtype), taps, columns);
        constexpr int64_t kTokens = 21;  // rows and columns go in parts of 16 and 256
        const TestTensor x = random_tensor(dtype, {kTokens, columns}, 5, -3, 3),
                         w = random_tensor(dtype, {columns, 1, taps}, 6, -1, 1);
        const TestTensor empty = empty_states({taps - 1, columns}, 6);
        const auto run = [&](const TestTensor& states, const std::vector<Part>& parts, int threads,
                             int64_t padding = 0) {
          const Indices at(parts);
          return runner.run("causal_conv", {states, rows_of_parts(x, parts, padding), w, at.read, at.write, at.borders},
                            {}, {.threads = threads});
        };
        const auto whole = run(empty, {{0, kTokens, 1, 2}}, 1);
        Numbers want;
        for (int64_t t = 0; t < kTokens; ++t)
          for (int64_t c = 0; c < columns; ++c) {
            double sum = 0;
            for (int64_t j = std::max<int64_t>(0, taps - 1 - t); j < taps; ++j)
              sum += w.get(c * taps + j) * x.get((t - taps + 1 + j) * columns + c);
            want.push_back(reference::silu(sum));
          }
        expect_close(whole[1], want, unit_roundoff(dtype) + 2e-6, 2e-6, what);
        const TestTensor state = state_of(whole[0], 2);
        for (int64_t j = 0; j < taps - 1; ++j)
          for (int64_t c = 0; c < columns; ++c)
            ASSERT_EQ(state.get(j * columns + c), x.get((kTokens - taps + 1 + j) * columns + c)) << what;
        for (const int64_t size : {1, 2, 5}) {
          TestTensor states = empty;
          for (int64_t from = 0, turn = 0; from < kTokens; from += size, ++turn) {
            const int64_t to = std::min(from + size, kTokens);
            const auto part = static_cast<int32_t>(turn % 2);
            const auto step = run(states, {{from, to, from == 0 ? 1 : 2 + part, 3 - part}}, 3);
            expect_same_bits(step[1], rows_of(whole[1], from, to - from), what);
            states = step[0];
          }
        }
        const auto first = run(empty, {{0, 9, 1, 4}}, 2);
        const auto batch = run(first[0], {{3, 5, 1, -1}, {9, kTokens, 4, 5}, {0, 1, 1, 0}}, 2, 4);
        expect_same_bits(rows_of(batch[1], 2, kTokens - 9), rows_of(whole[1], 9, kTokens - 9), what);
        expect_same_bits(state_of(batch[0], 5), state_of(whole[0], 2), what);
        const TestTensor zeros = rows_of(batch[1], kTokens - 6, 4);
        for (int64_t i = 0; i < zeros.size(); ++i) ASSERT_EQ(zeros.get(i), 0) << what;
      }
}

TEST_P(Recurrent, RowsBehindDraftsHaveTheBitsOfPlainRows) {
  for (const DType dtype : kDTypes)
    for (Delta m : {Delta{}, Delta{.heads = 2, .key_heads = 2, .key = 9, .value = 75},
                    Delta{.heads = 2, .key_heads = 1, .key = 32, .value = 64}}) {
      m.dtype = dtype;
      const int64_t tokens = length_of_course();
      const DeltaRows rows = make_rows(m, tokens, 31), wrong = make_rows(m, 8, 57);
      const TestTensor plain = empty_states({m.heads, m.key, m.value}, 5);
      const auto whole = delta_step(runner, m, rows, plain, {{0, tokens, 1, 2}});
      for (const int threads : {1, 5})
        expect_rows_of_plain_steps(
            whole[1], empty_states({m.heads, delta_state_rows(m.key, m.value, kMostDrafts), m.value}, 5),
            [&](const TestTensor& states, int64_t at, const Guesses& g, int64_t came_true, int32_t read,
                int32_t write) {
              std::vector<TestTensor> in{states,
                                         rows_of_step(rows.qkv, wrong.qkv, at, g),
                                         rows_of_step(rows.b, wrong.b, at, g),
                                         rows_of_step(rows.a, wrong.a, at, g),
                                         rows.a_log,
                                         rows.dt_bias};
              for (TestTensor& t : places(g, came_true, read, write)) in.push_back(std::move(t));
              return runner.run("gated_delta", in, {{"key_heads", m.key_heads}, {"most_drafts", kMostDrafts}},
                                {.threads = threads});
            },
            m.name());
    }
}

TEST_P(Recurrent, AConvolutionTakesBackDrafts) {
  for (const DType dtype : kDTypes)
    for (const int64_t taps : {1, 2, 4})
      for (const int64_t columns : {16, 45}) {
        const std::string what = fmt::format("{} K {} C {}", dtype_name(dtype), taps, columns);
        const int64_t tokens = length_of_course();
        const TestTensor x = random_tensor(dtype, {tokens, columns}, 5, -3, 3),
                         wrong = random_tensor(dtype, {8, columns}, 9, -3, 3),
                         w = random_tensor(dtype, {columns, 1, taps}, 6, -1, 1);
        const auto run = [&](const TestTensor& states, const TestTensor& rows, std::vector<TestTensor> at) {
          at.insert(at.begin(), {states, rows, w});
          return runner.run("causal_conv", at, {}, {.threads = 2});
        };
        const Guesses all{tokens, 0, 0};
        const auto whole = run(empty_states({taps - 1 + kMostDrafts, columns}, 5), rows_of_step(x, wrong, 0, all),
                               places(all, 0, 1, 2));
        if (taps > 1) {  // as without room for drafts
          const Indices of({{0, tokens, 1, 2}});
          const auto plain = run(empty_states({taps - 1, columns}, 5), x, {of.read, of.write, of.borders});
          expect_same_bits(rows_of(whole[1], 2, tokens), plain[1], what);
        }
        expect_rows_of_plain_steps(
            rows_of(whole[1], 2, tokens), empty_states({taps - 1 + kMostDrafts, columns}, 5),
            [&](const TestTensor& states, int64_t at, const Guesses& g, int64_t came_true, int32_t read,
                int32_t write) {
              return run(states, rows_of_step(x, wrong, at, g), places(g, came_true, read, write));
            },
            what);
      }
}

// Gates far out: a state that is kept or forgotten at once, and never a number that is none.
TEST_P(Recurrent, GatesMayBeAnyNumber) {
  const Delta m{.heads = 4, .key_heads = 2, .key = 5, .value = 3};
  DeltaRows rows = make_rows(m, 8, 21);
  for (int64_t i = 0; i < rows.a.size(); ++i) rows.a.set(i, (i % 2 ? 1 : -1) * 200.0 * static_cast<double>(i % 5));
  for (int64_t i = 0; i < rows.b.size(); ++i) rows.b.set(i, (i % 3 ? 1 : -1) * 300.0);
  rows.a_log.set(0, 20), rows.a_log.set(1, -80);
  for (int64_t i = 0; i < 2 * m.key_heads * m.key; ++i) rows.qkv.set(i, 0);  // nothing to divide by
  const auto got = delta_step(runner, m, rows, empty_states({m.heads, m.key, m.value}, 3), {{0, 8, 1, 2}});
  for (int64_t i = 0; i < got[1].size(); ++i) ASSERT_TRUE(std::isfinite(got[1].get(i))) << i;
  const TestTensor state = state_of(got[0], 2);
  for (int64_t i = 0; i < state.size(); ++i) ASSERT_TRUE(std::isfinite(state.get(i))) << i;
}

TEST_P(Recurrent, SizesThatDoNotFitAreNamed) {
  const Delta m;
  const DeltaRows rows = make_rows(m, 3, 1);
  const Indices at({{0, 3, 1, 2}});
  const auto refused = [&](const Delta& state, int64_t key_heads) {
    const auto s = empty_states({state.heads, state.key, state.value}, 3);
    return runner
        .choose("gated_delta",
                {s.type, rows.qkv.type, rows.b.type, rows.a.type, rows.a_log.type, rows.dt_bias.type, at.read.type,
                 at.write.type, at.borders.type},
                {{"key_heads", key_heads}})
        .status()
        .message();
  };
  EXPECT_EQ(refused(m, 2), "");
  EXPECT_NE(refused(m, 4).find("6 heads of values are not a multiple of 4 heads of keys"), std::string::npos);
  EXPECT_NE(refused(Delta{.key = 13}, 2).find("sizes of queries, keys and values"), std::string::npos);
  const auto with_drafts = [&](int64_t state_rows, int64_t drafts, bool told) {
    std::vector<TensorType> in{empty_states({m.heads, state_rows, m.value}, 3).type,
                               rows.qkv.type,
                               rows.b.type,
                               rows.a.type,
                               rows.a_log.type,
                               rows.dt_bias.type,
                               at.read.type,
                               at.write.type,
                               at.borders.type};
    if (told) in.push_back({at.read.type.dtype, {Dim(1), Dim(2)}});
    return runner.choose("gated_delta", in, {{"key_heads", m.key_heads}, {"most_drafts", drafts}}).status().message();
  };
  EXPECT_EQ(with_drafts(delta_state_rows(m.key, m.value, 2), 2, true), "");
  EXPECT_NE(with_drafts(delta_state_rows(m.key, m.value, 2), 3, true).find("rows for keys and drafts"),
            std::string::npos);
  EXPECT_NE(with_drafts(m.key, 2, false).find("2 drafts, and 9 operands"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Isas, Recurrent, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::recurrent_test
