#include "ops/collectives.h"

#include <algorithm>

#include "ops/kernel.h"
#include "ops/want.h"

namespace reprise {
namespace {

Result<Types> infer_all_gather(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_range(c, "even", 0, 1));
  const int64_t first = c.attrs->integer("first"), of = c.attrs->integer("of"), count = c.in[0].shape[1].factor;
  if (first < 0 || of < count || first > of - count)
    return invalid("{}: columns [{}, {} + {}) are not inside the {} of all ranks", describe(c), first, first, count,
                   of);
  if (c.attrs->integer("even") == 1 && (of % count != 0 || first % count != 0))
    return invalid("{}: columns [{}, {} + {}) of {} are no even part", describe(c), first, first, count, of);
  return Types{{c.in[0].dtype, {c.in[0].shape[0], Dim(of)}}};
}

Result<Types> infer_local_ids(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::I32));
  RETURN_IF_ERROR(want_range(c, "first", 0, INT32_MAX));
  RETURN_IF_ERROR(want_range(c, "count", 1, INT32_MAX));
  return Types{c.in[0]};
}

Result<Types> infer_gather_found(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of x"));
  RETURN_IF_ERROR(want_range(c, "of", 1, INT32_MAX));
  RETURN_IF_ERROR(want_range(c, "count", 1, c.attrs->integer("of")));
  RETURN_IF_ERROR(want_range(c, "first", 0, c.attrs->integer("of") - c.attrs->integer("count")));
  return Types{c.in[0]};
}

Result<Types> infer_found_ids(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::I32));
  RETURN_IF_ERROR(want_range(c, "of", 1, INT32_MAX));
  RETURN_IF_ERROR(want_range(c, "count", 1, c.attrs->integer("of")));
  RETURN_IF_ERROR(want_range(c, "first", 0, c.attrs->integer("of") - c.attrs->integer("count")));
  return Types{c.in[0]};
}

Result<Types> infer_gather_owned(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of x"));
  return Types{c.in[0]};
}

Result<Types> infer_own_groups(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 1, 1));
  RETURN_IF_ERROR(want_index(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 0));
  const int64_t groups = c.in[0].shape[0].factor - 1;
  RETURN_IF_ERROR(want_range(c, "count", 1, groups));
  RETURN_IF_ERROR(want_range(c, "first", 0, groups - c.attrs->integer("count")));
  return Types{{c.in[0].dtype, {Dim(c.attrs->integer("count") + 1)}}};
}

Result<Types> infer_own_indices(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::I32));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::I32));
  RETURN_IF_ERROR(want_constant(c, 1, 0));
  if (c.in[1].shape[0].factor != 2) return invalid("{}: rows of a part have two borders", describe(c));
  return Types{c.in[0]};
}

Result<Types> infer_own_rows(const OpCall& c) {
  for (size_t i : {0, 1}) {
    RETURN_IF_ERROR(want_rank(c, i, 1, 1));
    RETURN_IF_ERROR(want_dtype(c, i, DType::I32));
  }
  RETURN_IF_ERROR(want_constant(c, 1, 0));
  const Dim places = c.in[0].shape[0];
  const int64_t groups = c.in[1].shape[0].factor - 1, count = c.attrs->integer("count");
  RETURN_IF_ERROR(want_range(c, "count", 1, groups));
  RETURN_IF_ERROR(want_range(c, "first", 0, groups - count));
  RETURN_IF_ERROR(want_range(c, "top_k", 1, groups));
  const int64_t top_k = c.attrs->integer("top_k");
  if (places.factor % top_k != 0)
    return invalid("{}: {} places are not {} for each token", describe(c), places.factor, top_k);
  return Types{{DType::I32, {Dim(places.factor / top_k * std::min(top_k, count), places.symbol)}},
               {DType::I32, {Dim(count + 1)}}};
}

Result<Types> infer_combine_over_ranks(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  const Shape& s = c.in[1].shape;
  for (size_t i : {1, 2, 3}) {
    RETURN_IF_ERROR(want_rank(c, i, 2, 2));
    RETURN_IF_ERROR(want_dtype(c, i, i == 1 ? DType::F32 : DType::I32));
    for (int d : {0, 1}) RETURN_IF_ERROR(want_dim(c, i, d, s[d], "same of weights"));
  }
  RETURN_IF_ERROR(want_constant(c, 1, 1));
  RETURN_IF_ERROR(want_rank(c, 4, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 4, DType::I32));
  RETURN_IF_ERROR(want_constant(c, 4, 0));
  const int64_t groups = c.in[4].shape[0].factor - 1, count = c.attrs->integer("count");
  RETURN_IF_ERROR(want_range(c, "count", 1, groups));
  RETURN_IF_ERROR(want_range(c, "first", 0, groups - count));
  RETURN_IF_ERROR(want_dim(c, 0, 0, Dim(s[0].factor * std::min(s[1].factor, count), s[0].symbol),
                           "most rows of this rank's experts"));
  RETURN_IF_ERROR(want_range(c, "ways", 1, INT32_MAX));
  return Types{{c.in[0].dtype, {s[0], Dim(c.in[0].shape[1].factor * c.attrs->integer("ways"))}}};
}

