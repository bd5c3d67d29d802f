// The convolution and the gated delta rule of layers with states on the Ascend backend over the simulator, against
// their formulas in double precision: steps and prompts, short and long sequences, rows of no sequence.
#include <cmath>

#include "backends/ascend_entry.h"
#include "base/half.h"

namespace reprise::ascend_recurrent_test {
namespace {

using Numbers = std::vector<double>;

constexpr int32_t kScratch = 0, kZero = 1;

// Rows of one sequence in the step, and the slots of its state.
struct Part {
  int64_t rows;
  int32_t read, write;
};

class AscendRecurrent : public AscendEntryTest {
 protected:
  static double value(uint32_t i, uint32_t salt, double size) {
    return (static_cast<double>((i * 2654435761u + salt * 40503u) >> 16 & 4095) / 2048 - 1) * size;
  }
  static AscendOperand rows(int64_t n, int64_t width, uint32_t salt, double size = 1) {
    std::vector<uint16_t> out;
    for (int64_t i = 0; i < n * width; ++i)
      out.push_back(float_to_bf16(static_cast<float>(value(static_cast<uint32_t>(i), salt, size))));
    return operand({DType::BF16, {Dim(n), Dim(width)}}, out);
  }
  static AscendOperand numbers(const Shape& shape, uint32_t salt, double size = 1) {
    std::vector<float> out;
    for (int64_t i = 0; i < shape.elements({}); ++i)
      out.push_back(static_cast<float>(value(static_cast<uint32_t>(i), salt, size)));
    return operand({DType::F32, shape}, out);
  }
  static Numbers read(const AscendOperand& o) { return read(o.type.dtype, o.bytes); }
  static Numbers read(DType type, const std::vector<uint8_t>& bytes) {
    Numbers out;
    if (type == DType::F32)
      for (const float v : numbers_of<float>(bytes)) out.push_back(v);
    else
      for (const uint16_t v : numbers_of<uint16_t>(bytes)) out.push_back(bf16_to_float(v));
    return out;
  }

