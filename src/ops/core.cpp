#include "ops/core.h"

#include "ops/collectives.h"
#include "ops/draw.h"
#include "ops/draws.h"
#include "ops/encoder.h"
#include "ops/experts.h"
#include "ops/kernel.h"
#include "ops/logit_edit.h"
#include "ops/lora.h"
#include "ops/recurrent.h"
#include "ops/want.h"

namespace reprise {
namespace {

Result<Types> infer_prefetch(const OpCall& c) {
  for (int i = 0; i < c.in[0].shape.rank(); ++i) RETURN_IF_ERROR(want_constant(c, 0, i));
  const int64_t first = c.attrs->integer("first"), bytes = c.attrs->integer("bytes");
  const int64_t all = c.in[0].shape.elements(LiveSizes{}) * static_cast<int64_t>(size_of(c.in[0].dtype));
  if (first < 0 || bytes <= 0 || first > all || bytes > all - first)
    return invalid("{}: bytes {} from {} on; the parameter has {}", describe(c), bytes, first, all);
  if (c.attrs->integer("rows") < 0)
    return invalid("{}: rows {}; allowed: 0 (any number), numbers above it", describe(c), c.attrs->integer("rows"));
  return Types{};
}

Result<Types> infer_embedding(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_index(c, 1));
  return Types{{c.in[0].dtype, {c.in[1].shape[0], c.in[0].shape[1]}}};
}

Result<Types> infer_linear(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_same_dtype(c, 0, 1));
  RETURN_IF_ERROR(want_constant(c, 1, 0));
  RETURN_IF_ERROR(want_constant(c, 1, 1));
  RETURN_IF_ERROR(want_dim(c, 0, 1, c.in[1].shape[1], "weight's inner size"));
  if (c.in.size() > 2) {
    RETURN_IF_ERROR(want_rank(c, 2, 1, 1));
    RETURN_IF_ERROR(want_same_dtype(c, 2, 1));
    RETURN_IF_ERROR(want_dim(c, 2, 0, c.in[1].shape[0], "weight's number of rows"));
  }
  DType out = c.in[0].dtype;
  if (const std::string& name = c.attrs->text("out"); name != "same") {
    ASSIGN_OR_RETURN(out, parse_dtype(name));
  }
  RETURN_IF_ERROR(want_shard(c));
  return Types{{out, {c.in[0].shape[0], c.in[1].shape[0]}}};
}

Result<Types> infer_linear_blocks(const OpCall& c) {
  ASSIGN_OR_RETURN(const int64_t width, want_blocks(c, 1));
  for (size_t i : {0, 1}) RETURN_IF_ERROR(want_rank(c, i, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_dim(c, 0, 1, Dim(width), "weight's inner size"));
  if (c.in.size() > 2) {
    RETURN_IF_ERROR(want_rank(c, 2, 1, 1));
    RETURN_IF_ERROR(want_same_dtype(c, 2, 0));
    RETURN_IF_ERROR(want_dim(c, 2, 0, c.in[1].shape[0], "weight's number of rows"));
  }
  DType out = c.in[0].dtype;
  if (const std::string& name = c.attrs->text("out"); name != "same") {
    ASSIGN_OR_RETURN(out, parse_dtype(name));
  }
  RETURN_IF_ERROR(want_activations(c));
  RETURN_IF_ERROR(want_shard(c));
  return Types{{out, {c.in[0].shape[0], c.in[1].shape[0]}}};
}

Result<Types> infer_embedding_blocks(const OpCall& c) {
  ASSIGN_OR_RETURN(const int64_t width, want_blocks(c, 0));
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_index(c, 1));
  if (c.attrs->integer("width") != width)
    return invalid("{}: width {}, but a row of the table has {} numbers", describe(c), c.attrs->integer("width"),
                   width);
  ASSIGN_OR_RETURN(const DType out, parse_dtype(c.attrs->text("out")));
  RETURN_IF_ERROR(want_shard(c));
  return Types{{out, {c.in[1].shape[0], Dim(width)}}};
}

