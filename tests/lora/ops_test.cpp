// lora_shrink and lora_expand against loops in double precision, on every instruction set, and what their rows do not
// depend on.
#include <gtest/gtest.h>

#include "backends/op_runner.h"

namespace reprise::cpu::lora_test {
namespace {

constexpr int64_t kSlots = 3, kRank = 7;

// Rows of every slot, of none, and of a slot without weights here (the second).
struct Case {
  int64_t rows, in, out, width, begin;
};
constexpr Case kCases[] = {{1, 16, 16, 16, 0}, {5, 33, 70, 100, 30}, {19, 50, 131, 131, 0}, {3, 7, 5, 9, 4}};
const std::vector<double> kRanks{7, 0, 3}, kScales{0.5, 9, -1.25};

std::vector<double> ids_of(int64_t rows) {
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r) out.push_back(static_cast<double>((r * 5 + 1) % 4));
  return out;
}

struct Operands {
  Operands(DType type, const Case& c)
      : x(random_tensor(type, {c.rows, c.in}, 1)),
        y(random_tensor(type, {c.rows, c.width}, 2)),
        a(random_tensor(type, {kSlots, kRank, c.in}, 3)),
        b(random_tensor(type, {kSlots, kRank, c.out}, 4)),
        ids(tensor_of(DType::I32, {c.rows, 1}, ids_of(c.rows))) {}

  TestTensor x, y, a, b, ids;
  TestTensor ranks = tensor_of(DType::I32, {kSlots}, kRanks), scales = tensor_of(DType::F32, {kSlots}, kScales);
};

class LoraTest : public testing::TestWithParam<Isa> {
 protected:
  TestTensor shrink(const Operands& o, const RunOptions& options = {}) {
    return runner.run("lora_shrink", {o.x, o.ids, o.a, o.ranks, o.scales}, {}, options)[0];
  }
  TestTensor expand(const Operands& o, const TestTensor& h, const Case& c, const RunOptions& options = {}) {
    return runner.run("lora_expand", {o.y, h, o.ids, o.b, o.ranks}, {{"begin", c.begin}}, options)[0];
  }
  OpRunner runner{GetParam()};
};

TEST_P(LoraTest, IsTheProductInDoublePrecision) {
  for (const DType type : kDTypes)
    for (const Case& c : kCases) {
      const Operands o(type, c);
      const TestTensor h = shrink(o);
      std::vector<double> want_h(static_cast<size_t>(c.rows * kRank)), want = to_doubles(o.y);
      for (int64_t r = 0; r < c.rows; ++r) {
        const auto slot = static_cast<int64_t>(o.ids.get(r)) - 1;
        if (slot < 0) continue;
        const auto s = static_cast<size_t>(slot);
        for (int64_t k = 0; k < static_cast<int64_t>(kRanks[s]); ++k) {
          double sum = 0;
          for (int64_t i = 0; i < c.in; ++i) sum += o.x.get(r * c.in + i) * o.a.get((slot * kRank + k) * c.in + i);
          want_h[static_cast<size_t>(r * kRank + k)] = kScales[s] * sum;
          for (int64_t n = 0; n < c.out; ++n)
            want[static_cast<size_t>(r * c.width + c.begin + n)] +=
                kScales[s] * sum * o.b.get((slot * kRank + k) * c.out + n);
        }
      }
      expect_close(h, want_h, 1e-5, 1e-5, "h");
      expect_close(expand(o, h, c), want, unit_roundoff(type) * 1.01, 2e-5, "y");
    }
}

TEST_P(LoraTest, RowsWithoutAnAdapterKeepTheirBits) {
  for (const DType type : kDTypes) {
    const Case c = kCases[2];
    Operands o(type, c);
    o.y.set(0, -0.0);  // a sum with zero would make it +0
    o.ids = tensor_of(DType::I32, {c.rows, 1}, std::vector<double>(static_cast<size_t>(c.rows), 0));
    expect_same_bits(expand(o, shrink(o), c), o.y, "none");
    o.ids = tensor_of(DType::I32, {c.rows, 1}, std::vector<double>(static_cast<size_t>(c.rows), 2));
    expect_same_bits(expand(o, shrink(o), c), o.y, "rank 0");
  }
}

TEST_P(LoraTest, ARowDependsOnNoOtherAndNotOnThreads) {
  for (const DType type : kDTypes)
    for (const Case& c : kCases) {
      const Operands all(type, c);
      const TestTensor h = shrink(all), y = expand(all, h, c);
      for (const int threads : {2, 3, 5}) {
        expect_same_bits(shrink(all, {.threads = threads}), h);
        expect_same_bits(expand(all, h, c, {.threads = threads}), y);
      }
      for (int64_t r = 0; r < c.rows; ++r) {
        Operands one = all;
        one.x = rows_of(all.x, r, 1);
        one.y = rows_of(all.y, r, 1);
        one.ids = rows_of(all.ids, r, 1);
        const TestTensor own = shrink(one, {.threads = 2});
        expect_same_bits(own, rows_of(h, r, 1));
        expect_same_bits(expand(one, own, c, {.threads = 2}), rows_of(y, r, 1));
      }
    }
}

TEST(LoraShapeTest, OperandsMustFit) {
  const OpRunner runner(Isa::Baseline);
  const TensorType x{DType::F32, {4, 8}}, a{DType::F32, {3, 2, 8}}, ids{DType::I32, {4, 1}}, ranks{DType::I32, {3}},
      scales{DType::F32, {3}}, h{DType::F32, {4, 2}}, b{DType::F32, {3, 2, 6}};
  EXPECT_TRUE(runner.choose("lora_shrink", {x, ids, a, ranks, scales}).is_ok());
  EXPECT_FALSE(runner.choose("lora_shrink", {x, ids, {DType::BF16, {3, 2, 8}}, ranks, scales}).is_ok());
  EXPECT_FALSE(runner.choose("lora_shrink", {x, ids, {DType::F32, {3, 2, 9}}, ranks, scales}).is_ok());
  EXPECT_FALSE(runner.choose("lora_shrink", {x, {DType::I32, {5, 1}}, a, ranks, scales}).is_ok());
  EXPECT_FALSE(runner.choose("lora_shrink", {x, ids, a, {DType::I32, {4}}, scales}).is_ok());
  EXPECT_TRUE(runner.choose("lora_expand", {x, h, ids, b, ranks}, {{"begin", int64_t{2}}}).is_ok());
  EXPECT_FALSE(runner.choose("lora_expand", {x, h, ids, b, ranks}, {{"begin", int64_t{3}}}).is_ok());
  EXPECT_FALSE(runner.choose("lora_expand", {x, {DType::F32, {4, 3}}, ids, b, ranks}).is_ok());
}

INSTANTIATE_TEST_SUITE_P(Isas, LoraTest, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::lora_test
