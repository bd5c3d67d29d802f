#include "ops/encoder.h"

#include "ops/kernel.h"
#include "ops/want.h"

namespace reprise {
namespace {

Result<Types> infer_segment_attention(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 3, 3));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_rank(c, 1, 3, 3));
  if (!same_type(c.in[1], c.in[2])) return invalid("{}: keys and values must have the same type", describe(c));
  RETURN_IF_ERROR(want_same_dtype(c, 1, 0));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows"));
  RETURN_IF_ERROR(want_dim(c, 1, 2, c.in[0].shape[2], "size of a head"));
  for (size_t i : {0, 1})
    for (int d : {1, 2}) RETURN_IF_ERROR(want_constant(c, i, d));
  const int64_t heads = c.in[0].shape[1].factor, groups = c.in[1].shape[1].factor, window = c.attrs->integer("window");
  if (groups <= 0 || heads % groups != 0)
    return invalid("{}: {} query heads are not a multiple of {} key/value heads", describe(c), heads, groups);
  if (window < 0) return invalid("{}: window {}; allowed: 0 (none), numbers above it", describe(c), window);
  RETURN_IF_ERROR(want_rank(c, 3, 1, 1));
  RETURN_IF_ERROR(want_index(c, 3));
  return Types{c.in[0]};
}

// Frequency i turns with column axes[i] of the positions.
Result<Types> infer_rope_table_axes(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_index(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  const auto& freq = c.attrs->numbers("inv_freq");
  const auto& axes = c.attrs->numbers("axes");
  if (freq.empty() || axes.size() != freq.size())
    return invalid("{}: {} frequencies and {} axes; allowed: as many of both, at least one", describe(c), freq.size(),
                   axes.size());
  for (const double a : axes)
    if (!(a >= 0 && a < static_cast<double>(c.in[0].shape[1].factor)) || a != static_cast<double>(static_cast<int>(a)))
      return invalid("{}: axis {}; allowed: integers below {}", describe(c), a, c.in[0].shape[1].factor);
  return Types{{DType::F32, {c.in[0].shape[0], Dim(2 * static_cast<int64_t>(freq.size()))}}};
}

Result<Types> infer_join_rows(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  const int64_t count = c.attrs->integer("count");
  const Dim rows = c.in[0].shape[0];
  if (count < 1 || rows.factor % count != 0)
    return invalid("{}: {} rows; allowed: a multiple of count {}", describe(c), rows.factor, count);
  return Types{{c.in[0].dtype, {Dim(rows.factor / count, rows.symbol), Dim(c.in[0].shape[1].factor * count)}}};
}

Result<Types> infer_split_rows(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  const int64_t count = c.attrs->integer("count"), width = c.in[0].shape[1].factor;
  if (count < 1 || width % count != 0)
    return invalid("{}: rows of {} numbers; allowed: a multiple of count {}", describe(c), width, count);
  const Dim rows = c.in[0].shape[0];
  return Types{{c.in[0].dtype, {Dim(rows.factor * count, rows.symbol), Dim(width / count)}}};
}

Result<Types> infer_pool_rows(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  for (size_t i : {1, 2}) {
    RETURN_IF_ERROR(want_rank(c, i, 1, 1));
    RETURN_IF_ERROR(want_index(c, i));
  }
  if (const std::string& kind = c.attrs->text("kind"); kind != "last" && kind != "mean" && kind != "first")
    return invalid("{}: kind \"{}\"; allowed: last, mean, first", describe(c), kind);
  return Types{{DType::F32, {c.in[2].shape[0], c.in[0].shape[1]}}};
}

Result<Types> infer_widen(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  return Types{{DType::F32, c.in[0].shape}};
}

Result<Types> infer_l2_normalize(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::F32));
  return Types{c.in[0]};
}

}  // namespace

void register_encoder_ops(OpRegistry& ops) {
  ops.add(
      "segment_attention(Tensor q, Tensor k, Tensor v, Index cu_seqlens, *, float scale, int window = 0) -> Tensor : "
      "split_point per_head attends",
      infer_segment_attention,
      "[T, H, D], [T, G, D], [T, G, D], [R+1] -> [T, H, D]: each row attends over all rows of its sequence, "
      "cu_seqlens[r] .. cu_seqlens[r+1]; window > 0: over those less than `window` rows away, on both sides; head h "
      "has the keys of head h / (H / G); softmax in fp32, keys in order, rounded once");
  ops.add("rope_table_axes(Index positions, *, floats inv_freq, floats axes, float scale = 1) -> Tensor",
          infer_rope_table_axes,
          "[T, A] -> [T, 2 F] f32: rope_table of F frequencies, of which number i turns with positions[:, axes[i]]");
  ops.add("join_rows(Tensor x, *, int count) -> Tensor : view", infer_join_rows,
          "[count T, N] -> [T, count N], same bytes: rows that follow one another become one");
  ops.add("split_rows(Tensor x, *, int count) -> Tensor : view", infer_split_rows,
          "[T, count N] -> [count T, N], same bytes: each row becomes rows that follow one another");
  ops.add(
      "pool_rows(Tensor x, Index cu_seqlens, Index rows, *, str kind) -> Tensor", infer_pool_rows,
      "[T, N], [R+1], [L] -> [L, N] f32: of the sequence that holds rows[l], from its first row in the step to this "
      "one, the last, the first, or the mean in fp32, rows in order");
  ops.add("widen(Rows x) -> Tensor : columns", infer_widen, "[L, N] -> [L, N] f32: the same numbers");
  ops.add("l2_normalize(Rows x) -> Tensor", infer_l2_normalize,
          "[L, N] f32 -> [L, N] f32: x / max(sqrt(sum of x^2), 1e-12)");
}

}  // namespace reprise
