#include "ops/args/quantise.h"

#include "ops/args/rows.h"

namespace reprise {
namespace {

void fill_rows(const OpCall& c, auto& a) {
  a.rows = c.in[0].shape[0];
  a.width = c.out[0].shape[1].factor;
  a.type = c.in[0].dtype;
}

void fill_scales(const OpCall& c, auto& a) {
  fill_rows(c, a);
  a.scales = c.in[1].shape[0].factor;
  a.offsets = c.in[2].shape[0].factor;
}

}  // namespace

void QuantizeStaticArgs::fill(const OpCall& c) { fill_scales(c, *this); }
void QuantizeDynamicArgs::fill(const OpCall& c) { fill_rows(c, *this); }
void SiluMulQuantArgs::fill(const OpCall& c) { fill_rows(c, *this); }
void SiluMulQuantStaticArgs::fill(const OpCall& c) { fill_scales(c, *this); }
void QuantizeGroupsArgs::fill(const OpCall& c) {
  fill_rows(c, *this);
  groups = c.in[2].shape[0].factor;
}

std::span<const OpArgs> quantise_args() {
  static const OpArgs rows[] = {
      op_row("quantize_static", &QuantizeStaticArgs::values, &QuantizeStaticArgs::x, constant_rows),
      op_row("quantize_dynamic", &QuantizeDynamicArgs::scale, &QuantizeDynamicArgs::x, constant_rows),
      op_row("silu_mul_quant", &SiluMulQuantArgs::scale, &SiluMulQuantArgs::gate_up, constant_rows),
      op_row("silu_mul_quant_static", &SiluMulQuantStaticArgs::values, &SiluMulQuantStaticArgs::gate_up, constant_rows),
      op_row("quantize_groups", &QuantizeGroupsArgs::values, &QuantizeGroupsArgs::x, constant_rows),
  };
  return rows;
}

}  // namespace reprise
