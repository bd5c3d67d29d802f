// Ops on caches that hold one row per token: multi-head latent attention with its projections of one matrix per head,
// and attention over keys and values kept apart.
#include "ops/core.h"
#include "ops/kernel.h"
#include "ops/want.h"

namespace reprise {
namespace {

Result<Types> per_head_matmul_types(const OpCall& c, size_t weight) {
  RETURN_IF_ERROR(want_rank(c, 0, 3, 3));
  RETURN_IF_ERROR(want_rank(c, weight, 3, 3));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_same_dtype(c, 0, weight));
  const Shape &x = c.in[0].shape, &w = c.in[weight].shape;
  for (int d = 0; d < 3; ++d) RETURN_IF_ERROR(want_constant(c, weight, d));
  RETURN_IF_ERROR(want_dim(c, 0, 1, w[0], "weight's number of heads"));
  RETURN_IF_ERROR(want_dim(c, 0, 2, w[2], "weight's inner size"));
  return Types{{c.in[0].dtype, {x[0], w[0], w[1]}}};
}

Result<Types> infer_per_head_matmul(const OpCall& c) { return per_head_matmul_types(c, 1); }

Result<Types> infer_per_head_matmul_rows(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_index(c, 1));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of tokens"));
  return per_head_matmul_types(c, 2);
}

Result<Types> infer_latent_forms(const OpCall& c) {
  for (size_t i : {0, 1, 2}) {
    RETURN_IF_ERROR(want_rank(c, i, 1, 1));
    RETURN_IF_ERROR(want_index(c, i));
  }
  for (const char* size : {"latent", "nope", "value"}) RETURN_IF_ERROR(want_range(c, size, 1, int64_t{1} << 20));
  return Types{c.in[0], c.in[1], c.in[1]};
}

// [P, kPageTokens, width]; how the rows of a page lie is the device's own.
Status want_row_cache(const OpCall& c, size_t i) {
  RETURN_IF_ERROR(want_rank(c, i, 3, 3));
  RETURN_IF_ERROR(want_float(c, i));
  RETURN_IF_ERROR(want_dim(c, i, 1, Dim(kPageTokens), "number of tokens of a page"));
  return want_constant(c, i, 2);
}

Result<Types> infer_cache_rows(const OpCall& c) {
  RETURN_IF_ERROR(want_row_cache(c, 0));
  const Shape& s = c.in[0].shape;
  return Types{{c.in[0].dtype, {Dim(s[0].factor * kPageTokens, s[0].symbol), s[2]}}};
}

Result<Types> infer_row_write(const OpCall& c) {
  RETURN_IF_ERROR(want_row_cache(c, 0));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_same_dtype(c, 1, 0));
  RETURN_IF_ERROR(want_rank(c, 2, 1, 1));
  RETURN_IF_ERROR(want_index(c, 2));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[2].shape[0], "number of slots"));
  RETURN_IF_ERROR(want_dim(c, 1, 1, c.in[0].shape[2], "cache's width"));
  return Types{c.in[0]};
}

Result<Types> infer_latent_attention(const OpCall& c) {
  for (size_t i : {0, 1}) {
    RETURN_IF_ERROR(want_rank(c, i, 3, 3));
    RETURN_IF_ERROR(want_row_cache(c, i + 2));
    RETURN_IF_ERROR(want_same_dtype(c, i, i + 2));
    RETURN_IF_ERROR(want_dim(c, i, 2, c.in[i + 2].shape[2], "cache's width"));
  }
  RETURN_IF_ERROR(want_same_dtype(c, 0, 1));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of tokens"));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_dim(c, 1, 1, c.in[0].shape[1], "number of heads"));
  RETURN_IF_ERROR(want_dim(c, 3, 0, c.in[2].shape[0], "number of pages"));
  RETURN_IF_ERROR(want_rank(c, 4, 2, 2));
  RETURN_IF_ERROR(want_rank(c, 5, 1, 1));
  RETURN_IF_ERROR(want_rank(c, 6, 1, 1));
  for (size_t i : {4, 5, 6}) RETURN_IF_ERROR(want_index(c, i));
  RETURN_IF_ERROR(want_dim(c, 5, 0, c.in[4].shape[0], "number of sequences"));
  return Types{c.in[0]};
}

