// linear, embedding and the panel64 layout, against loops in double precision.
#include "backends/cpu/layout.h"
#include "backends/op_runner.h"

namespace reprise::cpu::linear_test {
namespace {

struct Types {
  DType in;
  const char* out;  // attribute of linear
};
constexpr Types kTypes[] = {
    {DType::F32, "same"}, {DType::BF16, "same"}, {DType::BF16, "f32"}, {DType::F16, "same"}, {DType::F16, "f32"}};

struct Reference {
  std::vector<double> value;
  std::vector<double> magnitude;  // sum of |x||w| + |bias|: what rounding errors are proportional to
};

Reference reference(const TestTensor& x, const TestTensor& w, const TestTensor* bias) {
  const int64_t m = x.type.shape[0].factor, k = x.type.shape[1].factor, n = w.type.shape[0].factor;
  const std::vector<double> xs = to_doubles(x), ws = to_doubles(w);
  Reference r;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = bias ? bias->get(j) : 0, magnitude = std::abs(sum);
      for (int64_t p = 0; p < k; ++p) {
        const double product = xs[static_cast<size_t>(i * k + p)] * ws[static_cast<size_t>(j * k + p)];
        sum += product;
        magnitude += std::abs(product);
      }
      r.value.push_back(sum);
      r.magnitude.push_back(magnitude);
    }
  return r;
}

void expect_matches(const TestTensor& got, const Reference& want, int64_t k, const std::string& what) {
  ASSERT_EQ(static_cast<size_t>(got.size()), want.value.size()) << what;
  for (int64_t i = 0; i < got.size(); ++i) {
    const size_t at = static_cast<size_t>(i);
    const double sums = static_cast<double>(2 * k + 2) * unit_roundoff(DType::F32) * want.magnitude[at];
    const double store = unit_roundoff(got.type.dtype) * std::abs(want.value[at]) * 1.01 + 1e-7;
    ASSERT_NEAR(got.get(i), want.value[at], sums + store) << what << ", element " << i;
  }
}

class Linear : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};

  TestTensor run(const TestTensor& x, const TestTensor& w, const TestTensor* bias, Types types,
                 RunOptions options = {}) const {
    std::vector<TestTensor> in{x, w};
    if (bias) in.push_back(*bias);
    return runner.run("linear", in, {{"out", std::string(types.out)}}, options)[0];
  }
};

TEST_P(Linear, MatchesTheReferenceAtOddSizes) {
  for (Types types : kTypes)
    for (int64_t k : {1, 2, 3, 63, 64, 65, 129, 576}) {
      const TestTensor w_all = random_tensor(types.in, {191, k}, 7);
      const TestTensor bias_all = random_tensor(types.in, {191}, 8);
      for (int64_t n : {1, 15, 16, 17, 63, 64, 65, 191}) {
        const TestTensor w = rows_of(w_all, 0, n), bias = rows_of(bias_all, 0, n);
        for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33, 97}) {
          if (m * n * k > 600000 && n != 191) continue;  // the largest products once per type are enough
          const TestTensor x = random_tensor(types.in, {m, k}, static_cast<uint32_t>(m));
          const TestTensor* b = (m + n + k) % 2 ? &bias : nullptr;
          const std::string what =
              fmt::format("{} -> {} m={} n={} k={} bias={}", dtype_name(types.in), types.out, m, n, k, b != nullptr);
          expect_matches(run(x, w, b, types), reference(x, w, b), k, what);
          if (HasFatalFailure()) return;
        }
      }
    }
}

TEST_P(Linear, ARowIsTheSameInEveryBatchAndTeam) {
  for (Types types : kTypes)
    for (auto [n, k] : {std::pair<int64_t, int64_t>{191, 577}, {64, 130}, {192, 300}, {640, 64}}) {
      const TestTensor w = random_tensor(types.in, {n, k}, 3), bias = random_tensor(types.in, {n}, 4);
      const TestTensor x = random_tensor(types.in, {200, k}, 5);
      const TestTensor whole = run(x, w, &bias, types);
      for (int threads : {2, 3, 5})
        expect_same_bits(run(x, w, &bias, types, {.threads = threads}), whole, fmt::format("{} threads", threads));
      for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 19, 23, 24, 25, 36, 37, 96, 97}) {
        const int64_t first = (m * 31) % (200 - m);
        const TestTensor part = run(rows_of(x, first, m), w, &bias, types, {.threads = static_cast<int>(1 + m % 3)});
        expect_same_bits(part, rows_of(whole, first, m),
                         fmt::format("{} {} rows from {}", dtype_name(types.in), m, first));
      }
      if (HasFailure()) return;
    }
}

