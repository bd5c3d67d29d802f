#include "ops/recurrent.h"

#include "ops/kernel.h"
#include "ops/want.h"

namespace reprise {
namespace {

constexpr const char* kKeyHeads = "key_heads";

// Slots that states are read from and written to, and the first row of each sequence: operands i, i + 1 and i + 2.
Status want_sequences(const OpCall& c, size_t i) {
  for (size_t at = i; at < i + 3; ++at) {
    RETURN_IF_ERROR(want_rank(c, at, 1, 1));
    RETURN_IF_ERROR(want_index(c, at));
  }
  return want_dim(c, i + 1, 0, c.in[i].shape[0], "number of sequences");
}

// Operand 0: numbers in fp32, whose sizes behind the slots are constants.
Status want_state(const OpCall& c, int rank) {
  RETURN_IF_ERROR(want_rank(c, 0, rank, rank));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::F32));
  for (int d = 1; d < rank; ++d) RETURN_IF_ERROR(want_constant(c, 0, d));
  return Status::ok();
}

// The last operand: how many drafts of the step before each sequence has taken, and how many of its rows are drafts.
Status want_drafts(const OpCall& c, size_t i) {
  if (c.in.size() <= i) return Status::ok();
  RETURN_IF_ERROR(want_rank(c, i, 2, 2));
  RETURN_IF_ERROR(want_index(c, i));
  RETURN_IF_ERROR(want_dim(c, i, 0, c.in[i - 3].shape[0], "number of sequences"));
  return want_dim(c, i, 1, Dim(2), "drafts of the step before and of this one");
}

// `bias`: operands in front of those that say whose the rows are: none, or a number for each column.
Result<Types> causal_conv_types(const OpCall& c, size_t bias) {
  RETURN_IF_ERROR(want_state(c, 3));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_float(c, 1));
  RETURN_IF_ERROR(want_rank(c, 2, 3, 3));
  RETURN_IF_ERROR(want_same_dtype(c, 2, 1));
  const Shape &state = c.in[0].shape, &x = c.in[1].shape;
  RETURN_IF_ERROR(want_dim(c, 1, 1, state[2], "state's number of columns"));
  RETURN_IF_ERROR(want_dim(c, 2, 0, state[2], "state's number of columns"));
  RETURN_IF_ERROR(want_dim(c, 2, 1, Dim(1), "one weight of a column in each row"));
  if (bias > 0) {
    RETURN_IF_ERROR(want_rank(c, 3, 1, 1));
    RETURN_IF_ERROR(want_same_dtype(c, 3, 1));
    RETURN_IF_ERROR(want_dim(c, 3, 0, state[2], "state's number of columns"));
  }
  RETURN_IF_ERROR(want_sequences(c, 3 + bias));
  RETURN_IF_ERROR(want_drafts(c, 6 + bias));
  const bool drafted = c.in.size() > 6 + bias;
  const int64_t drafts = drafted ? state[1].factor - c.in[2].shape[2].factor + 1 : 0;
  if (drafted && drafts < 1) return invalid("{}: a state of {} rows has none for drafts", describe(c), state[1].factor);
  RETURN_IF_ERROR(
      want_dim(c, 2, 2, Dim(state[1].factor - drafts + 1), "rows of the state and the one that is computed"));
  return Types{c.in[0], {c.in[1].dtype, x}};
}

Result<Types> infer_causal_conv(const OpCall& c) { return causal_conv_types(c, 0); }
Result<Types> infer_causal_conv_biased(const OpCall& c) { return causal_conv_types(c, 1); }

