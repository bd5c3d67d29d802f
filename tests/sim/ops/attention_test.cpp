// Attention in every layout, paged and not, against a plain softmax in double.
#include <limits>

#include "sim/ops/attention_cases.h"

namespace sim_test {
namespace {

class AttentionOps : public OpsTest {};

TEST_F(AttentionOps, JoinedTokensWithAndWithoutPages) {
  const auto mask = shared_mask();
  for (const aclDataType dtype : {kHalf, kBf16}) {
    for (const bool causal : {false, true}) {
      Problem p;
      p.lengths = {3, 1, 5}, p.kv_lengths = {40, 1, 5}, p.causal = causal;
      p.fill(dtype, 1);
      Call c{};
      c.lengths = ends(p.lengths), c.kv_lengths = ends(p.kv_lengths);
      c.sparse = causal ? 3 : 0, c.mask = causal ? mask.get() : nullptr;
      Array query(dtype, {9, 4, 16}, join(p.q)), out(dtype, {9, 4, 16});
      Array key(dtype, {46, 2, 16}, join(p.k)), value(dtype, {46, 2, 16}, join(p.v)), lse(kFloat, {9, 4, 1});
      c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.lse = &lse;
      ASSERT_EQ(fused(p, c), 0) << bench().error;
      expect_close(out.get_all(), p.want(), dtype, 1e-5, 2);
      EXPECT_EQ(bench().kernels.size(), 1u);
      EXPECT_EQ(bench().kernels[0].unit, ascend_sim::Unit::Mixed);
      const double pairs = causal ? 38 + 39 + 40 + 1 + 1 + 2 + 3 + 4 + 5 : 3 * 40 + 1 + 25;
      EXPECT_EQ(bench().kernels[0].work.operations, pairs * 2 * 4 * 32);
      for (const int64_t page : {16, 128}) {
        const Paged keys = paged(dtype, p, p.k, 16, page, Pool::Rows, 4),
                    values = paged(dtype, p, p.v, 16, page, Pool::Rows, 4);
        Array pages_out(dtype, {9, 4, 16});
        Call paged_call = c;
        paged_call.key = keys.pool.get(), paged_call.value = values.pool.get(), paged_call.out = &pages_out;
        paged_call.table = keys.table.get(), paged_call.page = page, paged_call.kv_lengths = p.kv_lengths;
        ASSERT_EQ(fused(p, paged_call), 0) << bench().error;
        EXPECT_EQ(pages_out.get_all(), out.get_all()) << "pages change nothing";
        EXPECT_EQ(bench().kernels[0].work.bytes, (2 * 9 * 64 + 46 * 2 * 32) * 2 + 3 * 4 * 4 + 9 * 4 * 4)
            << "pages count up to the lengths";
      }
    }
  }
}

TEST_F(AttentionOps, EveryLayoutSaysTheSame) {
  const int64_t batch = 2, rows = 3, room = 4, n = 4, g = 2, d = 16;
  Problem p;
  p.lengths = {rows, rows}, p.kv_lengths = {room * 128, room * 128};
  p.fill(kBf16, 7);
  const auto q = join(p.q), k = join(p.k), v = join(p.v);
  const int64_t kv = room * 128;
  Array out(kBf16, {batch, rows, n, d});
  const auto run_layout = [&](const char* layout, const Dims& qs, const std::vector<double>& qv, const Dims& ks,
                              const std::vector<double>& kvalues, const std::vector<double>& vvalues, const Dims& os) {
    Array query(kBf16, qs, qv), key(kBf16, ks, kvalues), value(kBf16, ks, vvalues), result(kBf16, os);
    Call c{};
    c.query = &query, c.key = &key, c.value = &value, c.out = &result, c.layout = layout;
    if (qs.size() == 3 && std::string(layout) != "BSH") c.lengths = {rows, 2 * rows}, c.kv_lengths = {kv, 2 * kv};
    EXPECT_EQ(fused(p, c), 0) << layout << ": " << bench().error;
    return result.get_all();
  };
  const auto want = run_layout("BSND", {batch, rows, n, d}, q, {batch, kv, g, d}, k, v, {batch, rows, n, d});
  expect_close(want, p.want(), kBf16, 1e-5, 2);
  EXPECT_EQ(run_layout("BSH", {batch, rows, n * d}, q, {batch, kv, g * d}, k, v, {batch, rows, n * d}), want);
  EXPECT_EQ(run_layout("TND", {batch * rows, n, d}, q, {batch * kv, g, d}, k, v, {batch * rows, n, d}), want);
  const auto q_major = swapped(q, batch, rows, n, d), k_major = swapped(k, batch, kv, g, d),
             v_major = swapped(v, batch, kv, g, d);
  const Dims by_head{batch, n, rows, d}, keys_by_head{batch, g, kv, d};
  EXPECT_EQ(run_layout("BNSD", by_head, q_major, keys_by_head, k_major, v_major, by_head),
            swapped(want, batch, rows, n, d));
  EXPECT_EQ(run_layout("BNSD_BSND", by_head, q_major, keys_by_head, k_major, v_major, {batch, rows, n, d}), want);
  const auto q_ntd = swapped(q, 1, batch * rows, n, d), k_ntd = swapped(k, 1, batch * kv, g, d),
             v_ntd = swapped(v, 1, batch * kv, g, d);
  EXPECT_EQ(run_layout("NTD_TND", {n, batch * rows, d}, q_ntd, {g, batch * kv, d}, k_ntd, v_ntd, {batch * rows, n, d}),
            want);
  EXPECT_EQ(run_layout("TND_NTD", {batch * rows, n, d}, q, {batch * kv, g, d}, k, v, {n, batch * rows, d}),
            swapped(want, 1, batch * rows, n, d));
  for (const Pool pool : {Pool::Rows, Pool::HeadMajor, Pool::Fractal}) {
    const Paged keys = paged(kBf16, p, p.k, d, 128, pool, room), values = paged(kBf16, p, p.v, d, 128, pool, room);
    Array query(kBf16, by_head, q_major), result(kBf16, by_head);
    Call c{};
    c.query = &query, c.key = keys.pool.get(), c.value = values.pool.get(), c.out = &result, c.layout = "BNSD";
    c.table = keys.table.get(), c.page = 128, c.kv_lengths = p.kv_lengths;
    ASSERT_EQ(fused(p, c), 0) << bench().error;
    EXPECT_EQ(result.get_all(), swapped(want, batch, rows, n, d));
  }
}

TEST_F(AttentionOps, ThePairItReplacedSaysTheSame) {
  Problem p;
  p.lengths = {1, 1}, p.kv_lengths = {20, 150};
  p.fill(kBf16, 3);
  const Paged keys = paged(kBf16, p, p.k, 16, 128, Pool::Rows, 2),
              values = paged(kBf16, p, p.v, 16, 128, Pool::Rows, 2);
  const Paged again = paged(kBf16, p, p.k, 16, 128, Pool::Rows, 2),
              values_again = paged(kBf16, p, p.v, 16, 128, Pool::Rows, 2);
  Array query(kBf16, {2, 1, 64}, join(p.q)), old_out(kBf16, {2, 1, 64}), new_out(kBf16, {2, 1, 64});
  const Ints lengths(p.kv_lengths);
  const List key({again.pool.get()}), value({values_again.pool.get()});
  char layout[] = "BSH";
  ASSERT_EQ(RUN_OP(aclnnIncreFlashAttentionV4, query, key, value, nullptr, nullptr, lengths, nullptr, nullptr, nullptr,
                   nullptr, nullptr, nullptr, nullptr, *keys.table, nullptr, 4, p.scale(), layout, 2, 128, 1, old_out),
            0)
      << bench().error;
  Call c{};
  c.query = &query, c.key = keys.pool.get(), c.value = values.pool.get(), c.out = &new_out, c.layout = "BSH";
  c.table = keys.table.get(), c.page = 128, c.kv_lengths = p.kv_lengths;
  ASSERT_EQ(fused(p, c), 0) << bench().error;
  EXPECT_EQ(new_out.get_all(), old_out.get_all());
  expect_close(new_out.get_all(), p.want(), kBf16, 1e-5, 2);

  Problem prompt;
  prompt.lengths = {5}, prompt.kv_lengths = {9}, prompt.causal = true;
  prompt.fill(kBf16, 5);
  const auto mask = shared_mask();
  Array q(kBf16, {1, 5, 4, 16}, prompt.q[0]), k(kBf16, {1, 9, 2, 16}, prompt.k[0]),
      v(kBf16, {1, 9, 2, 16}, prompt.v[0]);
  Array out(kBf16, {1, 5, 4, 16}), fused_out(kBf16, {1, 5, 4, 16});
  char bsnd[] = "BSND";
  ASSERT_EQ(RUN_OP(aclnnPromptFlashAttentionV3, q, k, v, nullptr, *mask, nullptr, nullptr, nullptr, nullptr, nullptr,
                   nullptr, nullptr, 4, prompt.scale(), kFar, kFar, bsnd, 2, 3, 0, out),
            0)
      << bench().error;
  expect_close(out.get_all(), prompt.want(), kBf16, 1e-5, 2);
  Call f{};
  f.query = &q, f.key = &k, f.value = &v, f.out = &fused_out, f.layout = "BSND", f.mask = mask.get(), f.sparse = 3;
  ASSERT_EQ(fused(prompt, f), 0) << bench().error;
  EXPECT_EQ(fused_out.get_all(), out.get_all());
  EXPECT_EQ(REFUSED(aclnnIncreFlashAttentionV4, q, key, value, nullptr, nullptr, lengths, nullptr, nullptr, nullptr,
                    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 4, 1.0, bsnd, 2, 0, 1, out),
            kLimit);
}

TEST_F(AttentionOps, AbsorbedLatentHeads) {
  for (const int64_t tokens : {1, 3}) {
    Problem p;
    p.lengths = {tokens, tokens}, p.kv_lengths = {17, 140}, p.heads = 8, p.kv_heads = 1, p.width = p.value_width = 512;
    p.rope = 64, p.causal = tokens > 1;
    p.fill(kBf16, 11);
    p.v = p.k;
    const auto mask = shared_mask();
    const Paged latent = paged(kBf16, p, p.k, 512, 128, Pool::Rows, 2),
                same = paged(kBf16, p, p.k, 512, 128, Pool::Rows, 2);
    const Paged rope = paged(kBf16, p, p.k_rope, 64, 128, Pool::Rows, 2);
    Array query(kBf16, {2 * tokens, 8, 512}, join(p.q)), q_rope(kBf16, {2 * tokens, 8, 64}, join(p.q_rope));
    Array out(kBf16, {2 * tokens, 8, 512});
    Call c{};
    c.query = &query, c.key = latent.pool.get(), c.value = same.pool.get(), c.out = &out, c.table = latent.table.get();
    c.q_rope = &q_rope, c.k_rope = rope.pool.get(), c.page = 128, c.lengths = ends(p.lengths),
    c.kv_lengths = p.kv_lengths;
    c.sparse = p.causal ? 3 : 0, c.mask = p.causal ? mask.get() : nullptr;
    ASSERT_EQ(fused(p, c), 0) << bench().error;
    expect_close(out.get_all(), p.want(), kBf16, 1e-4, 2);
  }
}

TEST_F(AttentionOps, MasksOfEveryKind) {
  // An explicit mask hides even keys; a shared one whose upper triangle is empty hides nothing.
  Problem p;
  p.lengths = {2}, p.kv_lengths = {6};
  p.fill(kBf16, 21);
  Array query(kBf16, {1, 2, 4, 16}, p.q[0]), out(kBf16, {1, 2, 4, 16}), open_out(kBf16, {1, 2, 4, 16});
  std::vector<double> hidden(12);
  for (size_t i = 0; i < 12; ++i) hidden[i] = i % 6 % 2 == 0;
  Array mask(kBool, {1, 2, 6}, hidden), open(kBool, {2048, 2048}, std::vector<double>(2048 * 2048, 0));
  Problem odd = p;
  odd.kv_lengths = {3};
  odd.k = odd.v = {{}};
  for (const int64_t j : {1, 3, 5}) {
    odd.k[0].insert(odd.k[0].end(), p.k[0].begin() + j * 32, p.k[0].begin() + (j + 1) * 32);
    odd.v[0].insert(odd.v[0].end(), p.v[0].begin() + j * 32, p.v[0].begin() + (j + 1) * 32);
  }
  const auto call = [&](Array* with, int64_t sparse, Array* to, int64_t precise = 0) {
    Array key(kBf16, {1, 6, 2, 16}, p.k[0]), value(kBf16, {1, 6, 2, 16}, p.v[0]);
    Call c{};
    c.query = &query, c.key = &key, c.value = &value, c.out = to, c.layout = "BSND", c.mask = with, c.sparse = sparse;
    c.precise = precise;
    return fused(p, c);
  };
  ASSERT_EQ(call(&mask, 0, &out), 0) << bench().error;
  expect_close(out.get_all(), odd.want(), kBf16, 1e-5, 2);
  ASSERT_EQ(call(&open, 3, &out), 0);
  ASSERT_EQ(call(nullptr, 0, &open_out), 0);
  EXPECT_EQ(out.get_all(), open_out.get_all());
  // Everything hidden: zero where bit 1 of innerPrecise asks for it, nothing to trust where not.
  mask.set(std::vector<double>(12, 1));
  ASSERT_EQ(call(&mask, 1, &out), 0) << bench().error;
  EXPECT_TRUE(std::isnan(out.get_all()[0]));
  ASSERT_EQ(call(&mask, 1, &out, 2), 0);
  EXPECT_EQ(out.get_all(), std::vector<double>(128, 0));
  EXPECT_EQ(call(&mask, 3, &out), kLimit);
  EXPECT_EQ(call(nullptr, 3, &out), kLimit);
  EXPECT_EQ(call(nullptr, 5, &out), kLimit);
}

TEST_F(AttentionOps, NoKeysGiveZeroAndPaddingIsLeftAlone) {
  Problem p;
  p.lengths = {1, 1, 0}, p.kv_lengths = {0, 7, 3};
  p.fill(kBf16, 31);
  const Paged keys = paged(kBf16, p, p.k, 16, 128, Pool::Rows, 1),
              values = paged(kBf16, p, p.v, 16, 128, Pool::Rows, 1);
  auto q = join(p.q);
  q.resize(3 * 64);
  Array query(kBf16, {3, 1, 4, 16}, q), out(kBf16, {3, 1, 4, 16});
  Call c{};
  c.query = &query, c.key = keys.pool.get(), c.value = values.pool.get(), c.out = &out, c.layout = "BSND";
  c.table = keys.table.get(), c.page = 128, c.lengths = p.lengths, c.kv_lengths = p.kv_lengths;
  ASSERT_EQ(fused(p, c), 0) << bench().error;
  const auto got = out.get_all();
  EXPECT_EQ(std::vector<double>(got.begin(), got.begin() + 64), std::vector<double>(64, 0));
  const auto want = p.row(1, 0, 0);
  expect_close({got.begin() + 64, got.begin() + 80}, want, kBf16, 1e-5, 2);
  EXPECT_TRUE(std::isnan(got[128])) << "a row beyond the lengths is not written";
}

TEST_F(AttentionOps, WorkspaceIsBoundedByThePageTable) {
  Problem p;
  p.lengths = {1}, p.kv_lengths = {3};
  p.fill(kBf16, 41);
  const auto size_at = [&](int64_t length, bool bound) {
    Array pool(kBf16, {8, 128, 32}), same(kBf16, {8, 128, 32}), query(kBf16, {1, 1, 4, 16}), out(kBf16, {1, 1, 4, 16});
    Array table(kInt32, {1, 64}), none(kFloat, {0});
    const List key({&pool}), value({&same});
    const Ints lengths({length});
    char layout[] = "BSND";
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    const auto call =
        bound ? aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize : aclnnFusedInferAttentionScoreV3GetWorkspaceSize;
    EXPECT_EQ(call(query, key, value, nullptr, nullptr, nullptr, lengths, nullptr, nullptr, nullptr, nullptr, nullptr,
                   nullptr, nullptr, table, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                   nullptr, nullptr, nullptr, nullptr, 4, 0.25, kFar, kFar, layout, 2, 0, 0, 128, 0, false, 0, 0, out,
                   none, &size, &executor),
              0)
        << bench().error;
    if (bound) {
      EXPECT_EQ(aclnnFusedInferAttentionScoreV3(pool.device(), size, executor, nullptr), kBad);
    } else {
      EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor), kBad);
    }
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
    return size;
  };
  EXPECT_EQ(size_at(3, false), size_at(8000, false)) << "shapes count, not lengths";
  EXPECT_EQ(size_at(3, true), size_at(8192, true));
  EXPECT_LE(size_at(8192, false), size_at(3, true));
}

}  // namespace
}  // namespace sim_test
