// Entries of the ops of encoders, of pooled outputs and of heads that draft.
#include "backends/cpu/kernels/segment_shape.h"
#include "backends/cpu/register.h"
#include "ops/args/encoder.h"

namespace reprise::cpu {
namespace {

size_t segment_bytes(const SegmentAttentionArgs& a, const LiveSizes& bound, int threads) {
  return static_cast<size_t>(SegmentShape(a.tokens.value(bound), a.size).thread_floats() * threads) * sizeof(float);
}

}  // namespace

void register_encoder(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  entries.add("segment_attention", k.segment_attention, {.scratch = scratch(segment_bytes)});
  entries.add("pool_rows", k.pool_rows);
  entries.add("widen", k.widen);
  entries.add("l2_normalize", k.l2_normalize);
  entries.add("concat", k.concat);
}

}  // namespace reprise::cpu
