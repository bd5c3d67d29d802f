// Prompts' attention over latents with keys and values expanded: which sequences take part, products of some rows, and
// the attention itself against double precision and against itself.
#include <gtest/gtest.h>

#include "backends/paged_step.h"

namespace reprise::cpu::expanded_test {
namespace {

struct Model {
  DType dtype = DType::F32;
  int64_t heads, latent, rope, nope, value;
  double scale() const { return 1 / std::sqrt(static_cast<double>(nope + rope)); }
  std::string name() const {
    return fmt::format("{} H {} C {} D {} N {} V {}", dtype_name(dtype), heads, latent, rope, nope, value);
  }
};

struct Sequence {
  TestTensor q, q_rope, latents, ropes;
};

Sequence make_sequence(const Model& m, int64_t length, uint32_t seed) {
  return {random_tensor(m.dtype, {length, m.heads, m.nope}, seed, -2, 2),
          random_tensor(m.dtype, {length, m.heads, m.rope}, seed + 1000, -2, 2),
          random_tensor(m.dtype, {length, m.latent}, seed + 2000, -1, 1),
          random_tensor(m.dtype, {length, m.rope}, seed + 3000, -2, 2)};
}

struct Weights {
  TestTensor key, value;
};

Weights make_weights(const Model& m) {
  const double bound = 1 / std::sqrt(static_cast<double>(m.latent));
  return {random_tensor(m.dtype, {m.heads, m.latent, m.nope}, 5, -bound, bound),
          random_tensor(m.dtype, {m.heads, m.value, m.latent}, 6, -bound, bound)};
}

// Tokens [from, to) are this step's. A skipped sequence has length 0 for the op.
struct Part {
  const Sequence* sequence;
  int64_t from, to;
  bool skipped = false;
};

struct How {
  int threads = 1;
  uint32_t page_seed = 1;
  int dot = -1;  // whether bf16 uses vdpbf16ps where it can; -1: what is faster here
};

constexpr double kUntouched = 7;

TestTensor step(const OpRunner& runner, const Model& m, const std::vector<Part>& parts, How how = {}) {
  const PagedStep at(parts, how.page_seed);
  std::vector<TestTensor> q, q_rope, latents, ropes;
  std::vector<double> lengths;
  int64_t tokens = 0;
  for (const Part& p : parts) {
    q.push_back(rows_of(p.sequence->q, p.from, p.to - p.from));
    q_rope.push_back(rows_of(p.sequence->q_rope, p.from, p.to - p.from));
    latents.push_back(rows_of(p.sequence->latents, 0, p.to));
    ropes.push_back(rows_of(p.sequence->ropes, 0, p.to));
    lengths.push_back(p.skipped ? 0 : static_cast<double>(p.to));
    tokens += p.to - p.from;
  }
  const auto cache = [&](int64_t width, const std::vector<TestTensor>& rows) {
    TestTensor empty = zero_tensor(m.dtype, {at.pages, kPageTokens, width});
    std::fill(empty.bytes.begin(), empty.bytes.end(), uint8_t{0xff});
    return runner.run("row_write", {empty, concat(rows), at.slots})[0];
  };
  TestTensor out = zero_tensor(m.dtype, {tokens, m.heads, m.value});
  for (int64_t i = 0; i < out.size(); ++i) out.set(i, kUntouched);
  const Weights w = make_weights(m);
  RunOptions run{.threads = how.threads};
  if (how.dot >= 0) run.adjust = [dot = how.dot](LaunchArgs& args) { args.way = dot; };
  return runner.run("expanded_latent_attention",
                    {out, concat(q), concat(q_rope), cache(m.latent, latents), cache(m.rope, ropes), w.key, w.value,
                     at.table, indices(lengths), at.starts},
                    {{"scale", m.scale()}}, run)[0];
}

double rounded(DType dtype, double x) {
  TestTensor one = zero_tensor(dtype, {1});
  one.set(0, x);
  return one.get(0);
}

std::vector<double> reference(const Model& m, const Sequence& s, int64_t from, int64_t to) {
  const Weights w = make_weights(m);
  const auto made = [&](int64_t j, int64_t n, const auto& weight) {
    double sum = 0;
    for (int64_t c = 0; c < m.latent; ++c) sum += s.latents.get(j * m.latent + c) * weight(c, n);
    return rounded(m.dtype, sum);
  };
  std::vector<double> out(static_cast<size_t>((to - from) * m.heads * m.value));
  for (int64_t h = 0; h < m.heads; ++h) {
    std::vector<std::vector<double>> keys, values;
    for (int64_t j = 0; j < to; ++j) {
      auto& k = keys.emplace_back();
      auto& v = values.emplace_back();
      for (int64_t n = 0; n < m.nope; ++n)
        k.push_back(made(j, n, [&](int64_t c, int64_t i) { return w.key.get((h * m.latent + c) * m.nope + i); }));
      for (int64_t n = 0; n < m.rope; ++n) k.push_back(s.ropes.get(j * m.rope + n));
      for (int64_t n = 0; n < m.value; ++n)
        v.push_back(made(j, n, [&](int64_t c, int64_t i) { return w.value.get((h * m.value + i) * m.latent + c); }));
    }
    for (int64_t t = from; t < to; ++t) {
      std::vector<double> weights;
      double top = -1e300, sum = 0;
      for (int64_t j = 0; j <= t; ++j) {
        double dot = 0;
        for (int64_t n = 0; n < m.nope + m.rope; ++n)
          dot += keys[static_cast<size_t>(j)][static_cast<size_t>(n)] *
                 (n < m.nope ? s.q.get((t * m.heads + h) * m.nope + n)
                             : s.q_rope.get((t * m.heads + h) * m.rope + n - m.nope));
        weights.push_back(dot * m.scale());
        top = std::max(top, weights.back());
      }
      for (double& x : weights) sum += x = std::exp(x - top);
      for (int64_t n = 0; n < m.value; ++n) {
        double value = 0;
        for (int64_t j = 0; j <= t; ++j)
          value += weights[static_cast<size_t>(j)] * values[static_cast<size_t>(j)][static_cast<size_t>(n)];
        out[static_cast<size_t>(((t - from) * m.heads + h) * m.value + n)] = value / sum;
      }
    }
  }
  return out;
}

const Model kModels[] = {{DType::F32, 3, 20, 8, 12, 10},   {DType::F32, 2, 97, 6, 70, 66},
                         {DType::BF16, 5, 36, 12, 16, 14}, {DType::BF16, 2, 128, 64, 128, 96},
                         {DType::F16, 1, 17, 6, 5, 7},     {DType::BF16, 3, 33, 2, 4, 20}};

TEST(ExpandedLatentAttention, MatchesTheReference) {
  for (const Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const Model& m : kModels) {
      const Sequence s = make_sequence(m, 293, 11);
      // A sum near the middle of two numbers may be rounded either way: a unit of a key moves a weight, a unit of a
      // value the result.
      const double e = unit_roundoff(m.dtype);
      for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 61}, {127, 131}, {100, 293}})
        expect_close(step(runner, m, {{&s, from, to}}), reference(m, s, from, to), 2 * e,
                     m.dtype == DType::F32 ? 5e-6 : 2 * e,
                     fmt::format("{} {} {}..{}", isa_name(isa), m.name(), from, to));
    }
  }
}

