// Entries of the ops on weights in GGUF blocks, row-major as in a file.
#include "backends/cuda/kernels/product_sizes.h"
#include "backends/cuda/register.h"
#include "base/block_format.h"

namespace reprise::cuda {
namespace {

int64_t format_of(const OpCall& c) { return static_cast<int64_t>(*find_block_format(c.attrs->text("format"))); }

template <DType kIn, DType kOut>
Status accepts_linear(const OpCall& c) {
  if (c.in[0].dtype == kIn && c.out[0].dtype == kOut) return Status::ok();
  return error(Code::Unsupported, "takes {} and gives {}; the call has {} and {}", dtype_name(kIn), dtype_name(kOut),
               dtype_name(c.in[0].dtype), dtype_name(c.out[0].dtype));
}

template <DType T>
Status accepts_head(const OpCall& c) {
  return want_type(c, 0, T);
}

template <DType kOut>
Status accepts_embedding(const OpCall& c) {
  if (c.out[0].dtype == kOut) return Status::ok();
  return error(Code::Unsupported, "gives {}, not {}", dtype_name(kOut), dtype_name(c.out[0].dtype));
}

void bind_product(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.dim[2] = c.in[1].shape[0];
  args.dim[3] = format_of(c);
}

void bind_embedding(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[1].shape[0];
  args.dim[1] = c.out[0].shape[1];
  args.dim[2] = c.in[0].shape[0];
  args.dim[3] = format_of(c);
}

size_t head_workspace(const OpCall& c, const LiveSizes& bound, int) {
  return static_cast<size_t>(c.in[0].shape[0].value(bound)) * head_candidates_bytes(c.in[1].shape[0].factor);
}

}  // namespace

void register_packed(KernelRegistry& kernels, const KernelTable& table) {
  using enum DType;
  const PerType &k = table.linear_packed, &wide = table.linear_packed_wide, &head = table.lm_head_argmax_packed,
                &rows = table.embedding_packed;
  add_entry(kernels, "linear_packed", "f32", accepts_linear<F32, F32>, bind_product, k.f32);
  add_entry(kernels, "linear_packed", "bf16", accepts_linear<BF16, BF16>, bind_product, k.bf16);
  add_entry(kernels, "linear_packed", "f16", accepts_linear<F16, F16>, bind_product, k.f16);
  add_entry(kernels, "linear_packed", "bf16_f32", accepts_linear<BF16, F32>, bind_product, wide.bf16);
  add_entry(kernels, "linear_packed", "f16_f32", accepts_linear<F16, F32>, bind_product, wide.f16);
  add_entry(kernels, "lm_head_argmax_packed", "f32", accepts_head<F32>, bind_product, head.f32, head_workspace);
  add_entry(kernels, "lm_head_argmax_packed", "bf16", accepts_head<BF16>, bind_product, head.bf16, head_workspace);
  add_entry(kernels, "lm_head_argmax_packed", "f16", accepts_head<F16>, bind_product, head.f16, head_workspace);
  add_entry(kernels, "embedding_packed", "f32", accepts_embedding<F32>, bind_embedding, rows.f32);
  add_entry(kernels, "embedding_packed", "bf16", accepts_embedding<BF16>, bind_embedding, rows.bf16);
  add_entry(kernels, "embedding_packed", "f16", accepts_embedding<F16>, bind_embedding, rows.f16);
}

}  // namespace reprise::cuda