  // Operands that name slots and borders; `padding` sequences of no rows behind them.
  struct Places {
    AscendOperand read, write, borders;
  };
  static Places places(const std::vector<Part>& parts, int64_t padding) {
    std::vector<int32_t> read, write, borders{0};
    for (const Part& p : parts) {
      read.push_back(p.read), write.push_back(p.write);
      borders.push_back(borders.back() + static_cast<int32_t>(p.rows));
    }
    for (int64_t i = 0; i < padding; ++i) {
      read.push_back(kZero), write.push_back(kScratch);
      borders.push_back(borders.back());
    }
    const Dim r(static_cast<int64_t>(read.size())), q(static_cast<int64_t>(borders.size()));
    return {operand({DType::I32, {r}}, read), operand({DType::I32, {r}}, write), operand({DType::I32, {q}}, borders)};
  }
  static int64_t rows_of(const std::vector<Part>& parts) {
    int64_t n = 0;
    for (const Part& p : parts) n += p.rows;
    return n;
  }
  static void expect_near(const Numbers& got, const Numbers& want, double tolerance, int64_t count, const char* what) {
    double worst = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double off = std::abs(got[static_cast<size_t>(i)] - want[static_cast<size_t>(i)]);
      worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    }
    EXPECT_LE(worst, tolerance) << what;
  }
};

struct Step {
  std::vector<Part> parts;
  int64_t padding_rows = 0, padding_sequences = 0;
};

// Steps of one row each, prompts, both, and rows of no sequence with and without sequences of no rows.
const std::vector<Step>& steps() {
  static const std::vector<Step> all{
      {{{1, 2, 3}}},
      {{{1, 2, 3}, {1, kZero, 4}, {1, 5, 6}}},
      {{{1, 2, 3}, {1, 5, 6}}, 2, 2},
      {{{21, kZero, 3}}},
      {{{2, 2, 3}}},
      {{{17, 2, 3}, {1, 5, 4}, {2, kZero, 6}, {8, 7, 8}}},
      {{{9, 2, 3}, {1, 5, 4}}, 6, 0},
      {{{9, 2, 3}, {1, 5, 4}}, 6, 3},
  };
  return all;
}

constexpr int64_t kSlots = 9, kTaps = 4, kColumns = 20;

// Of a step of the convolution: its rows, and the states behind it.
struct ConvResult {
  Numbers rows, states;
};
ConvResult convolve(const Step& s, const Numbers& state, const Numbers& x, const Numbers& w, const Numbers& bias) {
  const auto c = static_cast<size_t>(kColumns);
  constexpr size_t kBack = kTaps - 1;
  ConvResult out{Numbers(x.size(), 0), state};
  size_t first = 0;
  for (const Part& p : s.parts) {
    for (size_t i = 0; i < c; ++i) {
      Numbers line;
      for (size_t j = 0; j < kBack; ++j) line.push_back(state[(static_cast<size_t>(p.read) * kBack + j) * c + i]);
      for (size_t t = 0; t < static_cast<size_t>(p.rows); ++t) line.push_back(x[(first + t) * c + i]);
      for (size_t t = 0; t < static_cast<size_t>(p.rows); ++t) {
        double sum = bias.empty() ? 0 : bias[i];
        for (size_t j = 0; j < kTaps; ++j) sum += w[i * kTaps + j] * line[t + j];
        out.rows[(first + t) * c + i] = sum / (1 + std::exp(-sum));
      }
      for (size_t j = 0; j < kBack; ++j)
        out.states[(static_cast<size_t>(p.write) * kBack + j) * c + i] = line[line.size() - kBack + j];
    }
    first += static_cast<size_t>(p.rows);
  }
  return out;
}

TEST_F(AscendRecurrent, TheConvolutionIsItsFormula) {
  for (const bool biased : {false, true})
    for (const Step& s : steps()) {
      const int64_t used = rows_of(s.parts), t = used + s.padding_rows;
      SCOPED_TRACE(fmt::format("{} sequences, {} rows, {} more of none", s.parts.size(), used, s.padding_rows));
      AscendOperand states = numbers({Dim(kSlots), Dim(kTaps - 1), Dim(kColumns)}, 1);
      std::fill_n(states.bytes.begin() + kZero * (kTaps - 1) * kColumns * 4, (kTaps - 1) * kColumns * 4, uint8_t{0});
      AscendOperand w = rows(kColumns, kTaps, 2), bias = rows(1, kColumns, 3);
      w.type.shape = {Dim(kColumns), Dim(1), Dim(kTaps)}, bias.type.shape = {Dim(kColumns)};
      const AscendOperand x = rows(t, kColumns, 4, 2);
      const Places at = places(s.parts, s.padding_sequences);
      std::vector<AscendOperand> in{states, x, w};
      if (biased) in.push_back(bias);
      for (const AscendOperand& o : {at.read, at.write, at.borders}) in.push_back(o);
      const auto got = run(biased ? "ascend.causal_conv_biased" : "ascend.causal_conv", in, {});
      ASSERT_EQ(got.size(), 2u);
      const ConvResult want = convolve(s, read(states), read(x), read(w), biased ? read(bias) : Numbers{});
      expect_near(read(DType::BF16, got[1]), want.rows, 0.03, used * kColumns, "rows");
      // All but the scratch slot.
      const auto slot = static_cast<size_t>((kTaps - 1) * kColumns);
      const Numbers after = read(DType::F32, got[0]);
      for (size_t i = slot; i < after.size(); ++i) ASSERT_EQ(after[i], want.states[i]) << i / slot;
      for (const double v : read(DType::BF16, got[1])) ASSERT_FALSE(std::isnan(v));
    }
}

struct Sizes {
  int64_t heads = 6, key_heads = 2, key = 12, value = 20, slots = kSlots;
  int64_t width() const { return 2 * key_heads * key + heads * value; }
  int64_t state() const { return heads * key * value; }
};

struct DeltaOperands {
  AscendOperand states, qkv, b, a, a_log, dt_bias;
};

// The recurrence (arXiv 2412.06464) in double precision; states are [slots, H, V, K].
struct DeltaResult {
  Numbers rows, states;
};
DeltaResult delta(const Sizes& m, const Step& s, const Numbers& states, const Numbers& qkv, const Numbers& b,
                  const Numbers& a, const Numbers& a_log, const Numbers& dt_bias) {
  const auto key = static_cast<size_t>(m.key), value = static_cast<size_t>(m.value), h = static_cast<size_t>(m.heads);
  DeltaResult out{Numbers(b.size() / h * h * value, 0), states};
  size_t first = 0;
  for (const Part& p : s.parts) {
    for (size_t head = 0; head < h; ++head) {
      const size_t group = head / (h / static_cast<size_t>(m.key_heads));
      const auto of_slot = [&](int32_t slot) { return (static_cast<size_t>(slot) * h + head) * value * key; };
      Numbers state(states.begin() + static_cast<int64_t>(of_slot(p.read)),
                    states.begin() + static_cast<int64_t>(of_slot(p.read) + value * key));
      for (size_t t = first; t < first + static_cast<size_t>(p.rows); ++t) {
        const size_t row = t * static_cast<size_t>(m.width());
        const auto unit = [&](size_t from) {
          Numbers x(qkv.begin() + static_cast<int64_t>(from), qkv.begin() + static_cast<int64_t>(from + key));
          double sum = 1e-6;
          for (const double v : x) sum += v * v;
          for (double& v : x) v /= std::sqrt(sum);
          return x;
        };
        const Numbers q = unit(row + group * key), k = unit(row + (static_cast<size_t>(m.key_heads) + group) * key);
        const double beta = 1 / (1 + std::exp(-b[t * h + head])),
                     fade = std::exp(-std::exp(a_log[head]) * std::log1p(std::exp(a[t * h + head] + dt_bias[head])));
        for (size_t i = 0; i < value; ++i) {
          const double v = qkv[row + 2 * static_cast<size_t>(m.key_heads) * key + head * value + i];
          double found = 0, sum = 0;
          for (size_t j = 0; j < key; ++j) found += (state[i * key + j] *= fade) * k[j];
          for (size_t j = 0; j < key; ++j) sum += (state[i * key + j] += beta * (v - found) * k[j]) * q[j];
          out.rows[(t * h + head) * value + i] = sum / std::sqrt(static_cast<double>(key));
        }
      }
      std::copy(state.begin(), state.end(), out.states.begin() + static_cast<int64_t>(of_slot(p.write)));
    }
    first += static_cast<size_t>(p.rows);
  }
  return out;
}

class AscendDelta : public AscendRecurrent {
 protected:
  static DeltaOperands operands(const Sizes& m, int64_t t) {
    DeltaOperands o{numbers({Dim(m.slots), Dim(m.heads), Dim(m.key), Dim(m.value)}, 1),
                    rows(t, m.width(), 2, 2),
                    rows(t, m.heads, 3, 3),
                    rows(t, m.heads, 4, 3),
                    numbers({Dim(m.heads)}, 5, 2),
                    numbers({Dim(m.heads)}, 6)};
    std::fill_n(o.states.bytes.begin() + kZero * m.state() * 4, m.state() * 4, uint8_t{0});
    return o;
  }
  // The first `count` rows from row `from` on.
  static AscendOperand cut(const AscendOperand& o, int64_t from, int64_t count) {
    AscendOperand out = o;
    const int64_t row = static_cast<int64_t>(o.bytes.size()) / o.type.shape[0].factor;
    out.type.shape = {Dim(count), o.type.shape[1]};
    out.bytes.assign(o.bytes.begin() + from * row, o.bytes.begin() + (from + count) * row);
    return out;
  }
  std::vector<std::vector<uint8_t>> step(const Sizes& m, const DeltaOperands& o, const Places& at) {
    return run("ascend.gated_delta", {o.states, o.qkv, o.b, o.a, o.a_log, o.dt_bias, at.read, at.write, at.borders},
               {{"key_heads", m.key_heads}});
  }
};

TEST_F(AscendDelta, TheRuleIsItsFormula) {
  // Fewer slots than rows that the operator takes of a sequence, too.
  for (const Sizes& m : {Sizes{}, Sizes{.heads = 3, .key_heads = 3, .key = 16, .value = 8},
                         Sizes{.heads = 2, .key_heads = 1, .key = 37, .value = 5}})
    for (const Step& s : steps()) {
      const int64_t used = rows_of(s.parts), t = used + s.padding_rows, width = m.heads * m.value;
      SCOPED_TRACE(fmt::format("{} heads, {} sequences, {} rows, {} more of none", m.heads, s.parts.size(), used,
                               s.padding_rows));
      const DeltaOperands o = operands(m, t);
      const auto got = step(m, o, places(s.parts, s.padding_sequences));
      ASSERT_EQ(got.size(), 2u);
      const DeltaResult want =
          delta(m, s, read(o.states), read(o.qkv), read(o.b), read(o.a), read(o.a_log), read(o.dt_bias));
      const Numbers out = read(DType::BF16, got[1]), after = read(DType::F32, got[0]);
      expect_near(out, want.rows, 0.02, used * width, "rows");
      Numbers kept(after.begin() + m.state(), after.end()), wanted(want.states.begin() + m.state(), want.states.end());
      expect_near(kept, wanted, 0.04, static_cast<int64_t>(kept.size()), "states");
      const bool one_each = t == static_cast<int64_t>(s.parts.size()) + s.padding_sequences;
      for (int64_t i = used * width; i < t * width && !one_each; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], 0) << i;
      for (const double v : out) ASSERT_FALSE(std::isnan(v));
    }
}