Result<Types> infer_rms_norm(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 3));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_same_dtype(c, 0, 1));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape.back(), "last size of x"));
  if (c.in.size() > 2) {
    RETURN_IF_ERROR(want_rank(c, 2, 1, 1));
    RETURN_IF_ERROR(want_same_dtype(c, 2, 0));
    RETURN_IF_ERROR(want_dim(c, 2, 0, c.in[0].shape.back(), "last size of x"));
  }
  return Types{c.in[0]};
}

Result<Types> infer_rms_norm_centred(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  return infer_rms_norm(c);
}

Result<Types> infer_unit_rms_norm(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 3));
  RETURN_IF_ERROR(want_float(c, 0));
  return Types{c.in[0]};
}

// A weight for each number of a vector, or for each of all heads.
Result<Types> infer_layer_norm(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 3));
  RETURN_IF_ERROR(want_float(c, 0));
  const Shape& x = c.in[0].shape;
  for (size_t i = 1; i < c.in.size(); ++i) {
    RETURN_IF_ERROR(want_rank(c, i, 1, x.rank() - 1));
    RETURN_IF_ERROR(want_same_dtype(c, 0, i));
    const int rank = c.in[i].shape.rank();
    for (int d = 0; d < rank; ++d) RETURN_IF_ERROR(want_dim(c, i, d, x[x.rank() - rank + d], "same of x"));
    if (rank != c.in[1].shape.rank()) return invalid("{}: weight and bias must have the same shape", describe(c));
  }
  return Types{c.in[0]};
}

// Elementwise with a number that must be above 0.
Result<Types> infer_softcap(const OpCall& c) {
  RETURN_IF_ERROR(want_float(c, 0));
  if (!(c.attrs->number("cap") > 0))
    return invalid("{}: cap {}; allowed: numbers above 0", describe(c), c.attrs->number("cap"));
  return Types{c.in[0]};
}

Result<Types> infer_swiglu_clamped(const OpCall& c) {
  RETURN_IF_ERROR(want_float(c, 0));
  if (!same_type(c.in[0], c.in[1])) return invalid("{}: the operands must have the same type", describe(c));
  if (!(c.attrs->number("limit") > 0))
    return invalid("{}: limit {}; allowed: numbers above 0", describe(c), c.attrs->number("limit"));
  return Types{c.in[0]};
}

Result<Types> infer_rope_table(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 1, 1));
  RETURN_IF_ERROR(want_index(c, 0));
  const int64_t dim = c.attrs->integer("dim");
  if (dim <= 0 || dim % 2 != 0) return invalid("rope_table: dim {} must be even and positive", dim);
  const auto& freq = c.attrs->numbers("inv_freq");
  if (static_cast<int64_t>(freq.size()) != dim / 2)
    return invalid("rope_table: inv_freq has {} numbers, expected dim/2 = {}", freq.size(), dim / 2);
  return Types{{DType::F32, {c.in[0].shape[0], Dim(dim)}}};
}

Result<Types> infer_position_scale(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 1, 1));
  RETURN_IF_ERROR(want_index(c, 0));
  if (c.attrs->numbers("factors").empty() || c.attrs->integer("period") < 1)
    return invalid("{}: {} factors of {} positions each; allowed: 1 or more of 1 or more", describe(c),
                   c.attrs->numbers("factors").size(), c.attrs->integer("period"));
  RETURN_IF_ERROR(want_range(c, "offset", 0, 1));
  return Types{{DType::F32, {c.in[0].shape[0], Dim(1)}}};
}

// The table as rope_table makes it, or as rope_angles converts it for kernels that take that.
Status want_angles(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  const Dim tokens = c.in[0].shape[0];
  if (c.in[1].dtype == DType::F32) return want_dim(c, 1, 0, tokens, "number of tokens");
  RETURN_IF_ERROR(want_same_dtype(c, 1, 0));
  const Dim planes(2 * tokens.factor, tokens.symbol);
  return same_dim(c.in[1].shape[0], planes) ? Status::ok() : want_dim(c, 1, 0, tokens, "number of tokens");
}

