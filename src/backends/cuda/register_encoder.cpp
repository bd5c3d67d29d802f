// Entries of the ops of encoders, of pooled rows, and of LoRA adapters in slots.
#include "backends/cuda/kernels/encoder_limits.h"
#include "backends/cuda/register.h"

namespace reprise::cuda {
namespace {

Status accepts_segments(const OpCall& c) {
  if (const int64_t size = c.in[0].shape[2].factor; size > kMostSegmentHead)
    return error(Code::Unsupported, "takes heads of up to {} numbers, not {}", kMostSegmentHead, size);
  return Status::ok();
}

}  // namespace

void register_encoder(KernelRegistry& kernels, const KernelTable& table) {
  Entries entries(kernels);
  entries.add("segment_attention", table.segment_attention, {.accepts = accepts_segments});
  entries.add("pool_rows", table.pool_rows);
  entries.add("l2_normalize", table.l2_normalize);
  entries.add("lora_shrink", table.lora_shrink);
  entries.add("lora_expand", table.lora_expand);
}

}  // namespace reprise::cuda