TEST(ExpandedLatentAttention, SameBitsInAnyBatchChunkTeamAndPlace) {
  for (const Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const Model& m : kModels) {
      const std::string what = fmt::format("{} {}", isa_name(isa), m.name());
      const Sequence a = make_sequence(m, 300, 21), b = make_sequence(m, 140, 22);
      const TestTensor whole = step(runner, m, {{&a, 0, 300}});
      for (const int threads : {2, 3}) expect_same_bits(step(runner, m, {{&a, 0, 300}}, {threads, 5}), whole, what);
      for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 33}, {1, 131}, {131, 132}, {255, 300}})
        expect_same_bits(step(runner, m, {{&a, from, to}}, {2, 9}), rows_of(whole, from, to - from), what);
      const TestTensor batch = step(runner, m, {{&b, 100, 140}, {&a, 250, 300}, {&b, 0, 3, true}}, {3});
      expect_same_bits(rows_of(batch, 0, 40), step(runner, m, {{&b, 100, 140}}), what);
      expect_same_bits(rows_of(batch, 40, 50), rows_of(whole, 250, 50), what);
      for (int64_t i = 90 * m.heads * m.value; i < batch.size(); ++i) ASSERT_EQ(batch.get(i), kUntouched) << what;
    }
  }
}

TEST(ExpandedLatentAttention, BothWaysOfBf16PairsHaveTheSameBits) {
  if (!is_avx512(supported_isas().back())) GTEST_SKIP() << "this processor has no bf16 dot instruction";
  const OpRunner runner(Isa::Avx512);
  for (const Model& m : kModels) {
    if (m.dtype != DType::BF16) continue;
    const Sequence s = make_sequence(m, 201, 41);
    const TestTensor want = step(runner, m, {{&s, 0, 201}}, {.dot = 1});
    expect_same_bits(step(runner, m, {{&s, 0, 201}}, {.threads = 2, .dot = 0}), want, m.name());
    expect_same_bits(step(runner, m, {{&s, 60, 131}}, {.threads = 2, .dot = 0}), rows_of(want, 60, 71), m.name());
  }
}