Result<Types> infer_rope_angles(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::F32));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_range(c, "planes", 0, 1));
  ASSIGN_OR_RETURN(const DType out, parse_dtype(c.attrs->text("out")));
  const Shape& s = c.in[0].shape;
  if (c.attrs->integer("planes") == 0) return Types{{out, s}};
  return Types{{out, {Dim(2 * s[0].factor, s[0].symbol), s[1]}}};
}

Result<Types> infer_rope(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 3, 3));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_angles(c));
  if (const int64_t way = c.attrs->integer("interleaved"); way != 0 && way != 1)
    return invalid("{}: interleaved {}; allowed: 0, 1", describe(c), way);
  if (c.in[1].shape[1].factor > c.in[0].shape[2].factor)
    return invalid("{}: the table rotates more dimensions than the head has", describe(c));
  return Types{c.in[0]};
}

Result<Types> infer_index_i64(const OpCall& c) {
  RETURN_IF_ERROR(want_dtype(c, 0, DType::I32));
  return Types{{DType::I64, c.in[0].shape}};
}

Result<Types> infer_same(const OpCall& c) {  // elementwise, one or two operands of one type
  RETURN_IF_ERROR(want_float(c, 0));
  for (size_t i = 1; i < c.in.size(); ++i)
    if (!same_type(c.in[0], c.in[i])) return invalid("{}: the operands must have the same type", describe(c));
  return Types{c.in[0]};
}

Result<Types> infer_heads(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  const int64_t size = c.attrs->integer("size"), width = c.in[0].shape[1].factor;
  if (size <= 0 || width % size != 0)
    return invalid("{}: head size {} does not divide the width {}", describe(c), size, width);
  return Types{{c.in[0].dtype, {c.in[0].shape[0], Dim(width / size), Dim(size)}}};
}

Result<Types> infer_flatten(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 3, 3));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_constant(c, 0, 2));
  return Types{{c.in[0].dtype, {c.in[0].shape[0], Dim(c.in[0].shape[1].factor * c.in[0].shape[2].factor)}}};
}

// kv is [P, 2, G, kPageTokens, D], of i8 D + 4; how keys and values lie inside one (page, k/v, head) block is the
// device's own.
Status want_kv(const OpCall& c, size_t i) {
  RETURN_IF_ERROR(want_rank(c, i, 5, 5));
  const Shape& s = c.in[i].shape;
  if (!same_dim(s[1], Dim(2)) || !same_dim(s[3], Dim(kPageTokens)))
    return invalid("{}: a KV cache has the shape [pages, 2, heads, {}, head size]", describe(c), kPageTokens);
  if (c.in[i].dtype == DType::I8) {
    if (!s[4].is_constant() || s[4].factor <= kv_row(DType::I8, 0))
      return invalid("{}: a row of an int8 KV cache has the head size and {} bytes of its scale", describe(c),
                     kv_row(DType::I8, 0));
  } else if (!is_float(c.in[i].dtype)) {
    return invalid("{}: a KV cache of {}; allowed: floats, i8", describe(c), dtype_name(c.in[i].dtype));
  }
  return Status::ok();
}

Result<Types> infer_kv_write(const OpCall& c) {
  RETURN_IF_ERROR(want_kv(c, 0));
  RETURN_IF_ERROR(want_rank(c, 3, 1, 1));
  RETURN_IF_ERROR(want_index(c, 3));
  for (size_t i : {1, 2}) {
    RETURN_IF_ERROR(want_rank(c, i, 3, 3));
    RETURN_IF_ERROR(want_dim(c, i, 0, c.in[3].shape[0], "number of slots"));
    RETURN_IF_ERROR(want_dim(c, i, 1, c.in[0].shape[2], "cache's number of heads"));
    RETURN_IF_ERROR(want_dim(c, i, 2, kv_head_size(c.in[0]), "cache's head size"));
  }
  RETURN_IF_ERROR(want_same_dtype(c, 1, 2));
  return Types{c.in[0]};
}