Result<Types> infer_expanded_latent_attention(const OpCall& c) {
  for (size_t i : {0, 1, 2, 5, 6}) {
    RETURN_IF_ERROR(want_rank(c, i, 3, 3));
    RETURN_IF_ERROR(want_float(c, i));
    RETURN_IF_ERROR(want_same_dtype(c, i, 1));
  }
  for (size_t i : {3, 4}) {
    RETURN_IF_ERROR(want_row_cache(c, i));
    RETURN_IF_ERROR(want_same_dtype(c, i, 1));
  }
  const Shape &q = c.in[1].shape, &out = c.in[0].shape, &c_kv = c.in[3].shape;
  RETURN_IF_ERROR(want_constant(c, 1, 1));
  RETURN_IF_ERROR(want_constant(c, 1, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 2));
  for (size_t i : {0, 2})
    for (int d : {0, 1}) RETURN_IF_ERROR(want_dim(c, i, d, q[d], d == 0 ? "number of tokens" : "number of heads"));
  RETURN_IF_ERROR(want_dim(c, 2, 2, c.in[4].shape[2], "cache's width"));
  RETURN_IF_ERROR(want_dim(c, 4, 0, c_kv[0], "number of pages"));
  const Dim key_weight[] = {q[1], c_kv[2], q[2]}, value_weight[] = {q[1], out[2], c_kv[2]};
  for (int d : {0, 1, 2}) {
    RETURN_IF_ERROR(want_dim(c, 5, d, key_weight[d], "size of queries, latents and heads"));
    RETURN_IF_ERROR(want_dim(c, 6, d, value_weight[d], "size of latents, results and heads"));
  }
  RETURN_IF_ERROR(want_rank(c, 7, 2, 2));
  RETURN_IF_ERROR(want_rank(c, 8, 1, 1));
  RETURN_IF_ERROR(want_rank(c, 9, 1, 1));
  for (size_t i : {7, 8, 9}) RETURN_IF_ERROR(want_index(c, i));
  RETURN_IF_ERROR(want_dim(c, 8, 0, c.in[7].shape[0], "number of sequences"));
  return Types{c.in[0]};
}

Result<Types> infer_paged_attention_rows(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 3, 3));
  for (size_t i : {1, 2}) {
    RETURN_IF_ERROR(want_row_cache(c, i));
    RETURN_IF_ERROR(want_same_dtype(c, 0, i));
  }
  RETURN_IF_ERROR(want_dim(c, 2, 0, c.in[1].shape[0], "number of pages"));
  RETURN_IF_ERROR(want_dim(c, 2, 2, c.in[1].shape[2], "width of the keys"));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_constant(c, 0, 2));
  const int64_t h = c.in[0].shape[1].factor, d = c.in[0].shape[2].factor, width = c.in[1].shape[2].factor;
  if (d <= 0 || width % d != 0)
    return invalid("{}: head size {} does not divide the width {} of the keys", describe(c), d, width);
  if (width == 0 || h % (width / d) != 0)
    return invalid("{}: {} query heads are not a multiple of {} key/value heads", describe(c), h, width / d);
  RETURN_IF_ERROR(want_rank(c, 3, 2, 2));
  RETURN_IF_ERROR(want_rank(c, 4, 1, 1));
  RETURN_IF_ERROR(want_rank(c, 5, 1, 1));
  for (size_t i : {3, 4, 5}) RETURN_IF_ERROR(want_index(c, i));
  RETURN_IF_ERROR(want_dim(c, 4, 0, c.in[3].shape[0], "number of sequences"));
  RETURN_IF_ERROR(want_window_or_chunk(c));
  if (c.in.size() > 6) {
    RETURN_IF_ERROR(want_rank(c, 6, 1, 1));
    RETURN_IF_ERROR(want_same_dtype(c, 0, 6));
    RETURN_IF_ERROR(want_dim(c, 6, 0, c.in[0].shape[1], "number of query heads"));
  }
  return Types{c.in[0]};
}

}  // namespace

