// Latent attention's rows and products per head.
#include <algorithm>
#include <cmath>

#include "sim/ops/bench.h"

namespace sim_test {
namespace {

class Latents : public OpsTest {};

TEST_F(Latents, LatentRowsGoToTheirCaches) {
  const int64_t tokens = 3, width = 512, rope = 64, row = width + rope, blocks = 2, size = 16;
  const auto kv = kept(kBf16, numbers(tokens * (width + rope), 1)), g = kept(kBf16, numbers(width, 2, 0.5, 1.5)),
             angles = numbers(tokens * rope / 2, 3, 0, 3);
  std::vector<double> cosines, sines, latents, keys;
  for (int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += kv[t * row + i] * kv[t * row + i];
    for (int64_t i = 0; i < width; ++i) latents.push_back(kv[t * row + i] * g[i] / std::sqrt(squares / width + 1e-6));
    for (const bool second : {false, true}) {
      for (int64_t i = 0; i < rope / 2; ++i) {
        const double c = std::cos(angles[t * rope / 2 + i]), s = std::sin(angles[t * rope / 2 + i]);
        const double x = kv[t * row + width + 2 * i], y = kv[t * row + width + 2 * i + 1];
        cosines.push_back(c);
        sines.push_back(s);
        keys.push_back(second ? y * c + x * s : x * c - y * s);
      }
    }
  }
  Array in(kBf16, {1, 1, tokens, width + rope}, kv), gamma(kBf16, {width}, g),
      cos(kBf16, {1, 1, tokens, rope}, cosines), sin(kBf16, {1, 1, tokens, rope}, sines);
  Array slots(kInt64, {tokens}, {17, -1, 3}), k(kBf16, {blocks, size, 1, rope}), c(kBf16, {blocks, size, 1, width});
  Array k_out(kBf16, {1, 1, tokens, rope}), c_out(kBf16, {1, 1, tokens, width});
  char pages[] = "PA", fractal[] = "PA_NZ", other[] = "PA_BLK_NZ", plain[] = "Norm";
  ASSERT_EQ(RUN_OP(aclnnKvRmsNormRopeCache, in, gamma, cos, sin, slots, k, c, nullptr, nullptr, nullptr, nullptr, 1e-6,
                   pages, true, k_out, c_out),
            0)
      << bench().error;
  expect_close(k_out.get_all(), keys, kBf16, 2e-2);
  expect_close(c_out.get_all(), latents, kBf16, 1e-5);
  const auto in_k = k.get_all(), in_c = c.get_all();
  for (int64_t i = 0; i < rope; ++i) EXPECT_EQ(in_k[3 * rope + i], k_out.get_all()[2 * rope + i]);
  for (int64_t i = 0; i < width; ++i) EXPECT_EQ(in_c[17 * width + i], c_out.get_all()[i]);
  EXPECT_EQ(std::count_if(in_c.begin(), in_c.end(), [](double x) { return !std::isnan(x); }), 2 * width) << "-1 skips";
  Array k_nz(kBf16, {blocks, rope / 16, size, 16}), c_nz(kBf16, {blocks, width / 16, size, 16});
  ASSERT_EQ(RUN_OP(aclnnKvRmsNormRopeCache, in, gamma, cos, sin, slots, k_nz, c_nz, nullptr, nullptr, nullptr, nullptr,
                   1e-6, fractal, false, k_out, c_out),
            0)
      << bench().error;
  EXPECT_EQ(c_nz.get_all()[((1 * width / 16 + 1) * size + 1) * 16 + 5], c_out.get_all()[16 + 5]);
  Array rows(kInt64, {1, tokens}, {4, 0, 1}), k_rows(kBf16, {1, 1, 6, rope}), c_rows(kBf16, {1, 1, 6, width});
  ASSERT_EQ(RUN_OP(aclnnKvRmsNormRopeCache, in, gamma, cos, sin, rows, k_rows, c_rows, nullptr, nullptr, nullptr,
                   nullptr, 1e-6, plain, false, k_out, c_out),
            0)
      << bench().error;
  EXPECT_EQ(c_rows.get_all()[4 * width], c_out.get_all()[0]);
  EXPECT_EQ(REFUSED(aclnnKvRmsNormRopeCache, in, gamma, cos, sin, slots, k, c, nullptr, nullptr, nullptr, nullptr, 1e-6,
                    other, true, k_out, c_out),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnKvRmsNormRopeCache, in, gamma, cos, sin, slots, c, k, nullptr, nullptr, nullptr, nullptr, 1e-6,
                    pages, true, k_out, c_out),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnKvRmsNormRopeCache, in, gamma, cos, sin, slots, k, c, sin, nullptr, nullptr, nullptr, 1e-6,
                    pages, true, k_out, c_out),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnKvRmsNormRopeCache, in, gamma, cos, sin, slots, k, c, nullptr, nullptr, nullptr, nullptr, 1e-6,
                    pages, false, nullptr, c_out),
            kNull);
  slots.set({17, -1, 32});
  EXPECT_NE(RUN_OP(aclnnKvRmsNormRopeCache, in, gamma, cos, sin, slots, k, c, nullptr, nullptr, nullptr, nullptr, 1e-6,
                   pages, false, k_out, c_out),
            0);
}