Result<Types> infer_paged_attention(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 3, 3));
  RETURN_IF_ERROR(want_kv(c, 1));
  RETURN_IF_ERROR(want_rank(c, 2, 2, 2));
  RETURN_IF_ERROR(want_rank(c, 3, 1, 1));
  RETURN_IF_ERROR(want_rank(c, 4, 1, 1));
  for (size_t i : {2, 3, 4}) RETURN_IF_ERROR(want_index(c, i));
  RETURN_IF_ERROR(want_dim(c, 3, 0, c.in[2].shape[0], "number of sequences"));
  RETURN_IF_ERROR(want_dim(c, 0, 2, kv_head_size(c.in[1]), "cache's head size"));
  if (!(c.attrs->number("softcap") >= 0))
    return invalid("{}: softcap {}; allowed: 0 (none), numbers above it", describe(c), c.attrs->number("softcap"));
  RETURN_IF_ERROR(want_window_or_chunk(c));
  const Dim h = c.in[0].shape[1], g = c.in[1].shape[2];
  if (!h.is_constant() || !g.is_constant() || g.factor <= 0 || h.factor % g.factor != 0)
    return invalid("{}: {} query heads are not a multiple of {} key/value heads", describe(c), h.factor, g.factor);
  if (c.in.size() > 5) {
    RETURN_IF_ERROR(want_rank(c, 5, 1, 1));
    RETURN_IF_ERROR(want_dtype(c, 5, DType::F32));
    RETURN_IF_ERROR(want_dim(c, 5, 0, h, "number of query heads"));
  }
  return Types{c.in[0]};
}

Result<Types> infer_index_select(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_index(c, 1));
  return Types{{c.in[0].dtype, {c.in[1].shape[0], c.in[0].shape[1]}}};
}

Result<Types> infer_concat(const OpCall& c) {
  for (size_t i : {0, 1}) {
    RETURN_IF_ERROR(want_rank(c, i, 2, 2));
    RETURN_IF_ERROR(want_constant(c, i, 1));
  }
  RETURN_IF_ERROR(want_same_dtype(c, 1, 0));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows"));
  return Types{{c.in[0].dtype, {c.in[0].shape[0], Dim(c.in[0].shape[1].factor + c.in[1].shape[1].factor)}}};
}

Result<Types> infer_slice(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 3));
  RETURN_IF_ERROR(want_constant(c, 0, c.in[0].shape.rank() - 1));
  const int64_t begin = c.attrs->integer("begin"), size = c.attrs->integer("size"), width = c.in[0].shape.back().factor;
  if (begin < 0 || size <= 0 || size > width || begin > width - size)
    return invalid("{}: columns [{}, {} + {}) are not inside the width {}", describe(c), begin, begin, size, width);
  TensorType out = c.in[0];
  out.shape[out.shape.rank() - 1] = Dim(size);
  return Types{out};
}

Result<Types> infer_copy(const OpCall& c) { return Types{c.in[0]}; }

Result<Types> infer_quantize_static(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  for (size_t i : {1, 2}) {
    RETURN_IF_ERROR(want_rank(c, i, 1, 1));
    RETURN_IF_ERROR(want_dtype(c, i, DType::F32));
    if (!same_dim(c.in[i].shape[0], Dim(1)))
      RETURN_IF_ERROR(want_dim(c, i, 0, c.in[0].shape[1], "row size of x, or 1"));
  }
  return Types{{DType::I8, c.in[0].shape}};
}

Result<Types> infer_add_rms_norm_quant_divided(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  for (size_t i : {1, 2}) RETURN_IF_ERROR(want_same_dtype(c, 0, i));
  for (int d : {0, 1}) RETURN_IF_ERROR(want_dim(c, 1, d, c.in[0].shape[d], "same of x"));
  for (size_t i : {2, 3, 4}) {
    RETURN_IF_ERROR(want_rank(c, i, 1, 1));
    RETURN_IF_ERROR(want_dim(c, i, 0, c.in[0].shape[1], "row size of x"));
  }
  return Types{{DType::I8, c.in[0].shape}, c.in[0]};
}

Result<Types> infer_quantize_dynamic(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  return Types{{DType::I8, c.in[0].shape}, {DType::F32, {c.in[0].shape[0], Dim(1)}}};
}

