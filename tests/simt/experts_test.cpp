// CUDA's mixture of experts on the SIMT executor: choice, routes and the way back have the CPU's bits, and so have
// products of int8; a row of a grouped product has the bits of linear on this device.
#include <gtest/gtest.h>

#include "simt/both_devices.h"

namespace reprise::simt::experts_test {
namespace {

using namespace cpu;

struct GateCase {
  int64_t experts, top_k;
  std::string score = "softmax";
  bool normalise = false, bias = false;
  double scale = 1;
  int64_t groups = 1, top_groups = 1;
  std::string group_score = "max";

  Attrs attrs() const {
    return {{"top_k", top_k},   {"score", score},           {"normalise", int64_t{normalise}}, {"scale", scale},
            {"groups", groups}, {"top_groups", top_groups}, {"group_score", group_score},      {"eps", 1e-20}};
  }
};

TEST(CudaExperts, TheGateHasTheCpusBits) {
  for (const GateCase& g : {GateCase{1, 1},
                            {5, 2},
                            {7, 3, "softmax", true},
                            {60, 4},
                            {128, 8, "softmax", true},
                            {257, 8, "softmax", false, false, 2.5},
                            {13, 13, "softmax", true},
                            {16, 4, "sigmoid", true, true, 2.5, 4, 2, "top2"},
                            {256, 8, "sigmoid", true, true, 2.5, 8, 4, "top2"},
                            {64, 6, "softmax", false, false, 16, 8, 3, "max"},
                            {20, 1, "sigmoid"}}) {
    constexpr int64_t kTokens = 9;
    TestTensor slots = zero_tensor(DType::I32, {kTokens});
    slots.set(4, -1);
    TestTensor logits = random_tensor(DType::F32, {kTokens, g.experts}, 3, -4, 4);
    for (int64_t e = 0; e < g.experts; ++e) {
      logits.set(4 * g.experts + e, std::nan(""));                     // of padding
      logits.set(5 * g.experts + e, static_cast<double>(e % 3));       // ties
      logits.set(6 * g.experts + e, e == g.experts / 2 ? 90 : -1e30);  // scores of zero
    }
    std::vector<TestTensor> in{logits, slots};
    if (g.bias) in.push_back(random_tensor(DType::F32, {g.experts}, 4, -0.5, 0.5));
    expect_equal("moe_gate", in, g.attrs(), fmt::format("{} of {} experts", g.top_k, g.experts));
  }
}

TEST(CudaExperts, NanChoosesDistinctExperts) {
  TestTensor logits = zero_tensor(DType::F32, {1, 21});
  for (int64_t e = 0; e < 21; ++e) logits.set(e, e == 7 ? std::nan("") : 1);
  const auto out = on_cuda().run("moe_gate", {logits, zero_tensor(DType::I32, {1})}, {{"top_k", int64_t{4}}});
  EXPECT_EQ(to_doubles(out[1]), (std::vector<double>{0, 1, 2, 3}));
  for (int64_t j = 0; j < 4; ++j) EXPECT_TRUE(std::isnan(out[0].get(j)));
}

TEST(CudaExperts, RoutesAreTheCpus) {
  struct Case {
    int64_t tokens, k, experts, first, count;
  };
  for (const Case& c : {Case{1, 8, 128, 0, 128}, Case{37, 3, 7, 0, 7}, Case{50, 2, 40, 0, 40}, Case{40, 4, 12, 3, 5},
                        Case{9, 1, 3, 0, 3}, Case{900, 5, 6, 1, 4}}) {
    std::mt19937 random(static_cast<uint32_t>(c.tokens));
    TestTensor experts = zero_tensor(DType::I32, {c.tokens, c.k});
    for (int64_t i = 0; i < experts.size(); ++i) {
      int64_t e = random() % static_cast<uint32_t>(c.experts);
      if (e == c.first + 1) e = c.first;  // one expert gets nothing
      if (i / c.k % 7 == 6) e = c.experts;
      experts.set(i, static_cast<double>(e));
    }
    expect_equal("moe_route", {experts}, {{"first", c.first}, {"count", c.count}},
                 fmt::format("{} tokens, {} experts", c.tokens, c.count));
  }
}

TEST(CudaExperts, CombiningHasTheCpusBits) {
  constexpr int64_t kTokens = 5, kChosen = 3;
  TestTensor place = zero_tensor(DType::I32, {kTokens, kChosen});
  for (int64_t i = 0; i < place.size(); ++i) place.set(i, i % 4 == 1 ? -1 : static_cast<double>(i * 7 % 15));
  for (DType t : kDTypes)
    for (int64_t width : {1, 13, 40, 264})
      expect_equal("moe_combine", {random_tensor(t, {kTokens * kChosen, width}, 1),
                                   random_tensor(DType::F32, {kTokens, kChosen}, 2), place});
}

// Groups of 0, 1, a few and many rows; what is left over belongs to none; borders that go back are taken as equal.
const std::vector<std::vector<double>> kBorders{{0, 0, 1, 1, 6, 83}, {0, 90, 90, 90, 90, 90}, {0, 1, 2, 3, 4, 5},
                                                {0, 0, 0, 0, 0, 0},  {0, 3, 20, 41, 70, 90},  {5, 30, 20, 25, 99, 40}};
constexpr int64_t kRows = 90, kGroups = 5;

// The group of every row, kGroups for none.
std::vector<int64_t> groups_of(const std::vector<double>& borders) {
  std::vector<int64_t> group(static_cast<size_t>(borders[0]), kGroups);
  for (int64_t g = 0; g < kGroups; ++g)
    while (static_cast<double>(group.size()) < borders[static_cast<size_t>(g) + 1] &&
           static_cast<int64_t>(group.size()) < kRows)
      group.push_back(g);
  group.resize(kRows, kGroups);
  return group;
}

TEST(CudaExperts, RowsOfAGroupHaveTheBitsOfLinear) {
  const OpRunner &cuda = on_cuda(), &backwards = on_cuda(Order::Descending);
  for (DType t : kDTypes)
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{37, 48}, {66, 72}, {9, 67}}) {
      const TestTensor x = random_tensor(t, {kRows, k}, 5), weight = random_tensor(t, {kGroups, n, k}, 6);
      TestTensor token = zero_tensor(DType::I32, {kRows});
      for (int64_t i = 0; i < kRows; ++i) token.set(i, static_cast<double>(i * 37 % kRows));
      token.set(2, -1);
      token.set(5, kRows);
      const TestTensor gathered = cuda.run("index_select", {x, token})[0];
      std::vector<TestTensor> products;  // of all rows with every matrix
      for (int64_t g = 0; g < kGroups; ++g) {
        TestTensor matrix = rows_of(weight, g, 1);
        matrix.type.shape = constant_shape({n, k});
        products.push_back(cuda.run("linear", {x, matrix})[0]);
      }
      products.push_back(zero_tensor(t, {kRows, n}));
      for (const auto& border : kBorders) {
        const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, border);
        const TestTensor out = cuda.run("grouped_linear", {x, starts, weight})[0];
        const std::vector<int64_t> group = groups_of(border);
        for (int64_t i = 0; i < kRows; ++i)
          expect_same_bits(rows_of(out, i, 1),
                           rows_of(products[static_cast<size_t>(group[static_cast<size_t>(i)])], i, 1),
                           fmt::format("{} n {} k {} row {}", dtype_name(t), n, k, i));
        expect_same_bits(cuda.run("grouped_linear_rows", {x, token, starts, weight})[0],
                         cuda.run("grouped_linear", {gathered, starts, weight})[0], "rows from anywhere");
        if (HasFailure()) return;
      }
      const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, kBorders[0]);
      expect_same_bits(backwards.run("grouped_linear", {x, starts, weight})[0],
                       cuda.run("grouped_linear", {x, starts, weight})[0], "lanes backwards");
    }
}