// What both kinds of rows come with: the borders, what ranks tell each other, and the counts.
Result<Types> sent_types(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of x"));
  RETURN_IF_ERROR(want_constant(c, 1, 1));
  const int64_t groups = c.attrs->integer("groups"), count = c.attrs->integer("count");
  RETURN_IF_ERROR(want_range(c, "groups", 1, INT32_MAX));
  RETURN_IF_ERROR(want_range(c, "count", 1, groups));
  RETURN_IF_ERROR(want_range(c, "first", 0, groups - count));
  RETURN_IF_ERROR(want_range(c, "symbol", 1, kMaxSymbols - 1));
  const Dim rows(std::min(c.in[1].shape[1].factor, count), static_cast<SymbolId>(c.attrs->integer("symbol")));
  return Types{{DType::I32, {Dim(count + 1)}}, {DType::I32, {rows, Dim(kSentRowWords)}}, {DType::I32, {Dim(groups)}}};
}

Result<Types> infer_dispatch_over_ranks(const OpCall& c) {
  ASSIGN_OR_RETURN(Types out, sent_types(c));
  out.insert(out.begin(), {c.in[0].dtype, {out[1].shape[0], c.in[0].shape[1]}});
  return out;
}

Result<Types> infer_dispatch_quantised(const OpCall& c) {
  ASSIGN_OR_RETURN(Types out, sent_types(c));
  const Dim rows = out[1].shape[0];
  out.insert(out.begin(), {{DType::I8, {rows, c.in[0].shape[1]}}, {DType::F32, {rows, Dim(1)}}});
  return out;
}

Result<Types> infer_combine_dispatched(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  const Shape& s = c.in[1].shape;
  for (size_t i : {1, 2}) {
    RETURN_IF_ERROR(want_rank(c, i, 2, 2));
    RETURN_IF_ERROR(want_dtype(c, i, i == 1 ? DType::F32 : DType::I32));
    for (int d : {0, 1}) RETURN_IF_ERROR(want_dim(c, i, d, s[d], "same of weights"));
  }
  RETURN_IF_ERROR(want_constant(c, 1, 1));
  RETURN_IF_ERROR(want_rank(c, 3, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 3, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 3, 0, c.in[0].shape[0], "number of rows of y"));
  RETURN_IF_ERROR(want_dim(c, 3, 1, Dim(kSentRowWords), "numbers that dispatch_over_ranks tells of a row"));
  RETURN_IF_ERROR(want_rank(c, 4, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 4, DType::I32));
  RETURN_IF_ERROR(want_constant(c, 4, 0));
  return Types{{c.in[0].dtype, {s[0], c.in[0].shape[1]}}};
}

Result<Types> infer_gather_columns(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  const std::vector<double>& borders = c.attrs->numbers("borders");
  if (borders.size() < 2 || borders[0] != 0 || !std::is_sorted(borders.begin(), borders.end()))
    return invalid("{}: borders of columns rise from 0", describe(c));
  const auto ways = static_cast<int64_t>(borders.size()) - 1;
  RETURN_IF_ERROR(want_range(c, "way", 0, ways - 1));
  const auto way = static_cast<size_t>(c.attrs->integer("way"));
  if (static_cast<double>(c.in[0].shape[1].factor) != borders[way + 1] - borders[way])
    return invalid("{}: {} columns, and {} between the borders", describe(c), c.in[0].shape[1].factor,
                   borders[way + 1] - borders[way]);
  return Types{{c.in[0].dtype, {c.in[0].shape[0], Dim(static_cast<int64_t>(borders.back()))}}};
}

Result<Types> infer_gather_groups(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::I32));
  RETURN_IF_ERROR(want_constant(c, 1, 0));
  const int64_t first = c.attrs->integer("first"), of = c.attrs->integer("of"), count = c.in[0].shape[1].factor;
  if (first < 0 || of < count || first > of - count)
    return invalid("{}: columns [{}, {} + {}) are not inside the {} of all ranks", describe(c), first, first, count,
                   of);
  return Types{{c.in[0].dtype, {c.in[0].shape[0], Dim(of)}}};
}

