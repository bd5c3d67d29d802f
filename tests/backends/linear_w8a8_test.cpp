// The int8 linears against sums in 64-bit integers, scaled step by step in fp32: every bit must agree, on every
// instruction set, size and pool.
#include "backends/op_runner.h"

namespace reprise::cpu::linear_w8a8_test {
namespace {

const char* const kOuts[] = {"f32", "bf16", "f16"};

TestTensor random_i8(int64_t rows, int64_t columns, uint32_t seed) {
  TestTensor t = zero_tensor(DType::I8, {rows, columns});
  std::mt19937 gen(seed);
  for (int64_t i = 0; i < t.size(); ++i) t.as<int8_t>()[i] = static_cast<int8_t>(gen() >> 13);
  return t;
}

TestTensor random_i32(int64_t n, uint32_t seed) {
  TestTensor t = zero_tensor(DType::I32, {n});
  std::mt19937 gen(seed);
  for (int64_t i = 0; i < n; ++i) t.as<int32_t>()[i] = static_cast<int32_t>(gen() % 2000001) - 1000000;
  return t;
}

// One call: x and weight random, scales of mixed size and sign.
struct Call {
  Call(int64_t m, int64_t k, int64_t n, uint32_t seed)
      : x(random_i8(m, k, seed)),
        weight(random_i8(n, k, seed + 1)),
        x_scale(random_tensor(DType::F32, {m, 1}, seed + 2, 0, 0.1)),
        scale(random_tensor(DType::F32, {n}, seed + 3, -0.01, 0.01)),
        add(random_tensor(DType::F32, {n}, seed + 4, -50, 50)),
        bias(random_i32(n, seed + 5)) {}

  std::vector<TestTensor> operands(bool dynamic, bool with_add) const {
    std::vector<TestTensor> in =
        dynamic ? std::vector<TestTensor>{x, x_scale, weight, scale} : std::vector<TestTensor>{x, weight, scale, bias};
    if (with_add) in.push_back(add);
    return in;
  }

  TestTensor reference(bool dynamic, bool with_add, DType out) const {
    const int64_t m = x.type.shape[0].factor, k = x.type.shape[1].factor, n = weight.type.shape[0].factor;
    TestTensor r = zero_tensor(out, {m, n});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        int64_t sum = dynamic ? 0 : bias.as<int32_t>()[j];
        for (int64_t p = 0; p < k; ++p)
          sum += int64_t{x.as<int8_t>()[i * k + p]} * int64_t{weight.as<int8_t>()[j * k + p]};
        volatile float v = static_cast<float>(sum);
        v = v * scale.as<float>()[j];
        if (dynamic) v = v * x_scale.as<float>()[i];
        if (with_add) v = v + add.as<float>()[j];
        r.set(i * n + j, v);
      }
    return r;
  }

  TestTensor x, weight, x_scale, scale, add, bias;
};

class LinearW8A8 : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};

  TestTensor run(const Call& c, bool dynamic, bool with_add, const char* out, const RunOptions& options = {}) const {
    return runner.run(dynamic ? "linear_w8a8_dynamic" : "linear_w8a8_static", c.operands(dynamic, with_add),
                      {{"out", std::string(out)}}, options)[0];
  }

  void expect_reference(const Call& c, const std::string& what) const {
    int turn = 0;
    for (bool dynamic : {false, true})
      for (bool with_add : {false, true})
        for (const char* out : kOuts)
          expect_same_bits(run(c, dynamic, with_add, out, {.threads = 1 + turn++ % 3}),
                           c.reference(dynamic, with_add, parse_dtype(out).value()),
                           fmt::format("{} dynamic={} add={} {}", what, dynamic, with_add, out));
  }
};

TEST_P(LinearW8A8, MatchesIntegersAtOddSizes) {
  for (int64_t k : {1, 2, 3, 4, 5, 63, 64, 67, 130, 577})
    for (int64_t n : {1, 15, 17, 63, 64, 65, 191})
      for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 13, 33, 97}) {
        if (m * n * k > 300000 && (n != 191 || kSanitized)) continue;  // the largest products once are enough
        if (m * n * k > 3000000 && m != 97) continue;
        expect_reference(Call(m, k, n, static_cast<uint32_t>(m + 100 * n + k)), fmt::format("m={} k={} n={}", m, k, n));
        if (HasFatalFailure()) return;
      }
}

TEST_P(LinearW8A8, NothingSaturates) {
  constexpr int64_t kDeep = 28672;
  const int8_t ends[] = {-128, 127, -127};
  for (int8_t a : ends)
    for (int8_t b : ends) {
      Call c(7, kDeep, 19, 5);
      std::memset(c.x.bytes.data(), a, c.x.bytes.size());
      std::memset(c.weight.bytes.data(), b, c.weight.bytes.size());
      // The last k alone keeps its sign.
      c.x.as<int8_t>()[2 * kDeep - 1] = 1;
      c.weight.as<int8_t>()[3 * kDeep - 1] = -1;
      for (int64_t j = 0; j < 19; ++j) c.scale.set(j, 1);
      for (int64_t i = 0; i < 7; ++i) c.x_scale.set(i, 1);
      expect_same_bits(run(c, true, false, "f32"), c.reference(true, false, DType::F32), fmt::format("{} {}", a, b));
      expect_same_bits(run(c, false, true, "bf16", {.threads = 2}), c.reference(false, true, DType::BF16), "static");
    }
}