TEST(CudaExperts, BiasesOfGroupsHaveTheCpusBits) {
  for (DType t : kDTypes)
    for (const int64_t width : {5, 64})
      for (const auto& border : {kBorders[0], kBorders[4]})
        expect_equal("add_groups", {random_tensor(t, {kRows, width}, 1), tensor_of(DType::I32, {kGroups + 1}, border),
                                    random_tensor(t, {kGroups, width}, 2)});
}

// Many rows a group take the larger tile.
TEST(CudaExperts, TheTileMakesNoDifference) {
  const OpRunner& cuda = on_cuda();
  const TestTensor x = random_tensor(DType::BF16, {150, 40}, 1), weight = random_tensor(DType::BF16, {2, 70, 40}, 2);
  const TestTensor all = cuda.run("grouped_linear", {x, tensor_of(DType::I32, {3}, {0, 130, 149}), weight})[0];
  const TestTensor few =
      cuda.run("grouped_linear", {rows_of(x, 120, 20), tensor_of(DType::I32, {3}, {0, 10, 20}), weight})[0];
  expect_same_bits(rows_of(all, 120, 20), few);
  for (double v : to_doubles(rows_of(all, 149, 1))) EXPECT_EQ(v, 0);
}

TEST(CudaExperts, Int8HasTheCpusBits) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{37, 48}, {70, 13}}) {
    const TestTensor x = random_tensor(DType::I8, {kRows, k}, 1, -128, 128),
                     weight = random_tensor(DType::I8, {kGroups, n, k}, 2, -128, 128),
                     x_scale = random_tensor(DType::F32, {kRows, 1}, 3, 0.001, 0.1),
                     scale = random_tensor(DType::F32, {kGroups * n}, 4, 0.001, 0.1),
                     bias = random_tensor(DType::I32, {kGroups * n}, 5, -9000, 9000);
    for (const auto& border : {kBorders[0], kBorders[4], kBorders[5]}) {
      const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, border);
      for (const char* out : {"f32", "bf16", "f16"}) {
        const Attrs to{{"out", std::string(out)}};
        expect_equal("grouped_linear_w8a8_dynamic", {x, x_scale, starts, weight, scale}, to);
        if (border[0] == 0) expect_equal("grouped_linear_w8a8_static", {x, starts, weight, scale, bias}, to);
      }
      for (DType t : kDTypes)
        expect_equal("quantize_groups",
                     {random_tensor(t, {kRows, k}, 6, -3, 3), starts, random_tensor(DType::F32, {kGroups}, 7, 5, 30),
                      random_tensor(DType::F32, {kGroups}, 8)});
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace reprise::simt::experts_test
