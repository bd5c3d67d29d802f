#include "ops/args/recurrent.h"

#include "ops/args/rows.h"
#include "ops/kernel.h"

namespace reprise {

void CausalConvArgs::fill(const OpCall& c) {
  tokens = c.in[1].shape[0];
  sequences = c.in[3].shape[0];
  columns = c.in[0].shape[2].factor;
  taps = c.in[2].shape[2].factor;
  most_drafts = c.in[0].shape[1].factor - (taps - 1);
}
void GatedDeltaArgs::fill(const OpCall& c) {
  const Shape& state = c.in[0].shape;
  tokens = c.in[1].shape[0];
  sequences = c.in[6].shape[0];
  heads = state[1].factor;
  key_heads = c.attrs->integer("key_heads");
  rows = state[2].factor;
  value = state[3].factor;
  key = (c.in[1].shape[1].factor - heads * value) / (2 * key_heads);
  most_drafts = c.attrs->integer("most_drafts");
}

std::span<const OpArgs> recurrent_args() {
  static const OpArgs rows[] = {
      op_row("causal_conv", &CausalConvArgs::out, &CausalConvArgs::x),
      op_row("gated_delta", &GatedDeltaArgs::out, &GatedDeltaArgs::qkv),
  };
  return rows;
}

}  // namespace reprise
