// Sparse modes, lists of keys, rope parts without pages, and the logarithm of the sums.
#include <limits>

#include "sim/ops/attention_cases.h"

namespace sim_test {
namespace {

class AttentionModes : public OpsTest {};

// Softmax over the keys that `sees` allows, in double; also max + log(sum).
struct Answer {
  std::vector<double> rows, lse;
};
Answer answer(const Problem& p, const std::function<bool(int64_t row, int64_t key)>& sees) {
  Answer all;
  for (int64_t row = 0; row < p.lengths[0]; ++row) {
    for (int64_t head = 0; head < p.heads; ++head) {
      const int64_t g = head / (p.heads / p.kv_heads);
      std::vector<double> out(static_cast<size_t>(p.value_width));
      double sum = 0;
      for (int64_t j = 0; j < p.kv_lengths[0]; ++j) {
        if (!sees(row, j)) continue;
        double dot = 0;
        for (int64_t d = 0; d < p.width; ++d) {
          dot += p.q[0][(row * p.heads + head) * p.width + d] * p.k[0][(j * p.kv_heads + g) * p.width + d];
        }
        const double weight = std::exp(dot * p.scale());
        sum += weight;
        for (int64_t d = 0; d < p.value_width; ++d) out[d] += weight * p.v[0][(j * p.kv_heads + g) * p.value_width + d];
      }
      for (const double value : out) all.rows.push_back(value / sum);
      all.lse.push_back(std::log(sum));
    }
  }
  return all;
}

TEST_F(AttentionModes, FromTheLeftAndInABand) {
  Problem p;
  p.lengths = {4}, p.kv_lengths = {9};
  p.fill(kBf16, 1);
  const auto mask = shared_mask();
  Array query(kBf16, {1, 4, 4, 16}, p.q[0]), out(kBf16, {1, 4, 4, 16}), none(kFloat, {0});
  Array k(kBf16, {1, 9, 2, 16}, p.k[0]), v(kBf16, {1, 9, 2, 16}, p.v[0]);
  const List key({&k}), value({&v});
  char layout[] = "BSND";
  const auto call = [&](int64_t sparse, int64_t before, int64_t after) {
    return RUN_OP(aclnnFusedInferAttentionScoreV2, query, key, value, nullptr, *mask, nullptr, nullptr, nullptr,
                  nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                  nullptr, nullptr, nullptr, nullptr, nullptr, 4, p.scale(), before, after, layout, 2, sparse, 0, 0, 0,
                  false, 0, 0, out, none);
  };
  ASSERT_EQ(call(2, kFar, kFar), 0) << bench().error;
  expect_close(out.get_all(), answer(p, [](int64_t i, int64_t j) { return j <= i; }).rows, kBf16, 1e-5, 2);
  ASSERT_EQ(call(4, 3, 1), 0) << bench().error;  // around the diagonal that ends in the last key
  const auto band = [](int64_t i, int64_t j) { return j - i - 5 <= 1 && i + 5 - j <= 3; };
  expect_close(out.get_all(), answer(p, band).rows, kBf16, 1e-5, 2);
}

TEST_F(AttentionModes, SaysHowLargeTheSumsWere) {
  Problem p;
  p.lengths = {2}, p.kv_lengths = {7};
  p.fill(kHalf, 5);
  const auto want = answer(p, [](int64_t, int64_t) { return true; });
  Array query(kHalf, {2, 4, 16}, p.q[0]), key(kHalf, {7, 2, 16}, p.k[0]), value(kHalf, {7, 2, 16}, p.v[0]);
  Array out(kHalf, {2, 4, 16}), lse(kFloat, {2, 4, 1}), narrow(kFloat, {2, 4});
  Call c{};
  c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.lse = &lse, c.lengths = {2}, c.kv_lengths = {7};
  ASSERT_EQ(fused(p, c), 0) << bench().error;
  expect_close(lse.get_all(), want.lse, kFloat, 1e-4);
  Array key_again(kHalf, {7, 2, 16}, p.k[0]), value_again(kHalf, {7, 2, 16}, p.v[0]);
  c.key = &key_again, c.value = &value_again, c.lse = &narrow;
  EXPECT_EQ(fused(p, c, true), 161002);
}

// Joined tokens over pages: prompts, chunks behind others, and steps of one token, which the form with a batch would
// show all keys. Sinks are in bf16; heads of 64 with them are run by the general kernel.
TEST_F(AttentionModes, WindowsAndSinksOfJoinedTokens) {
  for (const bool sunk : {false, true})
    for (const int64_t window : {0, 1, 24, 600})
      for (const int64_t width : {16, 64}) {
        if (!sunk && window == 0) continue;
        SCOPED_TRACE(testing::Message() << "window " << window << ", heads of " << width << (sunk ? ", sinks" : ""));
        Problem p;
        p.lengths = {1, 5, 0, 40, 1}, p.kv_lengths = {700, 30, 3, 40, 1}, p.width = p.value_width = width;
        p.causal = true, p.window = window;
        p.fill(kBf16, 21);
        if (sunk) p.sinks = kept(kBf16, {-1.5, 3, 0, 40});
        const Paged keys = paged(kBf16, p, p.k, width, 128, Pool::Rows, 6),
                    values = paged(kBf16, p, p.v, width, 128, Pool::Rows, 6);
        const auto mask = shared_mask();
        Array query(kBf16, {47, 4, width}, join(p.q)), out(kBf16, {47, 4, width}),
            sinks(kBf16, {4}, sunk ? p.sinks : std::vector<double>(4));
        Call c{};
        c.query = &query, c.key = keys.pool.get(), c.value = values.pool.get(), c.out = &out;
        c.table = keys.table.get(), c.mask = mask.get(), c.lengths = ends(p.lengths), c.kv_lengths = p.kv_lengths;
        c.page = 128, c.sparse = window > 0 ? 4 : 3;
        if (window > 0) c.before = window - 1, c.after = 0;
        if (sunk) c.sinks = &sinks;
        ASSERT_EQ(fused(p, c), 0) << bench().error;
        expect_close(out.get_all(), p.want(), kBf16, 1e-4, 2);
      }
}

TEST_F(AttentionModes, AListHasOneTensorPerRequest) {
  Problem p;
  p.lengths = {1, 1}, p.kv_lengths = {5, 3};
  p.fill(kBf16, 9);
  Array query(kBf16, {2, 1, 64}, join(p.q)), out(kBf16, {2, 1, 64});
  Array k0(kBf16, {1, 5, 32}, p.k[0]), k1(kBf16, {1, 4, 32}), v0(kBf16, {1, 5, 32}, p.v[0]), v1(kBf16, {1, 4, 32});
  auto k_rest = p.k[1], v_rest = p.v[1];
  k_rest.resize(4 * 32, std::nan(""));
  v_rest.resize(4 * 32, std::nan(""));
  k1.set(k_rest);
  v1.set(v_rest);
  const List key({&k0, &k1}), value({&v0, &v1});
  const Ints lengths(p.kv_lengths), too_long({5, 5});
  char layout[] = "BSH";
  ASSERT_EQ(RUN_OP(aclnnIncreFlashAttentionV4, query, key, value, nullptr, nullptr, lengths, nullptr, nullptr, nullptr,
                   nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 4, p.scale(), layout, 2, 0, 1, out),
            0)
      << bench().error;
  expect_close(out.get_all(), p.want(), kBf16, 1e-5, 2);
  EXPECT_EQ(REFUSED(aclnnIncreFlashAttentionV4, query, key, value, nullptr, nullptr, too_long, nullptr, nullptr,
                    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 4, p.scale(), layout, 2, 0, 1, out),
            561002);
}

TEST_F(AttentionModes, RopePartsWithoutPages) {
  Problem p;
  p.lengths = {3, 2}, p.kv_lengths = {3, 4}, p.heads = 2, p.kv_heads = 2, p.width = p.value_width = 128, p.rope = 64;
  p.causal = true;
  p.fill(kBf16, 13);
  const auto mask = shared_mask();
  Array query(kBf16, {5, 2, 128}, join(p.q)), key(kBf16, {7, 2, 128}, join(p.k)), value(kBf16, {7, 2, 128}, join(p.v));
  Array q_rope(kBf16, {5, 2, 64}, join(p.q_rope)), k_rope(kBf16, {7, 2, 64}, join(p.k_rope)), out(kBf16, {5, 2, 128});
  Call c{};
  c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.q_rope = &q_rope, c.k_rope = &k_rope;
  c.lengths = ends(p.lengths), c.kv_lengths = ends(p.kv_lengths), c.mask = mask.get(), c.sparse = 3;
  ASSERT_EQ(fused(p, c), 0) << bench().error;
  expect_close(out.get_all(), p.want(), kBf16, 1e-4, 2);
}

TEST_F(AttentionModes, AbsorbedHeadsArePowersOfTwo) {
  const auto code = [](int64_t heads, int64_t tokens, bool pages, int64_t kv_heads = 1) {
    Problem p;
    p.heads = heads, p.kv_heads = kv_heads, p.width = p.value_width = 512, p.rope = 64;
    Array query(kBf16, {tokens, heads, 512}), out(kBf16, {tokens, heads, 512}), q_rope(kBf16, {tokens, heads, 64});
    const auto of_keys = [&](int64_t width) {
      return pages ? Dims{1, 128, kv_heads * width} : Dims{20, kv_heads, width};
    };
    Array key(kBf16, of_keys(512)), value(kBf16, of_keys(512)), k_rope(kBf16, of_keys(64)), table(kInt32, {1, 1});
    Call c{};
    c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.q_rope = &q_rope, c.k_rope = &k_rope;
    c.lengths = {tokens}, c.kv_lengths = {20}, c.page = 128;
    if (pages) c.table = &table;
    return fused(p, c, true);
  };
  EXPECT_EQ(code(16, 1, true), 0);
  EXPECT_EQ(code(128, 1, true), 0);
  EXPECT_EQ(code(256, 1, true), 561002);
  EXPECT_EQ(code(24, 1, true), 561002);
  EXPECT_EQ(code(16, 1, false), 561002);
  EXPECT_EQ(code(16, 1, true, 2), 561002);
  EXPECT_EQ(code(16, 16, true), 0);
  EXPECT_EQ(code(16, 17, true), 561002);
}

}  // namespace
}  // namespace sim_test