TEST_F(AscendDelta, FewSlotsMakeShorterWindows) {
  const Sizes m{.slots = 4};
  const Step s{{{13, 2, 3}}};
  const DeltaOperands o = operands(m, 13);
  const auto got = step(m, o, places(s.parts, 0));
  ASSERT_EQ(got.size(), 2u);
  const DeltaResult want =
      delta(m, s, read(o.states), read(o.qkv), read(o.b), read(o.a), read(o.a_log), read(o.dt_bias));
  expect_near(read(DType::BF16, got[1]), want.rows, 0.02, 13 * m.heads * m.value, "rows");
}

// A prompt cut anywhere, or row by row, alone and beside others, has the bits of the whole.
TEST_F(AscendDelta, APromptHasTheSameBitsHoweverItIsCut) {
  const Sizes m;
  constexpr int64_t kRows = 29;
  const DeltaOperands o = operands(m, kRows);
  const auto whole = step(m, o, places({{kRows, 2, 3}}, 0));
  ASSERT_EQ(whole.size(), 2u);
  const auto slot = [&](const std::vector<uint8_t>& states, int32_t s) {
    return std::vector<uint8_t>(states.begin() + s * m.state() * 4, states.begin() + (s + 1) * m.state() * 4);
  };
  for (const int64_t size : {1, 5, 8, 16}) {
    SCOPED_TRACE(size);
    DeltaOperands part = o;
    std::vector<uint8_t> out;
    int32_t read = 2;
    for (int64_t from = 0; from < kRows; from += size) {
      const int64_t n = std::min(size, kRows - from);
      part.qkv = cut(o.qkv, from, n), part.b = cut(o.b, from, n), part.a = cut(o.a, from, n);
      const int32_t write = read == 4 ? 5 : 4;
      const auto got = step(m, part, places({{n, read, write}}, 0));
      ASSERT_EQ(got.size(), 2u);
      out.insert(out.end(), got[1].begin(), got[1].end());
      EXPECT_EQ(slot(got[0], read), slot(part.states.bytes, read)) << "what was read stays";
      part.states.bytes = got[0];
      read = write;
    }
    EXPECT_EQ(out, whole[1]);
    EXPECT_EQ(slot(part.states.bytes, read), slot(whole[0], 3));
  }
}