TEST_P(Linear, RowsMayBeSymbolicAndNone) {
  const TestTensor w = random_tensor(DType::BF16, {70, 33}, 3);
  TestTensor x = random_tensor(DType::BF16, {5, 33}, 5);
  const TestTensor want = run(x, w, nullptr, kTypes[1]);
  x.type.shape[0] = Dim(1, 1);
  RunOptions options{.threads = 2};
  options.live.value[1] = 5;
  TestTensor got = run(x, w, nullptr, kTypes[1], options);
  expect_same_bits(got, want);
  options.live.value[1] = 0;
  EXPECT_EQ(run(x, w, nullptr, kTypes[1], options).size(), 0);
}

TEST_P(Linear, NothingIsHidden) {  // infinities and NaN reach exactly the results they belong to
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (Types types : kTypes)
    for (int64_t m : {3, 40}) {
      TestTensor x = random_tensor(types.in, {m, 65}, 1, 0.5, 1), w = random_tensor(types.in, {66, 65}, 2, 0.5, 1);
      x.set(0 * 65 + 64, inf);
      x.set(1 * 65 + 3, nan);
      w.set(65 * 65 + 10, -inf);
      const TestTensor got = run(x, w, nullptr, types);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < 66; ++j) {
          const double v = got.get(i * 66 + j);
          if (i == 1 || (i == 0 && j == 65))
            EXPECT_TRUE(std::isnan(v));
          else if (i == 0)
            EXPECT_EQ(v, inf);
          else if (j == 65)
            EXPECT_EQ(v, -inf);
          else
            EXPECT_TRUE(std::isfinite(v));
        }
    }
}

TEST_P(Linear, TheBf16InstructionAndItsEmulationAgree) {
  if (GetParam() != Isa::Avx512) GTEST_SKIP() << "only avx512 has the instruction";
  for (double scale : {1.0, 1e-19, 3e-38, 1e19})  // products around the subnormals and around overflow too
    for (int64_t k : {64, 577})
      for (int64_t m : {1, 6, 8, 40}) {
        const TestTensor x = random_tensor(DType::BF16, {m, k}, 1, -scale, scale),
                         w = random_tensor(DType::BF16, {100, k}, 2, -scale, scale);
        const TestTensor bias = random_tensor(DType::BF16, {100}, 3, -1e-39, 1e-39);
        auto with = [&](int64_t dot) {
          return run(x, w, &bias, kTypes[2], {.threads = 2, .adjust = [dot](LaunchArgs& a) { a.way = dot; }});
        };
        expect_same_bits(with(1), with(0), fmt::format("scale {} k={} m={}", scale, k, m));
      }
}

TEST_P(Linear, SetsWithFmaAgree) {
  if (GetParam() != Isa::Avx512 && GetParam() != Isa::DotProd) GTEST_SKIP() << "the first set with FMA, or without";
  const Isa other_isa = GetParam() == Isa::Avx512 ? Isa::Avx2 : Isa::Baseline;
  if (!parse_isa(isa_name(other_isa))) GTEST_SKIP() << "this build leaves " << isa_name(other_isa) << " out";
  const OpRunner other(other_isa);
  for (Types types : kTypes) {
    const TestTensor x = random_tensor(types.in, {30, 321}, 1), w = random_tensor(types.in, {130, 321}, 2);
    expect_same_bits(runner.run("linear", {x, w}, {{"out", std::string(types.out)}})[0],
                     other.run("linear", {x, w}, {{"out", std::string(types.out)}})[0],
                     std::string(dtype_name(types.in)));
  }
}

TEST_P(Linear, RefusesOtherTypesInWords) {
  auto refused = runner.choose("linear", {{DType::F32, {4, 8}}, {DType::F32, {8, 8}}}, {{"out", std::string("bf16")}});
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("takes f32 and gives f32; the call has f32 and bf16"), std::string::npos)
      << refused.status().message();
  EXPECT_FALSE(runner.choose("embedding", {{DType::I8, {4, 8}}, {DType::I32, {8}}}).is_ok());
}