TEST_P(LinearW8A8, ARowIsTheSameInEveryBatchAndTeam) {
  for (auto [n, k] : {std::pair<int64_t, int64_t>{191, 577}, {64, 130}, {192, 300}, {640, 64}}) {
    const Call all(200, k, n, 3);
    for (bool dynamic : {false, true}) {
      const TestTensor whole = run(all, dynamic, true, "bf16");
      for (int threads : {2, 3, 5})
        expect_same_bits(run(all, dynamic, true, "bf16", {.threads = threads}), whole,
                         fmt::format("{} threads", threads));
      for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 13, 19, 24, 25, 33, 48, 49, 96, 97}) {
        const int64_t first = (m * 31) % (200 - m);
        Call part = all;
        part.x = rows_of(all.x, first, m);
        part.x_scale = rows_of(all.x_scale, first, m);
        expect_same_bits(run(part, dynamic, true, "bf16", {.threads = static_cast<int>(1 + m % 3)}),
                         rows_of(whole, first, m), fmt::format("{} rows from {}", m, first));
      }
      if (HasFailure()) return;
    }
  }
  // So many rows that each thread, or each two, gets its own (tile registers).
  const Call many(400, 70, 130, 3);
  const TestTensor whole = run(many, true, true, "bf16", {.threads = 1});
  for (int threads : {2, 6})
    expect_same_bits(run(many, true, true, "bf16", {.threads = threads}), whole, fmt::format("{} threads", threads));
}

TEST_P(LinearW8A8, RowsMayBeSymbolicAndNone) {
  Call c(5, 33, 70, 9);
  const TestTensor want = run(c, true, true, "f32");
  c.x.type.shape[0] = c.x_scale.type.shape[0] = Dim(1, 1);
  RunOptions options{.threads = 2};
  options.live.value[1] = 5;
  expect_same_bits(run(c, true, true, "f32", options), want);
  options.live.value[1] = 0;
  EXPECT_EQ(run(c, true, true, "f32", options).size(), 0);
}

TEST_P(LinearW8A8, OddScalesFollowTheFormula) {  // subnormals, zeros, infinities and NaN keep every rounding step
  Call c(6, 64, 20, 11);
  const double odd[] = {0, -0.0, 1e-42, 3e-39, 1e38, INFINITY, NAN, 1e-30};
  for (int64_t j = 0; j < 20; ++j) c.scale.set(j, odd[j % 8]);
  for (int64_t i = 0; i < 6; ++i) c.x_scale.set(i, odd[i]);
  for (int64_t j = 0; j < 20; ++j) c.add.set(j, odd[(j * 3) % 4]);
  for (bool with_add : {false, true})
    for (const char* out : kOuts) {
      const DType type = parse_dtype(out).value();
      for (bool dynamic : {false, true})
        expect_close(run(c, dynamic, with_add, out), to_doubles(c.reference(dynamic, with_add, type)), 0, 0, out);
    }
}

TEST_P(LinearW8A8, RefusalsSayWhy) {
  const auto message = [&](std::string_view op, const std::vector<TensorType>& in, const char* out) {
    auto r = runner.choose(op, in, {{"out", std::string(out)}});
    return r.is_ok() ? std::string("accepted") : std::string(r.status().message());
  };
  auto i8 = [](int64_t m, int64_t k) { return TensorType{DType::I8, {Dim(m), Dim(k)}}; };
  auto f32 = [](int64_t n) { return TensorType{DType::F32, {Dim(n)}}; };
  const TensorType bias{DType::I32, {Dim(9)}}, column{DType::F32, {Dim(2), Dim(1)}};
  EXPECT_EQ(message("linear_w8a8_static", {i8(2, 8), i8(9, 8), f32(9), bias, f32(9)}, "bf16"), "accepted");
  EXPECT_NE(message("linear_w8a8_static", {i8(2, 8), i8(9, 8), f32(9), bias}, "i8").find("allowed: f32, bf16, f16"),
            std::string::npos);
  EXPECT_NE(message("linear_w8a8_static", {i8(2, 8), i8(9, 8), f32(8), bias}, "f32").find("number of rows"),
            std::string::npos);
  EXPECT_NE(message("linear_w8a8_static", {i8(2, 8), i8(9, 8), f32(9), f32(9)}, "f32").find("bias must be i32"),
            std::string::npos);
  EXPECT_NE(message("linear_w8a8_dynamic", {i8(2, 8), f32(2), i8(9, 8), f32(9)}, "f32").find("rank"),
            std::string::npos);
  EXPECT_NE(message("linear_w8a8_dynamic", {i8(2, 7), column, i8(9, 8), f32(9)}, "f32").find("inner size"),
            std::string::npos);
  EXPECT_NE(message("linear_w8a8_dynamic", {i8(2, 131072), column, i8(9, 131072), f32(9)}, "f32").find("131071"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Cpu, LinearW8A8, testing::ValuesIn(isas_with_tiles()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::linear_w8a8_test
