// The CUDA kernels that draw tokens and change logits: the CPU's tokens, log-probabilities and bits, in every order of
// lanes.
#include <gtest/gtest.h>

#include "backends/draw_cases.h"
#include "ops/draw_math.h"
#include "simt/both_devices.h"

namespace reprise::simt::sample_test {
namespace {

using namespace cpu;

TEST(CudaSample, DrawsTheCpusTokens) {
  for (const int64_t n : {1, 7, 64, 255, 1000, 5003}) {
    const int64_t rows = 8;
    const TestTensor logits = logits_of(rows, n, static_cast<uint32_t>(n));
    expect_equal("sample", {logits, draws_of(draws_for(rows, 77))}, {}, fmt::format("{} columns", n));
  }
}

// More rows than blocks of a launch, some of them drawn from edited logits.
TEST(CudaSample, RowsAreDrawnBlockByBlock) {
  const int64_t rows = 130, n = 40;
  std::vector<Draw> draws = draws_for(rows, 5);
  for (int64_t r = 0; r < rows; ++r) {
    if (r % 16 != 2) draws[static_cast<size_t>(r)] = {};  // the executor is slow: the largest
    if (r % 3 == 0) draws[static_cast<size_t>(r)].edited = static_cast<int32_t>(1 + r % 4);
  }
  expect_equal("sample", {logits_of(rows, n, 1), draws_of(draws), logits_of(4, n, 2)});
}

// Of equal logits the smaller ids are kept; flat rows, of which top-p keeps nearly all, are sorted outside of shared
// memory; rows without a number give no token.
TEST(CudaSample, TiesFlatRowsAndBrokenOnes) {
  const int64_t n = 3000;
  TestTensor logits = zero_tensor(DType::F32, {7, n});
  const TestTensor cloud = logits_of(1, n, 8);
  for (int64_t i = 0; i < n; ++i) {
    logits.set(1 * n + i, i % 2 == 0 ? -0.0 : 0.0);
    logits.set(2 * n + i, 0.01 * cloud.get(i));
    logits.set(3 * n + i, cloud.get(i));
    logits.set(4 * n + i, -INFINITY);
    logits.set(5 * n + i, i == 17 ? 3 : -INFINITY);
    logits.set(6 * n + i, cloud.get(i));
  }
  logits.set(3 * n + n - 1, NAN);
  logits.set(6 * n + 5, INFINITY);
  for (const Draw d : {Draw{.scale = 1, .top_k = 90, .seed = 3, .position = 1, .logprobs = 20},
                       Draw{.scale = 1, .top_p = 0.99f, .seed = 4, .position = 2, .logprobs = 3},
                       Draw{.scale = 1, .min_p = 0.3f, .seed = 5, .position = 3}, Draw{.logprobs = 0}})
    expect_equal("sample", {logits, draws_of(std::vector<Draw>(7, d))});
}

// What a rank sends of its columns and what is decided by it: whatever the Draw asks for, with a rank that sends few.
void expect_parts(int64_t n, const TestTensor& logits, const std::vector<Draw>& asked, int64_t most) {
  const int64_t rows = logits.type.shape[0].factor, border = draw::kBlock * (draw::blocks(n, draw::kBlock) / 2);
  const EditTensors t = staged(edit_cases(rows, n, 23));
  const TestTensor draws = draws_of(asked);
  const auto on_both = [](const char* op, const std::vector<TestTensor>& in, const Attrs& attrs) {
    expect_equal(op, in, attrs);
    return on_cpu().run(op, in, attrs).at(0);
  };
  std::vector<TestTensor> own, edited, tops, sums, best;
  for (const auto& [first, count] : {std::pair(int64_t{0}, border), std::pair(border, n - border)}) {
    own.push_back(columns_of(logits, first, count));
    edited.push_back(on_both("mask_own_logits", {own.back(), t.edits, t.words}, {{"first", first}}));
    tops.push_back(on_both("draw_tops", {own.back(), draws, edited.back()}, {}));
  }
  const TestTensor top = side_by_side(tops);
  for (const size_t r : {0, 1}) sums.push_back(on_both("draw_sums", {own[r], draws, top, edited[r]}, {{"of", n}}));
  const TestTensor sum = side_by_side(sums);
  for (const size_t r : {0, 1})
    best.push_back(on_both("draw_best", {own[r], draws, top, sum, edited[r]},
                           {{"first", r == 0 ? int64_t{0} : border}, {"of", n}, {"most", most}}));
  (void)on_both("merge_draws", {draws, top, sum, side_by_side(best)}, {{"of", n}});
}

TEST(CudaDrawParts, SendTheCpusBits) {
  for (const int64_t n : {1024, 5003}) {
    std::vector<Draw> draws = draws_for(16, 77);
    for (size_t r = 0; r < draws.size(); ++r) {
      if (r != 9) draws[r].logprobs = -1;
      if (r % 4 == 3) draws[r].edited = static_cast<int32_t>(1 + r % 5);
    }
    for (const int64_t most : {8, 1024}) expect_parts(n, logits_of(16, n, static_cast<uint32_t>(n)), draws, most);
  }
}

TEST(CudaDrawParts, TiesAndBrokenRows) {
  const int64_t n = 3000;
  TestTensor logits = logits_of(5, n, 9);
  for (int64_t i = 0; i < n; ++i) {
    logits.set(0 * n + i, i % 2 == 0 ? -0.0 : 0.0);
    logits.set(3 * n + i, -INFINITY);
    logits.set(4 * n + i, i == 2017 ? 3 : -INFINITY);
  }
  logits.set(1 * n + n - 1, NAN);
  logits.set(2 * n + 5, INFINITY);
  for (const Draw d : {Draw{.scale = 1, .top_k = 1700, .seed = 3}, Draw{.scale = 1, .top_p = 0.99f, .seed = 4},
                       Draw{.scale = 1, .min_p = 0.3f, .seed = 5}, Draw{}})
    expect_parts(n, logits, std::vector<Draw>(5, d), 1024);
}

TEST(CudaMaskLogits, HasTheCpusBits) {
  for (const int64_t n : {1, 31, 33, 255, 5003}) {
    const EditTensors t = staged(edit_cases(3, n, 4));
    expect_equal("mask_logits", {logits_of(3, n, 6), t.edits, t.words}, {}, fmt::format("{} columns", n));
  }
}

}  // namespace
}  // namespace reprise::simt::sample_test
