#include "ops/args/elements.h"

#include "ops/args/rows.h"
#include "ops/kernel.h"

namespace reprise {
namespace {

int64_t element_of(const TensorType& t) { return static_cast<int64_t>(size_of(t.dtype)); }

// Rows are the first size, numbers of a row all others.
void fill_rows(const TensorType& x, auto& a) {
  a.rows = x.shape[0];
  a.width = product_of(x.shape, 1, x.shape.rank()).factor;
  a.type = x.dtype;
}

// A size is a number times at most one symbol.
Status one_symbol(const OpCall& c) {
  int symbols = 0;
  for (Dim d : c.in[0].shape.dims()) symbols += d.is_constant() ? 0 : 1;
  if (symbols > 1) return error(Code::Unsupported, "more than one size of {} is not a constant", describe(c));
  return Status::ok();
}

}  // namespace

void BinaryArgs::fill(const OpCall& c) { fill_rows(c.in[0], *this); }
void UnaryArgs::fill(const OpCall& c) { fill_rows(c.in[0], *this); }
void NumberArgs::fill(const OpCall& c) {
  fill_rows(c.in[0], *this);
  number = c.attrs->number(c.attrs->find("by") ? "by" : "cap");
}
void SwigluClampedArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = product_of(c.in[0].shape, 1, c.in[0].shape.rank()).factor;
  alpha = c.attrs->number("alpha");
  limit = c.attrs->number("limit");
}
void ScaleRowsArgs::fill(const OpCall& c) { fill_rows(c.in[0], *this); }
void SiluMulArgs::fill(const OpCall& c) {
  fill_rows(c.in[0], *this);
  width /= 2;
}
void SampleArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  columns = c.in[0].shape[1].factor;
}
void MaskLogitsArgs::fill(const OpCall& c) {
  rows = c.in[1].shape[0];
  columns = c.in[0].shape[1].factor;
}
void CopyArgs::fill(const OpCall& c) {
  const Shape& s = c.in[0].shape;
  fill_rows(c.in[0], *this);
  rows.symbol = product_of(s, 0, s.rank()).symbol;
  element = element_of(c.in[0]);
}
void SliceArgs::fill(const OpCall& c) {
  const Shape& s = c.in[0].shape;
  rows = product_of(s, 0, s.rank() - 1);
  width = s.back().factor;
  begin = c.attrs->integer("begin");
  size = c.attrs->integer("size");
  element = element_of(c.in[0]);
  type = c.in[0].dtype;
}
void PrefetchArgs::fill(const OpCall& c) {
  first = c.attrs->integer("first");
  bytes = c.attrs->integer("bytes");
}
void IndexSelectArgs::fill(const OpCall& c) {
  fill_rows(c.in[0], *this);
  x_rows = rows;
  rows = c.in[1].shape[0];
  element = element_of(c.in[0]);
}

std::span<const OpArgs> element_args() {
  static const OpArgs rows[] = {
      hint_row("prefetch", &PrefetchArgs::param),
      op_row("add", &BinaryArgs::out, &BinaryArgs::a, constant_rows),
      op_row("mul", &BinaryArgs::out, &BinaryArgs::a, constant_rows),
      op_row("silu", &UnaryArgs::out, &UnaryArgs::x, constant_rows),
      op_row("gelu", &UnaryArgs::out, &UnaryArgs::x, constant_rows),
      op_row("gelu_tanh", &UnaryArgs::out, &UnaryArgs::x, constant_rows),
      op_row("relu_squared", &UnaryArgs::out, &UnaryArgs::x, constant_rows),
      op_row("scale", &NumberArgs::out, &NumberArgs::x, constant_rows),
      op_row("swiglu_clamped", &SwigluClampedArgs::out, &SwigluClampedArgs::gate, constant_rows),
      op_row("softcap", &NumberArgs::out, &NumberArgs::x, constant_rows),
      op_row("sigmoid", &UnaryArgs::out, &UnaryArgs::x, constant_rows),
      op_row("reciprocal", &UnaryArgs::out, &UnaryArgs::x, constant_rows),
      op_row("argmax", &UnaryArgs::out, &UnaryArgs::x, constant_rows),
      op_row("finite_rows", &UnaryArgs::out, &UnaryArgs::x, constant_rows),
      op_row("sample", &SampleArgs::top_logprobs, &SampleArgs::logits, constant_rows),
      op_row("mask_logits", &MaskLogitsArgs::out, &MaskLogitsArgs::logits, constant_rows),
      op_row("silu_mul", &SiluMulArgs::out, &SiluMulArgs::gate_up, constant_rows),
      op_row("scale_rows", &ScaleRowsArgs::out, &ScaleRowsArgs::x, constant_rows),
      op_row("copy", &CopyArgs::out, &CopyArgs::x, one_symbol),
      op_row("slice", &SliceArgs::out, &SliceArgs::x),
      op_row("index_select", &IndexSelectArgs::out, &IndexSelectArgs::x, constant_rows),
      op_row("embedding", &IndexSelectArgs::out, &IndexSelectArgs::x, constant_rows),
  };
  return rows;
}

}  // namespace reprise
