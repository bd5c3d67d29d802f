// Entries of attention over the paged cache.
#include "backends/cuda/kernels/attention_sizes.h"
#include "backends/cuda/kernels/rotation_limits.h"
#include "backends/cuda/register.h"
#include "ops/core.h"

namespace reprise::cuda {
namespace {

template <DType T, DType Cache>
Status accepts_attention(const OpCall& c) {
  RETURN_IF_ERROR(want_type(c, 0, T));
  RETURN_IF_ERROR(want_type(c, 1, Cache));
  RETURN_IF_ERROR(want_constant_rows(c, 0));
  if (c.attrs->integer("window") < 0)
    return error(Code::Unsupported, "window {} is negative", c.attrs->integer("window"));
  const int64_t size = c.in[0].shape[2].factor;
  if (size % 2 != 0 || size < 2 || size > kLargestHead)
    return error(Code::Unsupported, "takes even head sizes from 2 to {}, not {} of {}", kLargestHead, size,
                 describe(c));
  return Status::ok();
}

void bind_attention(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[1];
  args.dim[1] = c.in[1].shape[2];
  args.dim[2] = c.in[0].shape[2];
  args.dim[3] = c.in[2].shape[0];
  args.dim[4] = c.in[2].shape[1];
  args.dim[5] = c.attrs->integer("window");
  args.dim[6] = c.in[0].shape[0];
  args.scalar[0] = c.attrs->number("scale");
}

size_t workspace(const OpCall& c, const LiveSizes&, int) { return attention_workspace_bytes(c.in[0].shape[2].factor); }

}  // namespace

void register_attention(KernelRegistry& kernels, const KernelTable& table) {
  using enum DType;
  const PerType &k = table.attention, &k8 = table.attention_i8;
  add_entry(kernels, "paged_attention", "f32", accepts_attention<F32, F32>, bind_attention, k.f32);
  add_entry(kernels, "paged_attention", "bf16", accepts_attention<BF16, BF16>, bind_attention, k.bf16, workspace);
  add_entry(kernels, "paged_attention", "f16", accepts_attention<F16, F16>, bind_attention, k.f16, workspace);
  add_entry(kernels, "paged_attention", "f32_i8", accepts_attention<F32, I8>, bind_attention, k8.f32);
  add_entry(kernels, "paged_attention", "bf16_i8", accepts_attention<BF16, I8>, bind_attention, k8.bf16, workspace);
  add_entry(kernels, "paged_attention", "f16_i8", accepts_attention<F16, I8>, bind_attention, k8.f16, workspace);
}

}  // namespace reprise::cuda