Result<Types> infer_gather_marked(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of x"));
  const int64_t first = c.attrs->integer("first"), of = c.attrs->integer("of"), count = c.in[0].shape[1].factor;
  if (first < 0 || of < count || first > of - count)
    return invalid("{}: columns [{}, {} + {}) are not inside the {} of all ranks", describe(c), first, first, count,
                   of);
  return Types{{c.in[0].dtype, {c.in[0].shape[0], Dim(of)}}};
}

Result<Types> infer_sum_parts(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::F32));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  const int64_t columns = c.in[0].shape[1].factor;
  RETURN_IF_ERROR(want_range(c, "parts", 1, columns));
  const int64_t parts = c.attrs->integer("parts");
  if (columns % parts != 0) return invalid("{}: {} columns are no {} equal parts", describe(c), columns, parts);
  RETURN_IF_ERROR(want_range(c, "place", 0, parts - 1));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::F32));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "rows of the parts"));
  RETURN_IF_ERROR(want_dim(c, 1, 1, Dim(columns / parts), "number of columns of a part"));
  if (c.in.size() > 2) {
    RETURN_IF_ERROR(want_rank(c, 2, 1, 1));
    RETURN_IF_ERROR(want_float(c, 2));
    RETURN_IF_ERROR(want_dim(c, 2, 0, Dim(columns / parts), "number of columns of a part"));
  }
  ASSIGN_OR_RETURN(const DType out, parse_dtype(c.attrs->text("out")));
  if (out != DType::F32 && out != DType::BF16 && out != DType::F16)
    return invalid("{}: out \"{}\"; allowed: f32, bf16, f16", describe(c), c.attrs->text("out"));
  return Types{{out, {c.in[0].shape[0], Dim(columns / parts)}}};
}

Result<Types> infer_all_reduce(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  if (c.in.size() > 1) {
    RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
    RETURN_IF_ERROR(want_dtype(c, 1, c.in[0].dtype));
    RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[1], "number of columns"));
  }
  return Types{c.in[0]};
}

Result<Types> infer_argmax_pairs(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::F32));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of x"));
  RETURN_IF_ERROR(want_range(c, "first", 0, INT32_MAX));
  return Types{{DType::I32, {c.in[0].shape[0], Dim(2)}}};
}

Result<Types> infer_merge_argmax(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::I32));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  if (c.in[0].shape[1].factor % 2 != 0) return invalid("{}: pairs have an even number of columns", describe(c));
  return Types{{DType::I32, {c.in[0].shape[0]}}};
}

}  // namespace