void register_latent_ops(OpRegistry& ops) {
  ops.add("per_head_matmul(Tensor x, Weight weight) -> Tensor : per_head", infer_per_head_matmul,
          "[T, H, K], [H, N, K] -> [T, H, N]: every head times its own matrix, x[t, h] weight[h]^T, summed over K in "
          "ascending order in fp32, rounded once");
  ops.add("per_head_matmul_rows(Tensor x, Index rows, Weight weight) -> Tensor : per_head", infer_per_head_matmul_rows,
          "[T, H, K], [T], [H, N, K] -> [T, H, N]: per_head_matmul of the rows listed, ascending and before the first "
          "-1; the "
          "others are zeros");
  ops.add("row_write(Cache(a!) cache, Tensor rows, Index slots) -> Tensor(a)", infer_row_write,
          "[P, 128, N], [T, N]: stores rows[t] at slot slots[t] = page * 128 + offset; a negative slot is skipped");
  ops.add("cache_rows(Cache cache) -> Tensor : view", infer_cache_rows,
          "[P, 128, N] -> [P * 128, N], same bytes: the row of slot page * 128 + offset");
  ops.add(
      "latent_attention(Tensor q, Tensor q_rope, Cache c_kv, Cache k_pe, Index page_table, Index context_lens, "
      "Index cu_seqlens, *, float scale) -> Tensor : split_point per_head attends",
      infer_latent_attention,
      "[T, H, C], [T, H, D], [P, 128, C], [P, 128, D] -> [T, H, C]: causal attention of all heads over one latent per "
      "token, whose key is (latent, rope) and whose value is the latent; rows, lengths and order as in "
      "paged_attention");
  ops.add(
      "latent_forms(Index slots, Index context_lens, Index cu_seqlens, *, int latent, int nope, int value) -> "
      "(Tensor, Tensor, Tensor) : divides",
      infer_latent_forms,
      "[T], [R], [R + 1] -> [T], [R], [R]: how each sequence's prompt is attended to. With n new tokens that see p "
      "keys "
      "in all out of L, its keys and values are expanded where n is large enough for the device and p (2 latent - nope "
      "- "
      "value) > (L - n) latent (nope + value): where that is fewer operations. The tokens of all other sequences, then "
      "-1; the lengths L with 0 for those expanded, and with 0 for the others");
  ops.add(
      "expanded_latent_attention(Tensor(a!) out, Tensor q, Tensor q_rope, Cache c_kv, Cache k_pe, Weight weight, "
      "Weight value_weight, Index page_table, Index context_lens, Index cu_seqlens, *, float scale) -> "
      "Tensor(a) : split_point per_head attends expands",
      infer_expanded_latent_attention,
      "[T, H, V], [T, H, N], [T, H, D], [P, 128, C], [P, 128, D], [H, C, N], [H, V, C] -> [T, H, V]: causal attention "
      "with keys (latent weight[h], rope) and values latent value_weight[h]^T, both rounded; sequences of length 0 are "
      "left as they are in out");
  ops.add(
      "paged_attention_rows(Tensor q, Cache keys, Cache values, Index page_table, Index context_lens, "
      "Index cu_seqlens, Tensor? sinks, *, float scale, int window = 0, float softcap = 0, int chunk = 0) -> Tensor : "
      "split_point attends",
      infer_paged_attention_rows,
      "[T, H, D], [P, 128, G D], [P, 128, G D] -> [T, H, D]: paged_attention over caches of keys and of values, in "
      "which a token has one row of all heads; sinks have the type of q");
}

}  // namespace reprise
