#include "ops/args/norms.h"

#include "ops/args/rows.h"
#include "ops/kernel.h"

namespace reprise {
namespace {

// Rows are all sizes but the last.
void fill_norm(const OpCall& c, auto& a) {
  const TensorType& x = c.in[0];
  a.rows = product_of(x.shape, 0, x.shape.rank() - 1);
  a.width = x.shape.back().factor;
  a.eps = c.attrs->number("eps");
  a.type = x.dtype;
}

Status rank_two(const OpCall& c) {
  if (c.in[0].shape.rank() != 2) return error(Code::Unsupported, "takes rows of rank 2, not {}", describe(c));
  return constant_rows(c);
}

}  // namespace

void RmsNormArgs::fill(const OpCall& c) { fill_norm(c, *this); }
void CentredRmsNormArgs::fill(const OpCall& c) { fill_norm(c, *this); }
void UnitRmsNormArgs::fill(const OpCall& c) { fill_norm(c, *this); }
void LayerNormArgs::fill(const OpCall& c) {
  fill_norm(c, *this);
  vectors = c.in[1].shape.rank() == 2 ? c.in[1].shape[0].factor : 1;
}
void AddRmsNormArgs::fill(const OpCall& c) { fill_norm(c, *this); }
void AddRmsNormQuantDynamicArgs::fill(const OpCall& c) { fill_norm(c, *this); }
void AddRmsNormQuantDividedArgs::fill(const OpCall& c) { fill_norm(c, *this); }
void AddRmsNormQuantStaticArgs::fill(const OpCall& c) {
  fill_norm(c, *this);
  scales = c.in[3].shape[0].factor;
  offsets = c.in[4].shape[0].factor;
}

std::span<const OpArgs> norm_args() {
  static const OpArgs rows[] = {
      op_row("rms_norm", &RmsNormArgs::out, &RmsNormArgs::x, constant_rows),
      op_row("rms_norm_centred", &CentredRmsNormArgs::out, &CentredRmsNormArgs::x, constant_rows),
      op_row("unit_rms_norm", &UnitRmsNormArgs::out, &UnitRmsNormArgs::x, constant_rows),
      op_row("layer_norm", &LayerNormArgs::out, &LayerNormArgs::x, constant_rows),
      op_row("add_rms_norm", &AddRmsNormArgs::sum, &AddRmsNormArgs::x, rank_two),
      op_row("add_rms_norm_quant_static", &AddRmsNormQuantStaticArgs::sum, &AddRmsNormQuantStaticArgs::x, rank_two),
      op_row("add_rms_norm_quant_dynamic", &AddRmsNormQuantDynamicArgs::sum, &AddRmsNormQuantDynamicArgs::x, rank_two),
      op_row("add_rms_norm_quant_divided", &AddRmsNormQuantDividedArgs::sum, &AddRmsNormQuantDividedArgs::x, rank_two),
  };
  return rows;
}

}  // namespace reprise
