// Entries of the ops of layers with a state for each sequence.
#include "backends/cpu/kernels/delta_shape.h"
#include "backends/cpu/kernels/quantize_shape.h"
#include "backends/cpu/register.h"
#include "ops/args/recurrent.h"

namespace reprise::cpu {
namespace {

template <typename Args>
size_t state_bytes(const Args& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(delta_thread_floats(a.key) * threads) * sizeof(float);
}
size_t norm_bytes(const GatedNormArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(threads * row_scratch_bytes(a.width / a.groups, static_cast<int64_t>(sizeof(float))));
}

Status accepts_taps(const OpCall& c) {
  constexpr int64_t kMostTaps = 16;
  if (const int64_t taps = c.in[2].shape[2].factor; taps > kMostTaps)
    return error(Code::Unsupported, "takes convolutions over 1 to {} rows, not {}", kMostTaps, taps);
  return Status::ok();
}

// A thread makes kDeltaRows rows ready at once, and the drafts of a slot are among them.
Status accepts_drafts(const OpCall& c) {
  if (const int64_t drafts = c.attrs->integer("most_drafts"); drafts < 0 || drafts >= kDeltaRows)
    return error(Code::Unsupported, "takes 0 to {} drafts in a slot, not {}", kDeltaRows - 1, drafts);
  return Status::ok();
}

}  // namespace

void register_recurrent(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  entries.add("causal_conv", k.causal_conv, {.accepts = accepts_taps});
  entries.add("causal_conv_biased", k.causal_conv_biased, {.accepts = accepts_taps});
  entries.add("gated_delta", k.gated_delta,
              {.accepts = accepts_drafts, .scratch = scratch(state_bytes<GatedDeltaArgs>)});
  entries.add("state_space", k.state_space,
              {.accepts = accepts_drafts, .scratch = scratch(state_bytes<StateSpaceArgs>)});
  entries.add("rms_norm_gated", k.rms_norm_gated, {.scratch = scratch(norm_bytes)});
}

}  // namespace reprise::cpu