// One number of this dtype per row of the weight.
Status want_per_row_of(const OpCall& c, size_t weight, size_t i, DType t) {
  RETURN_IF_ERROR(want_rank(c, i, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, i, t));
  return want_dim(c, i, 0, c.in[weight].shape[0], "weight's number of rows");
}

// Operands x and `weight`, `scale` behind it, and `add` last; the rest is checked by the callers.
Result<Types> infer_linear_w8a8(const OpCall& c, size_t weight, size_t add) {
  for (size_t i : {size_t{0}, weight}) {
    RETURN_IF_ERROR(want_rank(c, i, 2, 2));
    RETURN_IF_ERROR(want_dtype(c, i, DType::I8));
  }
  for (int d : {0, 1}) RETURN_IF_ERROR(want_constant(c, weight, d));
  RETURN_IF_ERROR(want_dim(c, 0, 1, c.in[weight].shape[1], "weight's inner size"));
  if (c.in[weight].shape[1].factor > kMaxW8A8Depth)
    return invalid("{}: an inner size above {} may overflow the int32 sums", describe(c), kMaxW8A8Depth);
  RETURN_IF_ERROR(want_per_row_of(c, weight, weight + 1, DType::F32));
  if (c.in.size() > add) RETURN_IF_ERROR(want_per_row_of(c, weight, add, DType::F32));
  RETURN_IF_ERROR(want_shard(c));
  ASSIGN_OR_RETURN(const DType out, parse_dtype(c.attrs->text("out")));
  if (out != DType::F32 && out != DType::BF16 && out != DType::F16)
    return invalid("{}: out {}; allowed: f32, bf16, f16", describe(c), dtype_name(out));
  return Types{{out, {c.in[0].shape[0], c.in[weight].shape[0]}}};
}

Result<Types> infer_linear_w8a8_static(const OpCall& c) {
  ASSIGN_OR_RETURN(Types out, infer_linear_w8a8(c, 1, 4));
  RETURN_IF_ERROR(want_per_row_of(c, 1, 3, DType::I32));
  return out;
}

Result<Types> infer_linear_w8a8_dynamic(const OpCall& c) {
  ASSIGN_OR_RETURN(Types out, infer_linear_w8a8(c, 2, 4));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::F32));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of x"));
  RETURN_IF_ERROR(want_dim(c, 1, 1, Dim(1), "one scale per row"));
  return out;
}

// argmax, finite_rows
Result<Types> infer_number_per_row(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  return Types{{DType::I32, {c.in[0].shape[0]}}};
}

Result<Types> infer_mask_logits(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::F32));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 1, 1, Dim(kEditWords), "what a LogitEdit takes"));
  RETURN_IF_ERROR(want_rank(c, 2, 1, 1));
  RETURN_IF_ERROR(want_dtype(c, 2, DType::I32));
  return Types{{DType::F32, {c.in[1].shape[0], c.in[0].shape[1]}}};
}

Result<Types> infer_sample(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::F32));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::I32));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of logits"));
  RETURN_IF_ERROR(want_dim(c, 1, 1, Dim(kDrawWords), "what a Draw takes"));
  if (c.in.size() > 2) {
    RETURN_IF_ERROR(want_rank(c, 2, 2, 2));
    RETURN_IF_ERROR(want_dtype(c, 2, DType::F32));
    RETURN_IF_ERROR(want_dim(c, 2, 1, c.in[0].shape[1], "number of columns of logits"));
  }
  const Dim rows = c.in[0].shape[0];
  return Types{{DType::I32, {rows}},
               {DType::F32, {rows}},
               {DType::I32, {rows, Dim(kMostTopTokens)}},
               {DType::F32, {rows, Dim(kMostTopTokens)}}};
}