TEST_F(AscendDelta, WhatTheVendorLacksIsRefused) {
  const Sizes m;
  const Dim t(3), r(2), q(3);
  const auto ask = [&](DType type, DType index, int64_t heads) {
    const TensorType state{DType::F32, {Dim(kSlots), Dim(heads), Dim(m.key), Dim(m.value)}},
        each{DType::F32, {Dim(heads)}};
    return chosen("gated_delta",
                  {state,
                   {type, {t, Dim(2 * heads * m.key + heads * m.value)}},
                   {type, {t, Dim(heads)}},
                   {type, {t, Dim(heads)}},
                   each,
                   each,
                   {index, {r}},
                   {index, {r}},
                   {index, {q}}},
                  {{"key_heads", heads}});
  };
  EXPECT_TRUE(ask(DType::BF16, DType::I32, 4).is_ok());
  for (const auto& [type, index, heads, reason] :
       {std::tuple{DType::F16, DType::I32, 4, "the vendor's delta rule takes bf16, not f16"},
        std::tuple{DType::F32, DType::I32, 4, "the vendor's delta rule takes bf16, not f32"},
        std::tuple{DType::BF16, DType::I64, 4, "takes i32 indices, and state_read is i64"},
        std::tuple{DType::BF16, DType::I32, 257, "up to 256 heads"}}) {
    const auto refused = ask(type, index, heads);
    ASSERT_FALSE(refused.is_ok());
    EXPECT_NE(refused.status().message().find(reason), std::string::npos) << refused.status().message();
  }
}

