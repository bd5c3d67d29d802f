// Entries of multi-head latent attention: projections per head, caches of rows, attention over latents.
#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/expanded_shape.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/register.h"
#include "ops/args/attention.h"
#include "ops/args/products.h"

namespace reprise::cpu {
namespace {

template <class A>
size_t head_bytes(const A& a, const LiveSizes& bound, int ranks) {
  return static_cast<size_t>(ranks) * linear_rank_bytes(a.shape.rows.value(bound), a.shape.depth);
}

Status accepts_expanded(const OpCall& c) {
  const int64_t key = c.in[1].shape[2].factor + c.in[2].shape[2].factor, value = c.in[0].shape[2].factor;
  if (c.in[1].dtype == DType::BF16 && (key % 2 != 0 || value % 2 != 0))
    return error(Code::Unsupported, "takes even sizes of keys and values, not {} and {}", key, value);
  return Status::ok();
}

size_t rank_floats_bytes(int64_t floats, int ranks) {
  return static_cast<size_t>(floats) * sizeof(float) * static_cast<size_t>(ranks);
}

size_t expanded_bytes(const ExpandedLatentArgs& a, const LiveSizes& bound, int ranks) {
  const ExpandedSizes z{
      .latent = a.latent, .rope = a.rope, .nope = a.nope, .value = a.value, .tokens = a.tokens.value(bound)};
  return rank_floats_bytes(z.rank_floats(), ranks);
}

size_t attention_bytes(const LatentAttentionArgs& a, const LiveSizes& bound, int ranks) {
  AttentionSizes z;
  z.heads = a.heads;
  z.kv_heads = 1;
  z.size = a.latent;
  z.key_size = a.latent + a.rope;
  z.columns = a.columns.value(bound);
  return rank_floats_bytes(z.rank_floats(ranks), ranks);
}

}  // namespace

void register_latent(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  entries.add("head_linear", k.head_linear,
              {.scratch = scratch(head_bytes<HeadLinearArgs>), .f32_scratch = false, .layouts = {"panel64"}});
  entries.add("head_linear_rows", k.head_linear_rows,
              {.scratch = scratch(head_bytes<HeadLinearRowsArgs>), .layouts = {"panel64"}});
  entries.add("latent_attention", k.latent_attention,
              {.second = k.latent_attention_merge, .scratch = scratch(attention_bytes)});
  entries.add("expanded_latent_attention", k.expanded_latent_attention,
              {.accepts = accepts_expanded, .scratch = scratch(expanded_bytes), .layouts = {"panel64"}});
  entries.add("latent_forms", k.latent_forms);
  entries.add("row_write", k.row_write);
}

}  // namespace reprise::cpu