void add_products(OpRegistry& ops) {
  ops.add("input(*, str name) -> Tensor : input", nullptr, "a tensor staged by the engine before each step");
  ops.add("param(*, str name) -> Tensor : param", nullptr, "a tensor of the checkpoint, by its name there");
  ops.add("prefetch(Tensor param, *, int first, int bytes, int rows = 0) -> () : hint", infer_prefetch,
          "asks for `bytes` of a parameter, as the device stores it, from byte `first` on: they may lie in its cache "
          "when they are read; rows > 0: graphs of more rows than that leave it out");
  ops.add("embedding(Table table, Index ids, *, str shard = none) -> Tensor", infer_embedding,
          "[V, N], [T] -> [T, N]: row ids[t] of the table; an id outside [0, V) gives zeros");
  ops.add("linear(Rows x, Weight weight, Tensor? bias, *, str out = same, str shard = none) -> Tensor : linear",
          infer_linear,
          "[T, K], [N, K], [N]? -> [T, N]: x weight^T + bias, summed over K in ascending order in fp32, rounded once");
  ops.add(
      "linear_blocks(Rows x, Weight weight, Tensor? bias, *, str format, str activations = same, str out = same, "
      "str shard = none) -> Tensor : linear",
      infer_linear_blocks,
      "[T, K], u8 [N, bytes of a row], [N]? -> [T, N]: linear with a weight in GGUF blocks (format q8_0, q4_0, "
      "q4_1, q5_0, q5_1, mxfp4, q2_k to q6_k, iq4_nl or iq4_xs), summed in fp32: each number times its factor, or in "
      "bf16 by blocks (sum_order.cpp); activations int8: each 32 numbers of x are first rounded to integers of 8 bits "
      "times the largest magnitude / 127");
  ops.add("embedding_blocks(Table table, Index ids, *, str format, int width, str out, str shard = none) -> Tensor",
          infer_embedding_blocks,
          "u8 [V, bytes of a row], [T] -> [T, width]: embedding with a table in GGUF blocks, rounded once to `out`");
}