// The state-space step (Mamba-2, arXiv 2405.21060) in double precision; states are [slots, H, P, N].
struct SpaceSizes {
  int64_t heads = 6, groups = 2, head = 10, state = 12;
  double least = 0, most = 0;
  int64_t width() const { return heads * head + 2 * groups * state; }
  int64_t slot() const { return heads * head * state; }
};
DeltaResult space(const SpaceSizes& m, const Step& s, const Numbers& states, const Numbers& xbc, const Numbers& dt,
                  const Numbers& a_log, const Numbers& dt_bias, const Numbers& d) {
  const auto n = static_cast<size_t>(m.state), p = static_cast<size_t>(m.head), h = static_cast<size_t>(m.heads);
  DeltaResult out{Numbers(dt.size() * p, 0), states};
  size_t first = 0;
  for (const Part& part : s.parts) {
    for (size_t head = 0; head < h; ++head) {
      const size_t group = head / (h / static_cast<size_t>(m.groups));
      const auto of_slot = [&](int32_t slot) { return (static_cast<size_t>(slot) * h + head) * p * n; };
      Numbers state(states.begin() + static_cast<int64_t>(of_slot(part.read)),
                    states.begin() + static_cast<int64_t>(of_slot(part.read) + p * n));
      for (size_t t = first; t < first + static_cast<size_t>(part.rows); ++t) {
        const double* row = &xbc[t * static_cast<size_t>(m.width())];
        const double *b = row + h * p + group * n, *c = b + static_cast<size_t>(m.groups) * n;
        double step = std::max(m.least, std::log1p(std::exp(dt[t * h + head] + dt_bias[head])));
        if (m.most > 0) step = std::min(step, m.most);
        const double stays = std::exp(-std::exp(a_log[head]) * step);
        for (size_t i = 0; i < p; ++i) {
          const double x = row[head * p + i];
          double sum = d[head] * x;
          for (size_t j = 0; j < n; ++j) {
            double& v = state[i * n + j];
            v = v * stays + step * x * b[j];
            sum += v * c[j];
          }
          out.rows[(t * h + head) * p + i] = sum;
        }
      }
      std::copy(state.begin(), state.end(), out.states.begin() + static_cast<int64_t>(of_slot(part.write)));
    }
    first += static_cast<size_t>(part.rows);
  }
  return out;
}

