// Entries of attention: over the paged cache, and multi-head latent attention in its absorbed form.
//
// There are none of latent_forms and expanded_latent_attention, so that --mla-prefill expanded is refused: making a
// page's keys and values again for every 64 rows of a prompt, without a workspace that grows with the cache, takes more
// operations than the absorbed form.
#include "backends/cuda/kernels/attention_sizes.h"
#include "backends/cuda/kernels/latent_sizes.h"
#include "backends/cuda/register.h"
#include "ops/args/attention.h"

namespace reprise::cuda {
namespace {

Status accepts_heads(const OpCall& c) { return want_head(c, c.in[0].shape[2]); }

// The states of 16 rows each, which f32 does not keep.
size_t attention_bytes(const PagedAttentionArgs& a, const LiveSizes&, int) { return attention_workspace_bytes(a.size); }
size_t latent_bytes(const LatentAttentionArgs& a, const LiveSizes&, int) {
  return static_cast<size_t>(kLatentSlots * latent_state_floats(a.latent)) * sizeof(float);
}

Status accepts_latents(const OpCall& c) {
  const int64_t latent = c.in[2].shape[2].factor, rope = c.in[3].shape[2].factor;
  if (latent < 1 || latent > kLargestLatent || rope < 1 || rope > kLargestLatentRope)
    return error(Code::Unsupported, "takes latents up to {} and rotated keys up to {}, not {} and {}", kLargestLatent,
                 kLargestLatentRope, latent, rope);
  return Status::ok();
}

}  // namespace

void register_attention(KernelRegistry& kernels, const KernelTable& table) {
  Entries entries(kernels);
  Extras paged{.accepts = accepts_heads, .scratch = scratch(attention_bytes), .f32_scratch = false};
  entries.add("paged_attention", table.attention, paged);
  paged.other = DType::I8;
  entries.add("paged_attention", table.attention_i8, paged);
  entries.add("per_head_matmul", table.per_head_matmul);
  entries.add("per_head_matmul_rows", table.per_head_matmul_rows);
  entries.add("latent_attention", table.latent_attention,
              {.accepts = accepts_latents, .scratch = scratch(latent_bytes), .f32_scratch = false});
}

}  // namespace reprise::cuda
