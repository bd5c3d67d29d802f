#include "ops/args/encoder.h"

#include "ops/args/rows.h"
#include "ops/kernel.h"

namespace reprise {

void SegmentAttentionArgs::fill(const OpCall& c) {
  const Shape& q = c.in[0].shape;
  tokens = q[0];
  heads = q[1].factor;
  kv_heads = c.in[1].shape[1].factor;
  size = q[2].factor;
  window = c.attrs->integer("window");
  borders = c.in[3].shape[0];
  scale = c.attrs->number("scale");
  type = c.in[0].dtype;
}
void PoolRowsArgs::fill(const OpCall& c) {
  tokens = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  borders = c.in[1].shape[0];
  count = c.in[2].shape[0];
  const std::string& name = c.attrs->text("kind");
  type = c.in[0].dtype;
  kind = name == "last" ? 0 : name == "mean" ? 1 : 2;
}
void ConcatArgs::fill(const OpCall& c) {
  const auto element = static_cast<int64_t>(size_of(c.in[0].dtype));
  rows = c.in[0].shape[0];
  a_width = c.in[0].shape[1].factor * element;
  b_width = c.in[1].shape[1].factor * element;
}
void VectorsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  type = c.in[0].dtype;
}

std::span<const OpArgs> encoder_args() {
  static const OpArgs rows[] = {
      op_row("segment_attention", &SegmentAttentionArgs::out, &SegmentAttentionArgs::q, constant_rows),
      op_row("pool_rows", &PoolRowsArgs::out, &PoolRowsArgs::x, constant_rows),
      op_row("concat", &ConcatArgs::out, &ConcatArgs::a, constant_rows),
      op_row("widen", &VectorsArgs::out, &VectorsArgs::x, constant_rows),
      op_row("l2_normalize", &VectorsArgs::out, &VectorsArgs::x, constant_rows),
  };
  return rows;
}

}  // namespace reprise
