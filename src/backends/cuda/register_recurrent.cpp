// Entries of the ops of layers with a state for each sequence.
#include "backends/cuda/kernels/recurrent_sizes.h"
#include "backends/cuda/register.h"

namespace reprise::cuda {
namespace {

Status accepts_taps(const OpCall& c) {
  if (const int64_t taps = c.in[2].shape[2].factor; taps > kMostTaps)
    return error(Code::Unsupported, "takes convolutions over 1 to {} rows, not {}", kMostTaps, taps);
  return Status::ok();
}

// In a slot with room for drafts a state has more rows than its key has numbers.
Status accepts_key(const OpCall& c, int64_t key_heads) {
  const Shape& state = c.in[0].shape;
  const int64_t values = state[1].factor * state[3].factor;
  if (const int64_t key = (c.in[1].shape[1].factor - values) / (2 * key_heads); key > kMostDeltaKey)
    return error(Code::Unsupported, "takes keys of up to {} numbers, not {}", kMostDeltaKey, key);
  return Status::ok();
}
Status accepts_delta(const OpCall& c) { return accepts_key(c, c.attrs->integer("key_heads")); }
Status accepts_space(const OpCall& c) { return accepts_key(c, c.attrs->integer("groups")); }

}  // namespace

void register_recurrent(KernelRegistry& kernels, const KernelTable& table) {
  Entries entries(kernels);
  entries.add("causal_conv", table.causal_conv, {.accepts = accepts_taps});
  entries.add("causal_conv_biased", table.causal_conv_biased, {.accepts = accepts_taps});
  entries.add("gated_delta", table.gated_delta, {.accepts = accepts_delta});
  entries.add("state_space", table.state_space, {.accepts = accepts_space});
  entries.add("rms_norm_gated", table.rms_norm_gated);
}

}  // namespace reprise::cuda