Result<Types> infer_gated_delta(const OpCall& c) {
  RETURN_IF_ERROR(want_state(c, 4));
  const Shape& state = c.in[0].shape;
  const int64_t heads = state[1].factor, value = state[3].factor, key_heads = c.attrs->integer(kKeyHeads),
                drafts = c.attrs->integer("most_drafts");
  int64_t key = state[2].factor;
  if (key_heads <= 0 || heads % key_heads != 0)
    return invalid("{}: {} heads of values are not a multiple of {} heads of keys", describe(c), heads, key_heads);
  for (size_t i : {1, 2, 3}) {
    RETURN_IF_ERROR(want_rank(c, i, 2, 2));
    RETURN_IF_ERROR(want_float(c, i));
    RETURN_IF_ERROR(want_same_dtype(c, i, 1));
    RETURN_IF_ERROR(want_dim(c, i, 0, c.in[1].shape[0], "number of tokens"));
  }
  RETURN_IF_ERROR(want_drafts(c, 9));
  if ((drafts > 0) != (c.in.size() > 9))
    return invalid("{}: {} drafts, and {} operands", describe(c), drafts, c.in.size());
  if (drafts > 0) {
    key = (c.in[1].shape[1].factor - heads * value) / (2 * key_heads);
    RETURN_IF_ERROR(want_dim(c, 0, 2, Dim(delta_state_rows(key, value, drafts)), "rows for keys and drafts"));
  }
  RETURN_IF_ERROR(want_dim(c, 1, 1, Dim(2 * key_heads * key + heads * value), "sizes of queries, keys and values"));
  for (size_t i : {2, 3}) RETURN_IF_ERROR(want_dim(c, i, 1, Dim(heads), "number of heads of values"));
  for (size_t i : {4, 5}) {
    RETURN_IF_ERROR(want_rank(c, i, 1, 1));
    RETURN_IF_ERROR(want_dtype(c, i, DType::F32));
    RETURN_IF_ERROR(want_dim(c, i, 0, Dim(heads), "number of heads of values"));
  }
  RETURN_IF_ERROR(want_sequences(c, 6));
  return Types{c.in[0], {c.in[1].dtype, {c.in[1].shape[0], Dim(heads), Dim(value)}}};
}

Result<Types> infer_state_space(const OpCall& c) {
  RETURN_IF_ERROR(want_state(c, 4));
  const Shape& state = c.in[0].shape;
  const int64_t heads = state[1].factor, value = state[3].factor, groups = c.attrs->integer("groups"),
                drafts = c.attrs->integer("most_drafts");
  int64_t key = state[2].factor;
  if (groups <= 0 || heads % groups != 0)
    return invalid("{}: {} heads are not a multiple of {} groups", describe(c), heads, groups);
  const double least = c.attrs->number("least_step"), most = c.attrs->number("most_step");
  if (!(least >= 0) || !(most == 0 || most >= least))
    return invalid("{}: steps from {} to {}; allowed: from 0 or more, to 0 (no limit) or no less", describe(c), least,
                   most);
  for (size_t i : {1, 2}) {
    RETURN_IF_ERROR(want_rank(c, i, 2, 2));
    RETURN_IF_ERROR(want_float(c, i));
    RETURN_IF_ERROR(want_same_dtype(c, i, 1));
    RETURN_IF_ERROR(want_dim(c, i, 0, c.in[1].shape[0], "number of tokens"));
  }
  RETURN_IF_ERROR(want_drafts(c, 9));
  if ((drafts > 0) != (c.in.size() > 9))
    return invalid("{}: {} drafts, and {} operands", describe(c), drafts, c.in.size());
  if (drafts > 0) {
    key = (c.in[1].shape[1].factor - heads * value) / (2 * groups);
    RETURN_IF_ERROR(want_dim(c, 0, 2, Dim(delta_state_rows(key, value, drafts)), "rows of a state and of drafts"));
  }
  RETURN_IF_ERROR(want_dim(c, 1, 1, Dim(heads * value + 2 * groups * key), "sizes of x, B and C"));
  RETURN_IF_ERROR(want_dim(c, 2, 1, Dim(heads), "number of heads"));
  for (size_t i : {3, 4, 5}) {
    RETURN_IF_ERROR(want_rank(c, i, 1, 1));
    RETURN_IF_ERROR(want_dtype(c, i, DType::F32));
    RETURN_IF_ERROR(want_dim(c, i, 0, Dim(heads), "number of heads"));
  }
  RETURN_IF_ERROR(want_sequences(c, 6));
  return Types{c.in[0], {c.in[1].dtype, {c.in[1].shape[0], Dim(heads), Dim(value)}}};
}

Result<Types> infer_rms_norm_gated(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  if (!same_type(c.in[0], c.in[1])) return invalid("{}: x and gate must have the same type", describe(c));
  RETURN_IF_ERROR(want_rank(c, 2, 1, 1));
  RETURN_IF_ERROR(want_same_dtype(c, 2, 0));
  RETURN_IF_ERROR(want_dim(c, 2, 0, c.in[0].shape[1], "row size of x"));
  if (const int64_t groups = c.attrs->integer("groups"); groups <= 0 || c.in[0].shape[1].factor % groups != 0)
    return invalid("{}: {} groups do not divide the width {}", describe(c), groups, c.in[0].shape[1].factor);
  return Types{c.in[0]};
}

}  // namespace

