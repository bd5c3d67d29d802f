// Entries of multi-head latent attention in its absorbed form.
//
// There are none of latent_forms and expanded_latent_attention, so that --mla-prefill expanded is refused: making a
// page's keys and values again for every 64 rows of a prompt, without a workspace that grows with the cache, takes more
// operations than the absorbed form.
#include "backends/cuda/kernels/latent_sizes.h"
#include "backends/cuda/register.h"

namespace reprise::cuda {
namespace {

template <DType T>
Status accepts(const OpCall& c) {
  return want_type(c, 0, T);
}

// The weight is the last operand, with rows before it or without.
void bind_head_linear(const OpCall& c, LaunchArgs& args) {
  const Shape& weight = c.in.back().shape;
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = weight[2];
  args.dim[2] = weight[1];
  args.dim[3] = weight[0];
}

template <DType T>
Status accepts_attention(const OpCall& c) {
  RETURN_IF_ERROR(want_type(c, 0, T));
  const int64_t latent = c.in[2].shape[2].factor, rope = c.in[3].shape[2].factor;
  if (latent < 1 || latent > kLargestLatent || rope < 1 || rope > kLargestLatentRope)
    return error(Code::Unsupported, "takes latents up to {} and rotated keys up to {}, not {} and {}", kLargestLatent,
                 kLargestLatentRope, latent, rope);
  return Status::ok();
}

void bind_attention(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[1];
  args.dim[1] = c.in[0].shape[2];
  args.dim[2] = c.in[1].shape[2];
  args.dim[3] = c.in[4].shape[0];
  args.dim[4] = c.in[4].shape[1];
  args.dim[5] = c.in[0].shape[0];
  args.scalar[0] = c.attrs->number("scale");
}

size_t workspace(const OpCall& c, const LiveSizes&, int) {
  return static_cast<size_t>(kLatentSlots * latent_state_floats(c.in[0].shape[2].factor)) * sizeof(float);
}

}  // namespace

void register_latent(KernelRegistry& kernels, const KernelTable& table) {
  using enum DType;
  auto heads = [&](std::string_view op, const PerType& k) {
    add_entry(kernels, op, "f32", accepts<F32>, bind_head_linear, k.f32);
    add_entry(kernels, op, "bf16", accepts<BF16>, bind_head_linear, k.bf16);
    add_entry(kernels, op, "f16", accepts<F16>, bind_head_linear, k.f16);
  };
  heads("head_linear", table.head_linear);
  heads("head_linear_rows", table.head_linear_rows);
  const PerType& k = table.latent_attention;
  add_entry(kernels, "latent_attention", "f32", accepts_attention<F32>, bind_attention, k.f32);
  add_entry(kernels, "latent_attention", "bf16", accepts_attention<BF16>, bind_attention, k.bf16, workspace);
  add_entry(kernels, "latent_attention", "f16", accepts_attention<F16>, bind_attention, k.f16, workspace);
}

}  // namespace reprise::cuda
