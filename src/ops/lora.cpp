#include "ops/lora.h"

#include "ops/kernel.h"
#include "ops/want.h"

namespace reprise {
namespace {

// Ids [T, 1] and the numbers of ranks [S], which both ops have.
Status want_slots(const OpCall& c, size_t ids, size_t ranks, Dim slots) {
  RETURN_IF_ERROR(want_dtype(c, ids, DType::I32));
  RETURN_IF_ERROR(want_rank(c, ids, 2, 2));
  RETURN_IF_ERROR(want_dim(c, ids, 0, c.in[0].shape[0], "number of rows"));
  RETURN_IF_ERROR(want_dim(c, ids, 1, Dim(1), "one id a row"));
  RETURN_IF_ERROR(want_dtype(c, ranks, DType::I32));
  RETURN_IF_ERROR(want_rank(c, ranks, 1, 1));
  return want_dim(c, ranks, 0, slots, "number of slots");
}

// (x, ids, a, ranks, scales)
Result<Types> infer_shrink(const OpCall& c) {
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_rank(c, 2, 3, 3));
  RETURN_IF_ERROR(want_same_dtype(c, 0, 2));
  RETURN_IF_ERROR(want_constant(c, 2, 0));
  RETURN_IF_ERROR(want_constant(c, 2, 1));
  RETURN_IF_ERROR(want_dim(c, 2, 2, c.in[0].shape[1], "number of columns of x"));
  RETURN_IF_ERROR(want_slots(c, 1, 3, c.in[2].shape[0]));
  RETURN_IF_ERROR(want_dtype(c, 4, DType::F32));
  RETURN_IF_ERROR(want_rank(c, 4, 1, 1));
  RETURN_IF_ERROR(want_dim(c, 4, 0, c.in[2].shape[0], "number of slots"));
  return Types{{DType::F32, {c.in[0].shape[0], c.in[2].shape[1]}}};
}

// (y, h, ids, b, ranks)
Result<Types> infer_expand(const OpCall& c) {
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::F32));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of y"));
  RETURN_IF_ERROR(want_rank(c, 3, 3, 3));
  RETURN_IF_ERROR(want_same_dtype(c, 0, 3));
  RETURN_IF_ERROR(want_constant(c, 3, 0));
  RETURN_IF_ERROR(want_constant(c, 3, 2));
  RETURN_IF_ERROR(want_dim(c, 3, 1, c.in[1].shape[1], "number of columns of h"));
  RETURN_IF_ERROR(want_slots(c, 2, 4, c.in[3].shape[0]));
  const int64_t begin = c.attrs->integer("begin"), width = c.in[0].shape[1].factor, columns = c.in[3].shape[2].factor;
  if (begin < 0 || columns > width || begin > width - columns)
    return invalid("{}: columns [{}, {} + {}) are not inside the width {}", describe(c), begin, begin, columns, width);
  return Types{c.in[0]};
}

}  // namespace

void register_lora_ops(OpRegistry& ops) {
  ops.add(
      "lora_shrink(Rows x, Rows ids, Tensor a, Tensor ranks, Tensor scales) -> Tensor", infer_shrink,
      "[T, K], [T, 1] i32, [S, R, K], [S] i32, [S] f32 -> [T, R] f32: scales[s] * (a[s] x) with s = ids - 1, summed "
      "over K in sixteen ascending chains and one fixed tree; zeros where ids is 0 and behind ranks[s]");
  ops.add(
      "lora_expand(Rows(a!) y, Rows h, Rows ids, Tensor b, Tensor ranks, *, int begin = 0) -> Tensor(a) : columns",
      infer_expand,
      "[T, N], [T, R] f32, [T, 1] i32, [S, R, n], [S] i32 -> [T, N]: columns [begin, begin + n) of y + h b[s] with "
      "s = ids - 1, summed over ranks[s] in ascending order in fp32, added, rounded once; where ids or ranks[s] is 0 "
      "the row of y stays as it is");
}

}  // namespace reprise
