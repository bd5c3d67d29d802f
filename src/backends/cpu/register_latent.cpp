// Entries of multi-head latent attention: projections per head, caches of rows, attention over latents.
#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/expanded_shape.h"
#include "backends/cpu/product_bytes.h"
#include "backends/cpu/register.h"
#include "ops/args/attention.h"
#include "ops/args/products.h"

namespace reprise::cpu {
namespace {

template <bool kTiles>
void add_per_head_products(Entries& entries, const KernelTable& k) {
  entries.add(
      "per_head_matmul", k.per_head_matmul,
      {.scratch = scratch(product_bytes<kTiles, PerHeadMatmulArgs>), .f32_scratch = false, .layouts = {"panel64"}});
  entries.add("per_head_matmul_rows", k.per_head_matmul_rows,
              {.scratch = scratch(product_bytes<kTiles, PerHeadMatmulRowsArgs>), .layouts = {"panel64"}});
}

Status accepts_expanded(const OpCall& c) {
  const int64_t key = c.in[1].shape[2].factor + c.in[2].shape[2].factor, value = c.in[0].shape[2].factor;
  if (c.in[1].dtype == DType::BF16 && (key % 2 != 0 || value % 2 != 0))
    return error(Code::Unsupported, "takes even sizes of keys and values, not {} and {}", key, value);
  return Status::ok();
}

size_t thread_floats_bytes(int64_t floats, int threads) {
  return static_cast<size_t>(floats) * sizeof(float) * static_cast<size_t>(threads);
}

size_t expanded_bytes(const ExpandedLatentArgs& a, const LiveSizes& bound, int threads) {
  const ExpandedSizes z{
      .latent = a.latent, .rope = a.rope, .nope = a.nope, .value = a.value, .tokens = a.tokens.value(bound)};
  return thread_floats_bytes(z.thread_floats(), threads);
}

size_t latent_bytes(const LatentAttentionArgs& a, const LiveSizes& bound, int threads) {
  AttentionSizes z;
  z.heads = a.heads;
  z.kv_heads = 1;
  z.size = a.latent;
  z.key_size = a.latent + a.rope;
  z.columns = a.columns.value(bound);
  return thread_floats_bytes(z.thread_floats(threads), threads);
}

}  // namespace

void register_latent(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  has_tiles(isa) ? add_per_head_products<true>(entries, k) : add_per_head_products<false>(entries, k);
  entries.add("latent_attention", k.latent_attention,
              {.second = k.latent_attention_merge, .scratch = scratch(latent_bytes)});
  entries.add("expanded_latent_attention", k.expanded_latent_attention,
              {.accepts = accepts_expanded, .scratch = scratch(expanded_bytes), .layouts = {"panel64"}});
  entries.add("latent_forms", k.latent_forms);
  entries.add("row_write", k.row_write);
}

}  // namespace reprise::cpu
