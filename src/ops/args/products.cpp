#include "ops/args/products.h"

#include "base/block_format.h"
#include "ops/args/rows.h"
#include "ops/block_activations.h"

namespace reprise {
namespace {

// Rows of x, columns by depth of the weight.
ProductShape shape_of(const TensorType& x, const TensorType& weight) {
  const Shape& w = weight.shape;
  return {x.shape[0], w.back().factor, w[w.rank() - 2].factor};
}

BlockFormat format_of(const OpCall& c) { return *find_block_format(c.attrs->text("format")); }

void fill_packed(const OpCall& c, auto& a) {
  a.shape = {c.in[0].shape[0], c.in[0].shape[1].factor, c.in[1].shape[0].factor};
  a.format = format_of(c);
  a.int8_activations = has_int8_activations(*c.attrs);
}

// The weight is operand i; results have a row for every row in a group.
void fill_groups(const OpCall& c, size_t i, auto& a) {
  a.shape = shape_of(c.out[0], c.in[i]);
  a.groups = c.in[i].shape[0].factor;
}

}  // namespace

void LinearArgs::fill(const OpCall& c) {
  shape = shape_of(c.in[0], c.in[1]);
  type = c.in[0].dtype;
  out_type = c.out[0].dtype;
}
void LinearAddArgs::fill(const OpCall& c) { shape = shape_of(c.in[0], c.in[1]); }
void LinearSiluMulArgs::fill(const OpCall& c) { shape = shape_of(c.in[0], c.in[1]); }
void LmHeadArgs::fill(const OpCall& c) { shape = shape_of(c.in[0], c.in[1]); }
void LinearBlocksArgs::fill(const OpCall& c) { fill_packed(c, *this); }
void LmHeadBlocksArgs::fill(const OpCall& c) { fill_packed(c, *this); }
void EmbeddingBlocksArgs::fill(const OpCall& c) {
  tokens = c.in[1].shape[0];
  width = c.out[0].shape[1].factor;
  vocabulary = c.in[0].shape[0].factor;
  format = format_of(c);
}
void LinearW8a8StaticArgs::fill(const OpCall& c) {
  shape = shape_of(c.in[0], c.in[1]);
  out_type = c.out[0].dtype;
}
void LinearW8a8DynamicArgs::fill(const OpCall& c) {
  shape = shape_of(c.in[0], c.in[2]);
  out_type = c.out[0].dtype;
}
void LmHeadW8a8Args::fill(const OpCall& c) { shape = shape_of(c.in[0], c.in[2]); }
void PerHeadMatmulArgs::fill(const OpCall& c) {
  shape = shape_of(c.in[0], c.in[1]);
  heads = c.in[1].shape[0].factor;
  type = c.in[0].dtype;
}
void PerHeadMatmulRowsArgs::fill(const OpCall& c) {
  shape = shape_of(c.in[0], c.in[2]);
  heads = c.in[2].shape[0].factor;
}
void GroupedLinearArgs::fill(const OpCall& c) {
  fill_groups(c, 2, *this);
  type = c.in[0].dtype;
}
void GroupedLinearRowsArgs::fill(const OpCall& c) {
  fill_groups(c, 3, *this);
  x_rows = c.in[0].shape[0];
}
void GroupedLinearBlocksArgs::fill(const OpCall& c) {
  fill_groups(c, 2, *this);
  shape.depth = c.in[0].shape[1].factor;
  format = format_of(c);
  int8_activations = has_int8_activations(*c.attrs);
}
void GroupedW8a8StaticArgs::fill(const OpCall& c) {
  fill_groups(c, 2, *this);
  out_type = c.out[0].dtype;
}
void GroupedW8a8DynamicArgs::fill(const OpCall& c) {
  fill_groups(c, 3, *this);
  out_type = c.out[0].dtype;
}
void GroupedSiluMulQuantArgs::fill(const OpCall& c) { fill_groups(c, 3, *this); }

std::span<const OpArgs> product_args() {
  static const OpArgs rows[] = {
      op_row("linear", &LinearArgs::out, &LinearArgs::x, &LinearArgs::out),
      op_row("linear_add", &LinearAddArgs::out, &LinearAddArgs::x),
      op_row("linear_silu_mul", &LinearSiluMulArgs::out, &LinearSiluMulArgs::x),
      op_row("lm_head_argmax", &LmHeadArgs::out, &LmHeadArgs::x),
      op_row("linear_blocks", &LinearBlocksArgs::out, &LinearBlocksArgs::x, &LinearBlocksArgs::out),
      op_row("lm_head_argmax_blocks", &LmHeadBlocksArgs::out, &LmHeadBlocksArgs::x),
      op_row("embedding_blocks", &EmbeddingBlocksArgs::out, &EmbeddingBlocksArgs::out),
      op_row("linear_w8a8_static", &LinearW8a8StaticArgs::out, &LinearW8a8StaticArgs::out),
      op_row("linear_w8a8_dynamic", &LinearW8a8DynamicArgs::out, &LinearW8a8DynamicArgs::out),
      op_row("lm_head_argmax_w8a8", &LmHeadW8a8Args::out, &LmHeadW8a8Args::x),
      op_row("per_head_matmul", &PerHeadMatmulArgs::out, &PerHeadMatmulArgs::x),
      op_row("per_head_matmul_rows", &PerHeadMatmulRowsArgs::out, &PerHeadMatmulRowsArgs::x),
      op_row("grouped_linear", &GroupedLinearArgs::out, &GroupedLinearArgs::x),
      op_row("grouped_linear_rows", &GroupedLinearRowsArgs::out, &GroupedLinearRowsArgs::x),
      op_row("grouped_linear_blocks", &GroupedLinearBlocksArgs::out, &GroupedLinearBlocksArgs::x),
      op_row("grouped_linear_w8a8_static", &GroupedW8a8StaticArgs::out, &GroupedW8a8StaticArgs::out),
      op_row("grouped_linear_w8a8_dynamic", &GroupedW8a8DynamicArgs::out, &GroupedW8a8DynamicArgs::out),
      op_row("grouped_silu_mul_quant", &GroupedSiluMulQuantArgs::values_scale, &GroupedSiluMulQuantArgs::x),
  };
  return rows;
}

}  // namespace reprise