TEST_P(Linear, EmbeddingTakesRowsInBothLayouts) {
  for (DType t : {DType::F32, DType::BF16, DType::F16})
    for (int64_t width : {1, 2, 63, 64, 65, 130, 577}) {
      const TestTensor table = random_tensor(t, {130, width}, 9);
      const std::vector<double> ids{0, 1, 63, 64, 65, 127, 128, 129, -1, 130, 1 << 30, 5, 5};
      const TestTensor id = tensor_of(DType::I32, {static_cast<int64_t>(ids.size())}, ids);
      std::vector<double> want;
      for (double i : ids)
        for (int64_t j = 0; j < width; ++j)
          want.push_back(i >= 0 && i < 130 ? table.get(static_cast<int64_t>(i) * width + j) : 0.0);
      for (const char* layout : {"panel64", "row_major"})
        for (int threads : {1, 2, 3})
          expect_close(runner.run("embedding", {table, id}, {}, {.threads = threads, .layout = layout})[0], want, 0, 0,
                       fmt::format("{} {} width {} threads {}", layout, dtype_name(t), width, threads));
    }
}

TEST_P(Linear, PackingInAnyRowBlocksIsPackingAtOnce) {
  if (GetParam() != Isa::Baseline) GTEST_SKIP() << "packing does not depend on the instruction set";
  for (const char* name : {"panel64", "row_major"})
    for (DType t : {DType::F32, DType::BF16, DType::F16, DType::I8})
      for (int64_t k : {1, 2, 31, 33, 100}) {
        const double range = t == DType::I8 ? 128 : 1;
        const TestTensor m = random_tensor(t, {150, k}, 11, -range, range);
        const Bytes once = runner.pack(m, name);
        const ParamLayout* layout = runner.kernels().layout(DeviceKind::Cpu, name);
        std::mt19937 gen(1);
        for (int round = 0; round < 5; ++round) {
          Bytes pieces(layout->bytes(m.type), 0);
          std::vector<std::thread> pool;
          for (int64_t first = 0, count; first < 150; first += count) {
            count = std::min<int64_t>(150 - first, 1 + static_cast<int64_t>(gen() % 70));
            const uint8_t* rows = m.bytes.data() + static_cast<size_t>(first * k) * size_of(t);
            pool.emplace_back([=, &m, &pieces] { layout->pack(m.type, pieces.data(), rows, first, count); });
          }
          for (auto& thread : pool) thread.join();
          EXPECT_TRUE(pieces == once) << name << " " << dtype_name(t) << " k=" << k;
        }
        if (std::string_view(name) == "row_major") continue;
        // The documented place of every element; everything else is zero.
        const int64_t group = panel_group(t), padded = (k + group - 1) / group * group, header = panel_header(t);
        TestTensor raw{{t, {Dim(3 * 64 * padded)}}, {}};
        const size_t panel = static_cast<size_t>(64 * padded) * size_of(t) + static_cast<size_t>(header);
        ASSERT_EQ(once.size(), 3 * panel);
        for (size_t at = 0; at < once.size(); at += panel)
          raw.bytes.append(once.begin() + static_cast<int64_t>(at) + header,
                           once.begin() + static_cast<int64_t>(at + panel));
        ASSERT_EQ(raw.size(), 3 * 64 * padded);
        double total = 0, expected = 0;
        for (int64_t i = 0; i < raw.size(); ++i) total += std::abs(raw.get(i));
        for (int64_t r = 0; r < 150; ++r)
          for (int64_t c = 0; c < k; ++c) {
            expected += std::abs(m.get(r * k + c));
            EXPECT_EQ(raw.get(r / 64 * 64 * padded + c / group * 64 * group + r % 64 * group + c % group),
                      m.get(r * k + c));
          }
        EXPECT_NEAR(total, expected, 1e-9 * expected);
        for (int64_t r = 0; header != 0 && r < 192; ++r) {
          double sum = 0;
          for (int64_t c = 0; r < 150 && c < k; ++c) sum += m.get(r * k + c);
          int32_t got;
          std::memcpy(&got, &once[static_cast<size_t>(r / 64) * panel + static_cast<size_t>(r % 64) * 4], 4);
          EXPECT_EQ(got, -128 * sum) << r;
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Linear, testing::ValuesIn(isas_with_tiles()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::linear_test