void add_elements(OpRegistry& ops) {
  ops.add("rms_norm(Rows x, Tensor weight, Tensor? bias, *, float eps) -> Tensor : vectors", infer_rms_norm,
          "x / sqrt(mean(x^2 over the last size) + eps) * weight (+ bias), in fp32, rounded once");
  ops.add("unit_rms_norm(Rows x, *, float eps) -> Tensor : vectors", infer_unit_rms_norm,
          "x / sqrt(mean of x^2 over the last size + eps): rms_norm without a weight, in fp32, rounded once");
  ops.add("rms_norm_centred(Rows x, Tensor weight, *, float eps) -> Tensor : vectors", infer_rms_norm_centred,
          "x / sqrt(mean(x^2 over the last size) + eps) * (1 + weight), in fp32, rounded once");
  ops.add("layer_norm(Rows x, Tensor weight, Tensor? bias, *, float eps) -> Tensor : vectors", infer_layer_norm,
          "(x - mean) / sqrt(variance over the last size + eps) * weight (+ bias), in fp32, rounded once; of "
          "[T, H, D] weight and bias are [D], or [H, D]");
  ops.add(
      "rope_table(Index positions, *, int dim, floats inv_freq, float scale = 1, float ntk_base = 0, "
      "float ntk_factor = 0, int ntk_window = 0) -> Tensor",
      infer_rope_table,
      "[T] -> [T, dim] f32: cos(pos * inv_freq) * scale, then sin(...) * scale, dim/2 each; ntk_*: dynamic NTK, "
      "where positions from ntk_window on use inv_freq of their own length");
  ops.add("rope_angles(Tensor table, *, str out, int planes = 0) -> Tensor : device_form", infer_rope_angles,
          "[T, rot] f32 -> [T, rot]: rope_table's numbers rounded to `out`; planes: [2 T, rot], cosines of all tokens, "
          "then sines, each at i and at i + rot/2");
  ops.add("position_scale(Index positions, *, floats factors, int period, int offset = 0) -> Tensor",
          infer_position_scale,
          "[T] -> [T, 1] f32: factors[(p + offset) / period] of each position p; behind the list its last one");
  ops.add("index_i64(Tensor x) -> Tensor : device_form", infer_index_i64, "i32 -> i64: the same numbers");
  ops.add(
      "rope(Tensor x, Tensor table, *, int interleaved = 0) -> Tensor : vectors", infer_rope,
      "[T, H, D], [T, rot] f32 -> [T, H, D]: rotates pairs (i, i + rot/2), interleaved (2 i, 2 i + 1) with results at "
      "(i, i + rot/2), of the first rot dimensions, fp32, rounded once");
  ops.add("add(Rows a, Rows b) -> Tensor : commutes columns", infer_same, "a + b in fp32, rounded once");
  ops.add("mul(Rows a, Rows b) -> Tensor : commutes columns", infer_same, "a * b in fp32, rounded once");
  ops.add("silu(Rows x) -> Tensor : columns", infer_same, "x / (1 + exp(-x)) in fp32, rounded once");
  ops.add("gelu(Rows x) -> Tensor : columns", infer_same, "x (1 + erf(x / sqrt(2))) / 2 in fp32, rounded once");
  ops.add("relu_squared(Rows x) -> Tensor : columns", infer_same, "max(x, 0)^2 in fp32, rounded once");
  ops.add("gelu_tanh(Rows x) -> Tensor : columns", infer_same,
          "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 in fp32, rounded once");
  ops.add("scale(Rows x, *, float by) -> Tensor : columns", infer_same, "x * by in fp32, rounded once");
  ops.add("swiglu_clamped(Rows gate, Rows up, *, float alpha, float limit) -> Tensor : columns", infer_swiglu_clamped,
          "(u + 1) g / (1 + exp(-alpha g)) in fp32, rounded once, with g = min(gate, limit) and u = up between -limit "
          "and limit");
  ops.add("softcap(Rows x, *, float cap) -> Tensor : columns", infer_softcap,
          "cap * tanh(x / cap) in fp32, rounded once");
  ops.add("heads(Tensor x, *, int size) -> Tensor : view", infer_heads, "[T, H*D] -> [T, H, D], same bytes");
  ops.add("flatten(Tensor x) -> Tensor : view", infer_flatten, "[T, H, D] -> [T, H*D], same bytes");
  ops.add("index_select(Tensor x, Index index) -> Tensor : columns gathers", infer_index_select,
          "[T, N], [R] -> [R, N]: x[index[r]]");
  ops.add("slice(Rows x, *, int begin, int size) -> Tensor : vectors", infer_slice,
          "[T, N] -> [T, size], or [T, H, N] -> [T, H, size]: columns [begin, begin + size), copied");
  ops.add("concat(Rows a, Rows b) -> Tensor", infer_concat,
          "[T, N], [T, M] -> [T, N + M]: the columns of a, then those of b");
  ops.add("copy(Tensor x) -> Tensor : own_bytes", infer_copy, "the same values in bytes of their own; any type");
  ops.add("reciprocal(Tensor x) -> Tensor", infer_same, "1 / x in fp32, rounded once");
}

void add_attention(OpRegistry& ops) {
  ops.add("kv_write(Cache(a!) kv, Tensor k, Tensor v, Index slots) -> Tensor(a) : per_head", infer_kv_write,
          "stores k[t] and v[t] at slot slots[t] = page * 128 + offset; a negative slot is skipped");
  ops.add(
      "paged_attention(Tensor q, Cache kv, Index page_table, Index context_lens, Index cu_seqlens, Tensor? sinks, *, "
      "float scale, int window = 0, float softcap = 0, int chunk = 0) -> Tensor : split_point per_head attends",
      infer_paged_attention,
      "[T, H, D] -> [T, H, D]: causal attention of rows cu_seqlens[r] .. cu_seqlens[r+1] over context_lens[r] keys "
      "(their own included); window > 0: the last `window` keys only; chunk > 0: only keys j with j / chunk = i / "
      "chunk, "
      "where i is the row's position; softcap > 0: scores s become softcap * "
      "tanh(s / softcap) before they are masked; sinks f32 [H]: head h has one more score, sinks[h], that takes its "
      "share of the weights and has no value; reduced over absolute pages of 128 keys in order, the sink last");
}

