#include "ops/args/lora.h"

#include "ops/args/rows.h"
#include "ops/kernel.h"

namespace reprise {

void LoraShrinkArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  rank = c.in[2].shape[1].factor;
}

void LoraExpandArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  begin = c.attrs->integer("begin");
  columns = c.in[3].shape[2].factor;
  rank = c.in[3].shape[1].factor;
}

std::span<const OpArgs> lora_args() {
  static const OpArgs rows[] = {
      op_row("lora_shrink", &LoraShrinkArgs::h, &LoraShrinkArgs::x, constant_rows),
      op_row("lora_expand", &LoraExpandArgs::out, &LoraExpandArgs::y, constant_rows),
  };
  return rows;
}

}  // namespace reprise
