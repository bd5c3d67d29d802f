#include "ops/args/recurrent.h"

#include "ops/args/rows.h"
#include "ops/kernel.h"

namespace reprise {
namespace {

// `read`: the operand that names the slots to read from.
void fill_conv(const OpCall& c, size_t read, auto& a) {
  a.tokens = c.in[1].shape[0];
  a.sequences = c.in[read].shape[0];
  a.columns = c.in[0].shape[2].factor;
  a.taps = c.in[2].shape[2].factor;
  a.most_drafts = c.in[0].shape[1].factor - (a.taps - 1);
}

}  // namespace

void CausalConvArgs::fill(const OpCall& c) { fill_conv(c, 3, *this); }
void CausalConvBiasedArgs::fill(const OpCall& c) { fill_conv(c, 4, *this); }
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

void StateSpaceArgs::fill(const OpCall& c) {
  const Shape& state = c.in[0].shape;
  tokens = c.in[1].shape[0];
  sequences = c.in[6].shape[0];
  heads = state[1].factor;
  groups = c.attrs->integer("groups");
  rows = state[2].factor;
  value = state[3].factor;
  key = (c.in[1].shape[1].factor - heads * value) / (2 * groups);
  most_drafts = c.attrs->integer("most_drafts");
  least_step = c.attrs->number("least_step");
  most_step = c.attrs->number("most_step");
}
void GatedNormArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  groups = c.attrs->integer("groups");
  eps = c.attrs->number("eps");
}

std::span<const OpArgs> recurrent_args() {
  static const OpArgs rows[] = {
      op_row("causal_conv", &CausalConvArgs::out, &CausalConvArgs::x),
      op_row("causal_conv_biased", &CausalConvBiasedArgs::out, &CausalConvBiasedArgs::x),
      op_row("gated_delta", &GatedDeltaArgs::out, &GatedDeltaArgs::qkv),
      op_row("state_space", &StateSpaceArgs::out, &StateSpaceArgs::xbc),
      op_row("rms_norm_gated", &GatedNormArgs::out, &GatedNormArgs::x, constant_rows),
  };
  return rows;
}

}  // namespace reprise