TEST_F(Latents, ProductsPerHead) {
  const int64_t rows = 3, heads = 4, depth = 17, columns = 6;
  const auto a = kept(kBf16, numbers(rows * heads * depth, 1)), b = kept(kBf16, numbers(heads * depth * columns, 2));
  std::vector<double> want, by_head, turned(b.size());
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t n = 0; n < columns; ++n) {
        double sum = 0;
        for (int64_t d = 0; d < depth; ++d) sum += a[(m * heads + h) * depth + d] * b[(h * depth + d) * columns + n];
        want.push_back(sum);
      }
    }
  }
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t m = 0; m < rows; ++m)
      by_head.insert(by_head.end(), a.begin() + (m * heads + h) * depth, a.begin() + (m * heads + h + 1) * depth);
    for (int64_t d = 0; d < depth; ++d) {
      for (int64_t n = 0; n < columns; ++n) turned[(h * columns + n) * depth + d] = b[(h * depth + d) * columns + n];
    }
  }
  Array tokens(kBf16, {rows, heads, depth}, a), first(kBf16, {heads, rows, depth}, by_head),
      w(kBf16, {heads, depth, columns}, b);
  Array w_turned(kBf16, {heads, columns, depth}, turned), out(kBf16, {rows, heads, columns}),
      parts(kBf16, {2, rows, 2 * columns});
  const Ints swap({1, 0, 2}), same({0, 1, 2}), last({0, 2, 1});
  ASSERT_EQ(RUN_OP(aclnnTransposeBatchMatMul, tokens, w, nullptr, nullptr, swap, same, swap, 0, 1, out), 0);
  expect_close(out.get_all(), want, kBf16, 1e-5);
  ASSERT_EQ(RUN_OP(aclnnTransposeBatchMatMul, first, w_turned, nullptr, nullptr, same, last, swap, 0, 1, out), 0);
  expect_close(out.get_all(), want, kBf16, 1e-5);
  ASSERT_EQ(RUN_OP(aclnnTransposeBatchMatMul, tokens, w, nullptr, nullptr, swap, same, swap, 0, 2, parts), 0);
  EXPECT_EQ(parts.get_all()[(1 * rows + 2) * 2 * columns + columns + 3], out.get_all()[(2 * heads + 3) * columns + 3]);
  EXPECT_EQ(REFUSED(aclnnTransposeBatchMatMul, tokens, w, nullptr, nullptr, swap, same, same, 0, 1, out), kLimit);
  EXPECT_EQ(REFUSED(aclnnTransposeBatchMatMul, tokens, w, nullptr, nullptr, swap, swap, swap, 0, 1, out), kLimit);
  EXPECT_EQ(REFUSED(aclnnTransposeBatchMatMul, tokens, w, nullptr, nullptr, swap, same, swap, 0, 3, parts), kLimit);
  EXPECT_EQ(REFUSED(aclnnTransposeBatchMatMul, tokens, w, w, nullptr, swap, same, swap, 0, 1, out), kLimit);
  EXPECT_EQ(REFUSED(aclnnTransposeBatchMatMul, tokens, w, nullptr, nullptr, nullptr, same, swap, 0, 1, out), kNull);
}

}  // namespace
}  // namespace sim_test