void register_collective_ops(OpRegistry& ops) {
  ops.add("all_gather(Tensor x, *, int first, int of, int even) -> Tensor : collective", infer_all_gather,
          "[T, n] on each rank -> [T, of] on all: this rank's columns are [first, first + n), "
          "even 1: all ranks have n, in order; any type");
  ops.add("local_ids(Index ids, *, int first, int count) -> Tensor", infer_local_ids,
          "i32 -> i32: id - first where that is in [0, count), else -1: which row of a rank's part of a table");
  ops.add("gather_owned(Tensor x, Tensor ids) -> Tensor : collective", infer_gather_owned,
          "[T, N], i32 [T] on each rank -> [T, N] on all: row t of the rank whose ids[t] is not negative; exactly one "
          "rank has it; any type");
  ops.add("found_ids(Index ids, *, int first, int count, int of) -> Tensor", infer_found_ids,
          "i32 -> i32: id - first where that is in [0, count), else 0: which row of a rank's part of a table of `of` "
          "rows; none is negative");
  ops.add(
      "gather_found(Tensor x, Tensor ids, *, int first, int count, int of) -> Tensor : collective", infer_gather_found,
      "[T, N], i32 [T] -> [T, N] on all: row t of the rank whose [first, first + count) has ids[t]; ids below `of`; "
      "any type");
  ops.add("own_groups(Index starts, *, int first, int count) -> Tensor", infer_own_groups,
          "[E + 1] -> [count + 1]: the borders of groups [first, first + count)");
  ops.add("own_slots(Index slots, Index rows) -> Tensor", infer_own_indices,
          "i32 [T], [2] -> i32 [T]: slots[t] where rows[0] <= t < rows[1], else -1");
  ops.add("own_cu_seqlens(Index cu_seqlens, Index rows) -> Tensor", infer_own_indices,
          "i32 [N], [2] -> i32 [N]: cu_seqlens[n], not below rows[0] and not above rows[1]");
  ops.add("gather_groups(Tensor x, Index starts, *, int first, int of) -> Tensor : collective", infer_gather_groups,
          "[S, n], i32 [G + 1] on each rank -> [S, of] on all: rows [starts[0], starts[G]) and columns "
          "[first, first + n) are this rank's; no other rank has them, and rows of no rank are undefined; any type");
  ops.add(
      "gather_marked(Tensor x, Tensor here, *, int first, int of) -> Tensor : collective", infer_gather_marked,
      "[T, n], i32 [T] on each rank -> [T, of] on all: rows t with here[t] = 1, else 0, and columns [first, first + "
      "n) are this rank's; no other rank has them, and rows of no rank are zero; any type");
  ops.add(
      "own_rows(Index token, Index starts, *, int first, int count, int top_k) -> (Tensor, Tensor)", infer_own_rows,
      "i32 [T k], [E + 1] -> i32 [T m], i32 [count + 1]: of rows sorted by expert those of experts [first, first + "
      "count), and their borders from 0; m = min(top_k, count) is the most of a token, rows left over are undefined");
  ops.add(
      "combine_over_ranks(Tensor y, Tensor weights, Index place, Index experts, Index starts, *, int first, int count, "
      "int ways) -> Tensor : collective",
      infer_combine_over_ranks,
      "[T m, N] on each rank, f32 [T, k], i32 [T, k], i32 [T, k], i32 [E + 1] -> [T, ways N] on all: moe_combine, "
      "where "
      "the row of a choice is on the ranks that have its expert, at place[t, j] - starts[first]; experts are shared "
      "out "
      "in order, as evenly as they can be, over parts of `ways` ranks, of which each has N columns, in order");
  ops.add(
      "dispatch_over_ranks(Tensor x, Index experts, *, int first, int count, int groups, int symbol) -> (Tensor, "
      "Tensor, "
      "Tensor, Tensor) : collective",
      infer_dispatch_over_ranks,
      "[T, H], i32 [T, k] -> [D m, H], i32 [count + 1], i32 [D m, 144], i32 [E]: the rows that chose experts [first, "
      "first + count), in their order, the borders of these, and what the ranks tell each other of them; each rank "
      "sends "
      "its share of the tokens, which are D in all: T, rounded up to a multiple of the ranks");
  ops.add(
      "dispatch_quantised(Tensor x, Index experts, *, int first, int count, int groups, int symbol) -> (Tensor, "
      "Tensor, Tensor, Tensor, Tensor) : collective",
      infer_dispatch_quantised,
      "[T, H], i32 [T, k] -> i8 [D m, H], f32 [D m, 1], i32 [count + 1], i32 [D m, 144], i32 [E]: dispatch_over_ranks "
      "of the two results of quantize_dynamic(x); each rank quantises its share of the tokens");
  ops.add(
      "combine_dispatched(Tensor y, Tensor weights, Index experts, Tensor sent, Tensor counts) -> Tensor : collective",
      infer_combine_dispatched,
      "[D m, N] on each rank, f32 [T, k], i32 [T, k], i32 [D m, 144], i32 [E] -> [T, N] on all: moe_combine of the "
      "rows "
      "that dispatch_over_ranks or dispatch_quantised brought; each rank adds those of its share of the tokens");
  ops.add(
      "gather_columns(Tensor x, *, int way, floats borders) -> Tensor : collective", infer_gather_columns,
      "[S, n] on each of some ranks in order, which have the same rows -> [S, N] on these: rank `way` of them has the "
      "columns between two borders; other ranks exchange theirs meanwhile; any type");
  ops.add("sum_parts(Rows x, Rows own, Tensor? bias, *, int parts, int place, str out) -> Tensor", infer_sum_parts,
          "f32 [T, parts N], f32 [T, N], [N]? -> [T, N]: the sum of the parts of a row, from the first to the last (+ "
          "bias), in fp32, rounded once to `out`; part `place` is read from `own`, which is nearer");
  ops.add(
      "all_reduce(Rows x, Tensor? bias) -> Tensor : collective", infer_all_reduce,
      "[T, N] on each rank, [N]? -> [T, N] on all: x of rank 0 + x of rank 1 + ... (+ bias), in fp32, rounded once");
  ops.add("argmax_pairs(Tensor x, Tensor ids, *, int first) -> Tensor", infer_argmax_pairs,
          "f32 [L, V], i32 [L] -> i32 [L, 2]: the bits of x[l, ids[l]], and first + ids[l]");
  ops.add(
      "merge_argmax(Tensor pairs) -> Tensor", infer_merge_argmax,
      "i32 [L, 2 n] -> i32 [L]: of n pairs (bits of a value, id) the id of the largest value, of the first such pair "
      "on ties; NaN is never larger");
}

}  // namespace reprise