void add_quantised(OpRegistry& ops) {
  ops.add("quantize_static(Rows x, Tensor scale, Tensor offset) -> Tensor : columns", infer_quantize_static,
          "[T, N], [N] or [1] f32, [N] or [1] f32 -> [T, N] i8: x * scale, then + offset, each rounded to fp32; round "
          "half to even, clamp to [-128, 127]; NaN gives 0");
  ops.add(
      "add_rms_norm_quant_divided(Tensor x, Tensor r, Tensor weight, Tensor divisor, Tensor zero, *, float eps) -> "
      "(Tensor, Tensor)",
      infer_add_rms_norm_quant_divided,
      "[T, N], [T, N], [N], [N], [N] -> i8 [T, N], [T, N]: sum = x + r, its RMS norm / divisor + zero as int8; and the "
      "sum. add_rms_norm_quant_static as a vendor has it: the divisors are bf16 beside bf16, f32 beside f16");
  ops.add(
      "quantize_dynamic(Tensor x) -> (Tensor, Tensor) : vectors row_scales", infer_quantize_dynamic,
      "[T, N] -> [T, N] i8, [T, 1] f32: per row scale = max|x| / 127 and q = x / scale in fp32, round half to even, "
      "clamp to [-128, 127]; a row of zeros gives q 0 and scale 0; NaN gives q 0");
  ops.add(
      "linear_w8a8_static(Tensor x, Weight weight, Tensor scale, Tensor bias, Tensor? add, *, str out, "
      "str shard = none) -> Tensor : linear",
      infer_linear_w8a8_static,
      "i8 [T, K], i8 [N, K], [N] f32, [N] i32, [N]? f32 -> [T, N]: float(x weight^T + bias in int32) * scale (+ add), "
      "each step rounded to fp32, then once to `out`");
  ops.add(
      "linear_w8a8_dynamic(Tensor x, Tensor x_scale, Weight weight, Tensor scale, Tensor? add, *, str out, "
      "str shard = none) -> Tensor : linear",
      infer_linear_w8a8_dynamic,
      "i8 [T, K], [T, 1] f32, i8 [N, K], [N] f32, [N]? f32 -> [T, N]: (float(x weight^T in int32) * scale) * x_scale "
      "(+ add), each step rounded to fp32, then once to `out`");
}

void add_heads(OpRegistry& ops) {
  ops.add("argmax(Tensor x) -> Tensor", infer_number_per_row,
          "[L, V] -> [L] i32: index of the largest value of each row, the smallest index on ties; NaN is never larger");
  ops.add("finite_rows(Tensor x) -> Tensor : device_form", infer_number_per_row,
          "[L, D] -> [L] i32: 1 where every number of the row is finite, else 0");
  ops.add("sample(Tensor logits, Tensor draws, Tensor? edited) -> (Tensor, Tensor, Tensor, Tensor)", infer_sample,
          "[L, V] f32, [L, 10] i32, [E, V]? f32 -> [L] i32, [L] f32, [L, 20] i32, [L, 20] f32: of each row, or of the "
          "edited row that its Draw names (ops/draw.h), a token by that Draw, -1 where a logit is no number; where the "
          "Draw asks for them, the log-probability in the row of that token and of the best ones with their ids, else "
          "0 and -1");
  ops.add(
      "mask_logits(Tensor logits, Tensor edits, Tensor words) -> Tensor", infer_mask_logits,
      "[L, V] f32, [E, 10] i32, [W] i32 -> [E, V] f32: the row of each LogitEdit (ops/logit_edit.h) under the mask, "
      "biases and penalties that lie in words");
}

}  // namespace

void register_core_ops(OpRegistry& ops) {
  add_products(ops);
  add_elements(ops);
  add_attention(ops);
  add_quantised(ops);
  add_heads(ops);
  register_latent_ops(ops);
  register_expert_ops(ops);
  register_encoder_ops(ops);
  register_collective_ops(ops);
  register_draw_ops(ops);
  register_lora_ops(ops);
  register_recurrent_ops(ops);
  for (const auto& [from, to] :
       {std::pair("rows", "index_select"), std::pair("linear_packed", "linear_blocks"),
        std::pair("embedding_packed", "embedding_blocks"), std::pair("lm_head_argmax_packed", "lm_head_argmax_blocks"),
        std::pair("head_linear", "per_head_matmul"), std::pair("head_linear_rows", "per_head_matmul_rows")})
    ops.renamed(from, to);
}

}  // namespace reprise
