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

Status accepts_key(const OpCall& c) {
  if (const int64_t key = c.in[0].shape[2].factor; key > kMostDeltaKey)
    return error(Code::Unsupported, "takes keys of up to {} numbers, not {}", kMostDeltaKey, key);
  return Status::ok();
}

}  // namespace

void register_recurrent(KernelRegistry& kernels, const KernelTable& table) {
  Entries entries(kernels);
  entries.add("causal_conv", table.causal_conv, {.accepts = accepts_taps});
  entries.add("gated_delta", table.gated_delta, {.accepts = accepts_key});
}

}  // namespace reprise::cuda
