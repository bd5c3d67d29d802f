#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/register.h"

namespace reprise::cpu {
namespace {

template <DType kIn, DType kOut>
Status accepts_linear(const OpCall& call) {
  if (call.in[0].dtype == kIn && call.out[0].dtype == kOut) return Status::ok();
  return error(Code::Unsupported, "takes {} and gives {}; the call has {} and {}", dtype_name(kIn), dtype_name(kOut),
               dtype_name(call.in[0].dtype), dtype_name(call.out[0].dtype));
}

void bind_linear(const OpCall& call, LaunchArgs& args) {
  args.dim[0] = call.in[0].shape[0];
  args.dim[1] = call.in[1].shape[1];
  args.dim[2] = call.in[1].shape[0];
  args.dim[3] = Dim(bf16_dot_is_fast() ? 1 : 0);
}

size_t workspace_linear(const OpCall& call, const LiveSizes& bound, int ranks) {
  return static_cast<size_t>(ranks) * linear_rank_bytes(call.in[0].shape[0].value(bound), call.in[1].shape[1].factor);
}

template <DType kIn, DType kOut>
void add_linear(KernelRegistry& kernels, Isa isa, std::string_view types, CpuKernel kernel) {
  KernelEntry e = entry_of("linear", types, isa, accepts_linear<kIn, kOut>, bind_linear, kernel);
  if (kIn != DType::F32) e.workspace = workspace_linear;
  e.param_layouts = {"panel64"};
  kernels.add(std::move(e));
}

template <DType T>
Status accepts_dtype(const OpCall& call) {
  if (call.in[0].dtype == T) return Status::ok();
  return error(Code::Unsupported, "takes {}; the call has {}", dtype_name(T), dtype_name(call.in[0].dtype));
}

size_t workspace_lm_head(const OpCall& call, const LiveSizes& bound, int ranks) {
  return workspace_linear(call, bound, ranks) + best_bytes(call.in[0].shape[0].value(bound), ranks);
}

// A fused op around the product: operands x, weight, ... and the storage layout of linear.
template <DType T>
void add_fused(KernelRegistry& kernels, Isa isa, std::string_view op, CpuKernel kernel, CpuKernel second) {
  KernelEntry e = entry_of(op, dtype_name(T), isa, accepts_dtype<T>, bind_linear, kernel, second);
  e.workspace = second ? workspace_lm_head : workspace_linear;
  e.param_layouts = {"panel64"};
  kernels.add(std::move(e));
}

Status accepts_embedding(const OpCall& call) {
  const DType t = call.in[0].dtype;
  if (t == DType::F32 || t == DType::F16 || t == DType::BF16) return Status::ok();
  return error(Code::Unsupported, "takes f32, f16 or bf16 tables; the call has {}", dtype_name(t));
}

void bind_embedding(const OpCall& call, LaunchArgs& args) {
  args.dim[0] = call.in[1].shape[0];
  args.dim[1] = call.in[0].shape[1];
  args.dim[2] = call.in[0].shape[0];
  args.dim[3] = Dim(static_cast<int64_t>(size_of(call.in[0].dtype)));
  args.dim[4] = Dim(call.param_layout == "panel64" ? panel_group(call.in[0].dtype) : 0);
}

}  // namespace

void register_linear(KernelRegistry& kernels, Isa isa) {
  const KernelTable& table = kernel_table(isa);
  register_layouts(kernels);
  add_linear<DType::F32, DType::F32>(kernels, isa, "f32", table.linear_f32);
  add_linear<DType::BF16, DType::BF16>(kernels, isa, "bf16", table.linear_bf16);
  add_linear<DType::BF16, DType::F32>(kernels, isa, "bf16_f32", table.linear_bf16_f32);
  add_linear<DType::F16, DType::F16>(kernels, isa, "f16", table.linear_f16);
  add_linear<DType::F16, DType::F32>(kernels, isa, "f16_f32", table.linear_f16_f32);
  add_fused<DType::F32>(kernels, isa, "linear_add", table.linear_add_f32, nullptr);
  add_fused<DType::BF16>(kernels, isa, "linear_add", table.linear_add_bf16, nullptr);
  add_fused<DType::F16>(kernels, isa, "linear_add", table.linear_add_f16, nullptr);
  add_fused<DType::F32>(kernels, isa, "lm_head_argmax", table.lm_head_argmax_f32, table.lm_head_argmax_merge);
  add_fused<DType::BF16>(kernels, isa, "lm_head_argmax", table.lm_head_argmax_bf16, table.lm_head_argmax_merge);
  add_fused<DType::F16>(kernels, isa, "lm_head_argmax", table.lm_head_argmax_f16, table.lm_head_argmax_merge);

  KernelEntry e = entry_of("embedding", "", isa, accepts_embedding, bind_embedding, table.embedding);
  e.param_layouts = {"panel64", "row_major"};
  kernels.add(std::move(e));
}

}  // namespace reprise::cpu