// The delta rule's operator takes back nothing here, whatever the state holds.
TEST_F(AscendRecurrent, TheStateSpaceStepIsItsFormula) {
  for (const SpaceSizes& m :
       {SpaceSizes{}, SpaceSizes{.heads = 4, .groups = 1, .least = 0.25, .most = 1.5}, SpaceSizes{.groups = 6}})
    for (const Step& s : steps()) {
      const int64_t used = rows_of(s.parts), t = used + s.padding_rows, width = m.heads * m.head;
      SCOPED_TRACE(fmt::format("{} heads, {} sequences, {} rows, {} more of none", m.heads, s.parts.size(), used,
                               s.padding_rows));
      AscendOperand states = numbers({Dim(kSlots), Dim(m.heads), Dim(m.state), Dim(m.head)}, 1, 8);
      std::fill_n(states.bytes.begin() + kZero * m.slot() * 4, m.slot() * 4, uint8_t{0});
      const AscendOperand xbc = rows(t, m.width(), 2, 2), dt = rows(t, m.heads, 3, 2),
                          a_log = numbers({Dim(m.heads)}, 4), dt_bias = numbers({Dim(m.heads)}, 5),
                          d = numbers({Dim(m.heads)}, 6, 2);
      const Places at = places(s.parts, s.padding_sequences);
      const auto got = run("ascend.state_space", {states, xbc, dt, a_log, dt_bias, d, at.read, at.write, at.borders},
                           {{"groups", m.groups}, {"least_step", m.least}, {"most_step", m.most}});
      ASSERT_EQ(got.size(), 2u);
      const DeltaResult want = space(m, s, read(states), read(xbc), read(dt), read(a_log), read(dt_bias), read(d));
      double largest = 0;
      for (int64_t i = 0; i < used * width; ++i)
        largest = std::max(largest, std::abs(want.rows[static_cast<size_t>(i)]));
      const Numbers out = read(DType::BF16, got[1]), after = read(DType::F32, got[0]);
      expect_near(out, want.rows, 0.01 * largest, used * width, "rows");
      const Numbers kept(after.begin() + m.slot(), after.end()),
          wanted(want.states.begin() + m.slot(), want.states.end());
      expect_near(kept, wanted, 0.08, static_cast<int64_t>(kept.size()), "states");
      for (const double v : out) ASSERT_FALSE(std::isnan(v));
    }
}

TEST_F(AscendRecurrent, TheGatedNormIsItsFormula) {
  constexpr int64_t kRows = 5, kWidth = 24;
  constexpr double kEps = 1e-5;
  for (const int64_t groups : {1, 3}) {
    const AscendOperand x = rows(kRows, kWidth, 1, 3), gate = rows(kRows, kWidth, 2, 3);
    AscendOperand weight = rows(1, kWidth, 3);
    weight.type.shape = {Dim(kWidth)};
    const auto got = run("ascend.rms_norm_gated", {x, gate, weight}, {{"groups", groups}, {"eps", kEps}});
    ASSERT_EQ(got.size(), 1u);
    const Numbers a = read(x), g = read(gate), w = read(weight);
    Numbers want;
    const auto size = static_cast<size_t>(kWidth / groups);
    for (size_t at = 0; at < a.size(); at += size) {
      double sum = 0;
      Numbers v;
      for (size_t i = at; i < at + size; ++i) v.push_back(a[i] * g[i] / (1 + std::exp(-g[i])));
      for (const double y : v) sum += y * y;
      for (size_t i = 0; i < size; ++i)
        want.push_back(v[i] / std::sqrt(sum / static_cast<double>(size) + kEps) * w[(at + i) % kWidth]);
    }
    expect_near(read(DType::BF16, got[0]), want, 0.01, kRows * kWidth, "rows");
  }
}

TEST_F(AscendRecurrent, SquaresOfWhatIsPositive) {
  const AscendOperand x = rows(3, 8, 1, 3);
  const auto got = run("ascend.relu_squared", {x}, {});
  ASSERT_EQ(got.size(), 1u);
  const Numbers in = read(x), out = read(DType::BF16, got[0]);
  for (size_t i = 0; i < in.size(); ++i) {
    const double want = in[i] > 0 ? in[i] * in[i] : 0;
    EXPECT_NEAR(out[i], want, want * 0x1p-8);
  }
}

}  // namespace
}  // namespace reprise::ascend_recurrent_test
