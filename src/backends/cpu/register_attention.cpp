// Entries of the ops on the KV cache: kv_write and paged_attention.
#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/register.h"
#include "ops/args/attention.h"
#include "ops/core.h"

namespace reprise::cpu {
namespace {

static_assert(kv_row_of(64, true) == kv_row(DType::I8, 64) && kv_row_of(64, false) == kv_row(DType::BF16, 64));

size_t attention_bytes(const PagedAttentionArgs& a, const LiveSizes& bound, int threads) {
  AttentionSizes z;
  z.heads = a.heads;
  z.kv_heads = a.kv_heads;
  z.size = a.size;
  z.columns = a.columns.value(bound);
  return static_cast<size_t>(z.thread_floats(threads)) * sizeof(float) * static_cast<size_t>(threads);
}

}  // namespace

void register_attention(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  const PerType& merge = k.attention_merge;
  entries.add("kv_write", k.kv_write, {.accepts = accepts_cache<0>});
  entries.add("kv_write", k.kv_write_i8, {.other = DType::I8, .accepts = accepts_cache<0>});
  entries.add("paged_attention", k.attention,
              {.second = merge, .accepts = accepts_cache<1>, .scratch = scratch(attention_bytes)});
  entries.add("paged_attention", k.attention_i8,
              {.second = {merge.f32, k.attention_merge_bf16_i8, merge.f16},
               .other = DType::I8,
               .accepts = accepts_cache<1>,
               .scratch = scratch(attention_bytes)});
}

}  // namespace reprise::cpu
