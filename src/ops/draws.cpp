#include "ops/draws.h"

#include "ops/draw_math.h"
#include "ops/kernel.h"
#include "ops/logit_edit.h"
#include "ops/want.h"

namespace reprise {
namespace {

// Operand i: [rows, columns] of this type.
Status want_matrix(const OpCall& c, size_t i, DType type) {
  RETURN_IF_ERROR(want_rank(c, i, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, i, type));
  return want_constant(c, i, 1);
}

Status want_draws(const OpCall& c, size_t i, Dim rows) {
  RETURN_IF_ERROR(want_matrix(c, i, DType::I32));
  RETURN_IF_ERROR(want_dim(c, i, 0, rows, "number of rows of logits"));
  return want_dim(c, i, 1, Dim(kDrawWords), "what a Draw takes");
}

// Operand i: a number of each rank for each row.
Status want_tops(const OpCall& c, size_t i, Dim rows) {
  RETURN_IF_ERROR(want_matrix(c, i, DType::F32));
  return want_dim(c, i, 0, rows, "number of rows of logits");
}

// Operand i: a number of each block for each row.
Status want_sums(const OpCall& c, size_t i, Dim rows) {
  RETURN_IF_ERROR(want_tops(c, i, rows));
  return want_dim(c, i, 1, Dim(draw::blocks(c.attrs->integer("of"), draw::kBlock)), "number of blocks of a row");
}

// The optional last operand.
Status want_edited(const OpCall& c, size_t i) {
  if (c.in.size() <= i) return Status::ok();
  RETURN_IF_ERROR(want_matrix(c, i, DType::F32));
  return want_dim(c, i, 1, c.in[0].shape[1], "number of columns of logits");
}

// Columns [first, first + those of operand 0) of `of`, in whole blocks but for the end of the row.
Status want_columns(const OpCall& c) {
  const int64_t first = c.attrs->integer("first"), of = c.attrs->integer("of"), count = c.in[0].shape[1].factor;
  if (first < 0 || count > of || first > of - count)
    return invalid("{}: columns [{}, {} + {}) are not inside the {} of all ranks", describe(c), first, first, count,
                   of);
  if (first % draw::kBlock != 0 || (count % draw::kBlock != 0 && first + count != of))
    return invalid("{}: columns [{}, {} + {}) of {} are no whole blocks of {}", describe(c), first, first, count, of,
                   draw::kBlock);
  return Status::ok();
}

Result<Types> infer_mask_own_logits(const OpCall& c) {
  RETURN_IF_ERROR(want_matrix(c, 0, DType::F32));
  RETURN_IF_ERROR(want_matrix(c, 1, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 1, 1, Dim(kEditWords), "what a LogitEdit takes"));
  RETURN_IF_ERROR(want_rank(c, 2, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 2, DType::I32));
  RETURN_IF_ERROR(want_range(c, "first", 0, INT32_MAX));
  if (c.attrs->integer("first") % 32 != 0)
    return invalid("{}: first is {}; allowed: multiples of 32, the bits of a word", describe(c),
                   c.attrs->integer("first"));
  return Types{{DType::F32, {c.in[1].shape[0], c.in[0].shape[1]}}};
}

Result<Types> infer_draw_tops(const OpCall& c) {
  RETURN_IF_ERROR(want_matrix(c, 0, DType::F32));
  RETURN_IF_ERROR(want_draws(c, 1, c.in[0].shape[0]));
  RETURN_IF_ERROR(want_edited(c, 2));
  return Types{{DType::F32, {c.in[0].shape[0], Dim(1)}}};
}

Result<Types> infer_draw_sums(const OpCall& c) {
  RETURN_IF_ERROR(want_matrix(c, 0, DType::F32));
  const Dim rows = c.in[0].shape[0];
  RETURN_IF_ERROR(want_draws(c, 1, rows));
  RETURN_IF_ERROR(want_tops(c, 2, rows));
  RETURN_IF_ERROR(want_edited(c, 3));
  RETURN_IF_ERROR(want_range(c, "of", c.in[0].shape[1].factor, INT32_MAX));
  return Types{{DType::F32, {rows, Dim(draw::blocks(c.in[0].shape[1].factor, draw::kBlock))}}};
}

Result<Types> infer_draw_best(const OpCall& c) {
  RETURN_IF_ERROR(want_matrix(c, 0, DType::F32));
  const Dim rows = c.in[0].shape[0];
  RETURN_IF_ERROR(want_columns(c));
  RETURN_IF_ERROR(want_range(c, "most", 1, INT32_MAX / 2 - 1));
  RETURN_IF_ERROR(want_draws(c, 1, rows));
  RETURN_IF_ERROR(want_tops(c, 2, rows));
  RETURN_IF_ERROR(want_sums(c, 3, rows));
  RETURN_IF_ERROR(want_edited(c, 4));
  return Types{{DType::I32, {rows, Dim(2 + 2 * c.attrs->integer("most"))}}};
}

Result<Types> infer_merge_draws(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  const Dim rows = c.in[0].shape[0];
  RETURN_IF_ERROR(want_draws(c, 0, rows));
  RETURN_IF_ERROR(want_tops(c, 1, rows));
  RETURN_IF_ERROR(want_range(c, "of", 1, INT32_MAX));
  RETURN_IF_ERROR(want_sums(c, 2, rows));
  RETURN_IF_ERROR(want_matrix(c, 3, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 3, 0, rows, "number of rows of logits"));
  const int64_t ranks = c.in[1].shape[1].factor, words = c.in[3].shape[1].factor;
  if (ranks < 1 || words % ranks != 0 || words / ranks % 2 != 0 || words / ranks < 4)
    return invalid("{}: {} words are not as many pairs of each of {} ranks, at least 2", describe(c), words, ranks);
  return Types{{DType::I32, {rows}}};
}

Status want_tokens(const OpCall& c, size_t i, Dim rows) {
  RETURN_IF_ERROR(want_rank(c, i, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, i, DType::I32));
  return want_dim(c, i, 0, rows, "number of rows of logits");
}

Result<Types> infer_gather_undecided(const OpCall& c) {
  RETURN_IF_ERROR(want_matrix(c, 0, DType::F32));
  RETURN_IF_ERROR(want_tokens(c, 1, c.in[0].shape[0]));
  RETURN_IF_ERROR(want_columns(c));
  return Types{{DType::F32, {c.in[0].shape[0], Dim(c.attrs->integer("of"))}}};
}

Result<Types> infer_sample_undecided(const OpCall& c) {
  RETURN_IF_ERROR(want_matrix(c, 0, DType::F32));
  const Dim rows = c.in[0].shape[0];
  RETURN_IF_ERROR(want_draws(c, 1, rows));
  RETURN_IF_ERROR(want_tokens(c, 2, rows));
  RETURN_IF_ERROR(want_matrix(c, 3, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 3, 1, Dim(kEditWords), "what a LogitEdit takes"));
  RETURN_IF_ERROR(want_rank(c, 4, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 4, DType::I32));
  return Types{{DType::I32, {rows}},
               {DType::F32, {rows}},
               {DType::I32, {rows, Dim(kMostTopTokens)}},
               {DType::F32, {rows, Dim(kMostTopTokens)}}};
}

}  // namespace

void register_draw_ops(OpRegistry& ops) {
  ops.add("mask_own_logits(Tensor logits, Tensor edits, Tensor words, *, int first) -> Tensor", infer_mask_own_logits,
          "[L, n] f32, [E, 10] i32, [W] i32 -> [E, n] f32: columns [first, first + n) of mask_logits of whole rows");
  ops.add("draw_tops(Tensor logits, Tensor draws, Tensor? edited) -> Tensor", infer_draw_tops,
          "[L, n] f32, [L, 10] i32, [E, n]? f32 -> [L, 1] f32: the largest logit of each row, or of the edited row "
          "that its Draw names (ops/draw.h); NaN where one is no number");
  ops.add("draw_sums(Tensor logits, Tensor draws, Tensor tops, Tensor? edited, *, int of) -> Tensor", infer_draw_sums,
          "[L, n] f32, [L, 10] i32, [L, ranks] f32, [E, n]? f32 -> [L, blocks of n] f32: the weights of the columns of "
          "a row of `of`, relative to the largest of tops, by blocks of 256; 0 where its Draw needs none");
  ops.add(
      "draw_best(Tensor logits, Tensor draws, Tensor tops, Tensor sums, Tensor? edited, *, int first, int of, int "
      "most) -> Tensor",
      infer_draw_best,
      "[L, n] f32, [L, 10] i32, [L, ranks] f32, [L, blocks of `of`] f32, [E, n]? f32 -> [L, 2 + 2 most] i32: of "
      "columns [first, first + n) what may be drawn: a count, whether there is more, then pairs (bits of the logit, "
      "id), the best first");
  ops.add("merge_draws(Tensor draws, Tensor tops, Tensor sums, Tensor best, *, int of) -> Tensor", infer_merge_draws,
          "[L, 10] i32, [L, ranks] f32, [L, blocks of `of`] f32, [L, ranks (2 + 2 most)] i32 -> [L] i32: the token of "
          "each row as sample has it, -2 where what the ranks have sent does not decide it");
  ops.add("gather_undecided(Tensor x, Tensor tokens, *, int first, int of) -> Tensor : collective",
          infer_gather_undecided,
          "[L, n], [L] i32 on each rank -> [L, of] on all: row i is the i-th one whose token is -2; this rank's "
          "columns are [first, first + n), and further rows are undefined");
  ops.add(
      "sample_undecided(Tensor logits, Tensor draws, Tensor tokens, Tensor edits, Tensor words) -> (Tensor, Tensor, "
      "Tensor, Tensor)",
      infer_sample_undecided,
      "[L, V] f32, [L, 10] i32, [L] i32, [E, 10] i32, [W] i32 -> as sample: the tokens, and in the place of -2 what "
      "sample gives for that row, which mask_logits changes first where its Draw says so");
}

}  // namespace reprise
