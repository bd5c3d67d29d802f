// Entries of multi-head latent attention: projections per head, caches of rows, attention over latents.
#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/register.h"
#include "ops/core.h"

namespace reprise::cpu {
namespace {

template <DType T>
Status accepts(const OpCall& c) {
  if (c.in[0].dtype == T) return Status::ok();
  return error(Code::Unsupported, "takes {}; the call is {}", dtype_name(T), describe(c));
}

void bind_head_linear(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[1].shape[2];
  args.dim[2] = c.in[1].shape[1];
  args.dim[3] = c.in[1].shape[0];
  args.dim[4] = Dim(bf16_dot_is_fast() ? 1 : 0);
}

size_t head_linear_workspace(const OpCall& c, const LiveSizes& bound, int ranks) {
  return static_cast<size_t>(ranks) * linear_rank_bytes(c.in[0].shape[0].value(bound), c.in[1].shape[2].factor);
}

Status accepts_any_rows(const OpCall&) { return Status::ok(); }  // bytes of any type

void bind_row_write(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[1].shape[0];
  args.dim[1] = c.in[1].shape[1].factor * static_cast<int64_t>(size_of(c.in[1].dtype));
}

void bind_attention(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[1];
  args.dim[1] = c.in[0].shape[2];
  args.dim[2] = c.in[1].shape[2];
  args.dim[3] = c.in[4].shape[0];
  args.dim[4] = c.in[4].shape[1];
  args.dim[5] = Dim(bf16_dot_is_fast() ? 1 : 0);
  args.scalar[0] = c.attrs->number("scale");
}

size_t attention_workspace(const OpCall& c, const LiveSizes& bound, int ranks) {
  AttentionSizes z;
  z.heads = c.in[0].shape[1].factor;
  z.kv_heads = 1;
  z.size = c.in[0].shape[2].factor;
  z.key_size = z.size + c.in[1].shape[2].factor;
  z.columns = c.in[4].shape[1].value(bound);
  return static_cast<size_t>(z.rank_floats(ranks)) * sizeof(float) * static_cast<size_t>(ranks);
}

template <DType T>
void add(KernelRegistry& kernels, Isa isa, CpuKernel linear, CpuKernel attention, CpuKernel merge) {
  KernelEntry heads = entry_of("head_linear", dtype_name(T), isa, accepts<T>, bind_head_linear, linear);
  if (T != DType::F32) heads.workspace = head_linear_workspace;
  heads.param_layouts = {"panel64"};
  kernels.add(std::move(heads));
  KernelEntry latent = entry_of("latent_attention", dtype_name(T), isa, accepts<T>, bind_attention, attention, merge);
  latent.workspace = attention_workspace;
  kernels.add(std::move(latent));
}

}  // namespace

void register_latent(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  add<DType::F32>(kernels, isa, k.head_linear_f32, k.latent_attention_f32, k.latent_attention_merge_f32);
  add<DType::BF16>(kernels, isa, k.head_linear_bf16, k.latent_attention_bf16, k.latent_attention_merge_bf16);
  add<DType::F16>(kernels, isa, k.head_linear_f16, k.latent_attention_f16, k.latent_attention_merge_f16);
  kernels.add(entry_of("row_write", "", isa, accepts_any_rows, bind_row_write, k.row_write));
}

}  // namespace reprise::cpu