std::vector<HeadColumns> head_columns(const OpCall& c) {
  if (!c.op->has(op_trait::kHeads) || !c.attrs->find(kKeyHeads)) return {};
  const int64_t heads = c.in[0].shape[1].factor, value = c.in[0].shape[3].factor,
                key_heads = c.attrs->integer(kKeyHeads),
                key = (c.in[1].shape[1].factor - heads * value) / (2 * key_heads);
  return {{1, key_heads, key}, {1, key_heads, key}, {1, heads, value}, {2, heads, 1}, {3, heads, 1}};
}

void set_key_heads(Attrs& attrs, int64_t heads) { attrs.set(kKeyHeads, heads); }

void register_recurrent_ops(OpRegistry& ops) {
  ops.add(
      "causal_conv(Cache(a!) state, Tensor x, Tensor weight, Slots state_read, Slots state_write, Index cu_seqlens, "
      "Index? drafts) -> (Tensor(a), Tensor) : columns",
      infer_causal_conv,
      "[S, K-1, C] f32, [T, C], [C, 1, K], [R], [R], [R+1] -> the states, [T, C]: silu(sum over j of weight[c, j] "
      "x[t - K + 1 + j, c]) in fp32, the oldest row first, rounded once; rows before a sequence's first one are those "
      "of "
      "slot state_read[r], and the last K-1 rows go to slot state_write[r], where that is not negative; rows of no "
      "sequence are zeros. With drafts the state is [S, K-1+D, C]: the last K-1 rows in front of the sequence's last "
      "drafts[r, 1] rows, then those; the rows before are those up to the first drafts[r, 0] of the rows there");
  ops.add(
      "gated_delta(Cache(a!) state, Tensor qkv, Tensor b, Tensor a, Tensor a_log, Tensor dt_bias, Slots state_read, "
      "Slots state_write, Index cu_seqlens, Index? drafts, *, int key_heads, int most_drafts = 0) "
      "-> (Tensor(a), Tensor) : split_point per_head corrects",
      infer_gated_delta,
      "[S, H, K, V] f32, [T, 2 G K + H V], [T, H], [T, H], [H] f32, [H] f32, [R], [R], [R+1] -> the states, [T, H, V]: "
      "row by row S = exp(g) S + k u^T and o = S^T q, with u = sigmoid(b) (v - exp(g) S^T k), g = -exp(a_log) "
      "log(1 + exp(a + dt_bias)), q and k the query and key of head h / (H / G) over sqrt(sum of squares + 1e-6), and "
      "q over sqrt(K); in fp32, o rounded once. S begins as slot state_read[r] and goes to slot state_write[r]; where "
      "that is negative, and in rows of no sequence, o is zeros. With D drafts the state is [S, H, K + R, V]: S in "
      "front of the sequence's last drafts[r, 1] rows, then what those rows will change in it; S begins with the first "
      "drafts[r, 0] of the changes there. A sequence has rows besides its drafts, and the two slots differ");
  ops.add(
      "causal_conv_biased(Cache(a!) state, Tensor x, Tensor weight, Tensor bias, Slots state_read, Slots state_write, "
      "Index cu_seqlens, Index? drafts) -> (Tensor(a), Tensor)",
      infer_causal_conv_biased, "causal_conv with bias [C]: silu(bias[c] + the sum)");
  ops.add(
      "state_space(Cache(a!) state, Tensor xbc, Tensor dt, Tensor a_log, Tensor dt_bias, Tensor d, Slots state_read, "
      "Slots state_write, Index cu_seqlens, Index? drafts, *, int groups, float least_step = 0, float most_step = 0, "
      "int most_drafts = 0) -> (Tensor(a), Tensor) : split_point",
      infer_state_space,
      "[S, H, N, P] f32, [T, H P + 2 G N], [T, H], [H] f32, [H] f32, [H] f32, [R], [R], [R+1] -> the states, [T, H, "
      "P]: row by row S = exp(-exp(a_log) s) S + B (s x)^T and y = S^T C + d x, with s = log(1 + exp(dt + dt_bias)) "
      "held between least_step and most_step (0: no limit), and B and C those of group h / (H / G), which stand "
      "behind all x; in fp32, y rounded once. Slots, rows of no sequence and drafts are as in gated_delta");
  ops.add("rms_norm_gated(Rows x, Rows gate, Tensor weight, *, int groups, float eps) -> Tensor", infer_rms_norm_gated,
          "[T, N], [T, N], [N] -> [T, N]: v / sqrt(mean of v^2 over the N / groups numbers of its group + eps) * "
          "weight, with v = x silu(gate) in fp32, rounded once");
}

}  // namespace reprise