TEST(ExpandedLatentAttention, NaNOfALaterTokenStaysThere) {
  for (const Model& m : {kModels[0], kModels[2]})
    for (const Isa isa : isas_with_tiles())
      for (const int64_t late : {139, 140}) {
        const OpRunner runner(isa);
        Sequence s = make_sequence(m, 150, 31);
        const TestTensor clean = step(runner, m, {{&s, 100, 150}});
        for (int64_t i = 0; i < m.latent; ++i) s.latents.set(late * m.latent + i, std::nan(""));
        const TestTensor got = step(runner, m, {{&s, 100, 150}});
        expect_same_bits(rows_of(got, 0, late - 100), rows_of(clean, 0, late - 100), std::string(isa_name(isa)));
        EXPECT_TRUE(std::isnan(got.get((late - 100) * m.heads * m.value)));
      }
}

TEST(PerHeadMatmulRows, ComputesThoseOfTheList) {
  for (const Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (const std::vector<double>& list : {std::vector<double>{0, 1, 4, -1, -1, -1, -1},
                                              {-1, -1, -1, -1, -1, -1, -1},
                                              {0, 1, 2, 3, 4, 5, 6},
                                              {6, -1, -1, -1, -1, -1, -1}}) {
        const TestTensor x = random_tensor(dtype, {7, 3, 19}, 1), w = random_tensor(dtype, {3, 70, 19}, 2);
        const TestTensor all = runner.run("per_head_matmul", {x, w})[0];
        for (const int threads : {1, 3}) {
          const TestTensor got = runner.run("per_head_matmul_rows", {x, indices(list), w}, {}, {.threads = threads})[0];
          for (int64_t t = 0; t < 7; ++t) {
            const bool listed = std::find(list.begin(), list.end(), static_cast<double>(t)) != list.end();
            expect_same_bits(rows_of(got, t, 1), listed ? rows_of(all, t, 1) : zero_tensor(dtype, {1, 3, 70}),
                             fmt::format("{} {} row {}", isa_name(isa), dtype_name(dtype), t));
          }
        }
      }
  }
}

// Sequences of (new tokens, length), of which those at `expanded` have keys and values made.
TEST(LatentForms, ExpandWhereThatIsFewerOperations) {
  const OpRunner runner(Isa::Baseline);
  const std::vector<std::pair<int64_t, int64_t>> sequences{{1, 900}, {512, 512},  {31, 31},   {32, 32},
                                                           {0, 0},   {128, 4096}, {256, 4096}};
  const std::vector<bool> expanded{false, true, false, true, false, false, true};
  std::vector<double> lengths, starts{0}, want_rows, want_absorbed, want_expanded;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto [n, length] = sequences[i];
    lengths.push_back(static_cast<double>(length));
    for (int64_t t = 0; t < n && !expanded[i]; ++t) want_rows.push_back(starts.back() + static_cast<double>(t));
    starts.push_back(starts.back() + static_cast<double>(n));
    want_absorbed.push_back(expanded[i] ? 0 : static_cast<double>(length));
    want_expanded.push_back(expanded[i] ? static_cast<double>(length) : 0);
  }
  const auto tokens = static_cast<size_t>(starts.back()) + 5;  // and rows of padding
  want_rows.resize(tokens, -1);
  const auto got =
      runner.run("latent_forms", {indices(std::vector<double>(tokens, 3)), indices(lengths), indices(starts)},
                 {{"latent", int64_t{512}}, {"nope", int64_t{128}}, {"value", int64_t{128}}}, {.threads = 2});
  expect_same_bits(got[0], indices(want_rows));
  expect_same_bits(got[1], indices(want_absorbed));
  expect_same_bits(got[2], indices(want_expanded));
}

TEST(ExpandedOps, WrongOperandsAreNamed) {
  const OpRunner runner(Isa::Baseline);
  const auto type = [](DType t, std::initializer_list<int64_t> sizes) {
    return TensorType{t, constant_shape(std::vector<int64_t>(sizes))};
  };
  const auto message = [&](DType t, std::initializer_list<int64_t> key_weight, int64_t value) {
    const auto got =
        runner.choose("expanded_latent_attention",
                      {type(t, {4, 2, value}), type(t, {4, 2, 7}), type(t, {4, 2, 6}), type(t, {3, 128, 20}),
                       type(t, {3, 128, 6}), type(t, key_weight), type(t, {2, value, 20}), type(DType::I32, {1, 2}),
                       type(DType::I32, {1}), type(DType::I32, {2})},
                      {{"scale", 1.0}});
    return got.is_ok() ? std::string() : got.status().message();
  };
  EXPECT_EQ(message(DType::F32, {2, 20, 7}, 5), "");
  EXPECT_NE(message(DType::F32, {2, 7, 20}, 5).find("size of queries, latents and heads"), std::string::npos);
  EXPECT_NE(message(DType::BF16, {2, 20, 7}, 5).find("even sizes of keys and values, not 13 and 5"), std::string::npos)
      << message(DType::BF16, {2, 20, 7}, 5);
}

}  // namespace
}  // namespace reprise::cpu::expanded_test
