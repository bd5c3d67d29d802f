// Entries of the ops on weights in GGUF blocks: one per format and dtype, because each format has a layout of its own.
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/register.h"

namespace reprise::cpu {
namespace {

// Up to this many rows the weights are unpacked in registers; above, once for all rows, through scratch memory
// (as measured in turn). Registers that hold factors are missing for sums, so that more rows do not pay.
int64_t direct_rows(Isa isa) { return isa == Isa::Avx512 ? 3 : 4; }

int64_t inner_size(const OpCall& call, BlockFormat f) {
  return call.in[1].shape[1].factor / block_format_info(f).bytes * kBlockElements;
}

Status accepts(const OpCall& call, BlockFormat f, DType got, DType want) {
  if (const std::string& format = call.attrs->text("format"); format != block_format_info(f).name)
    return error(Code::Unsupported, "takes {} blocks; the call has {}", block_format_info(f).name, format);
  if (got == want) return Status::ok();
  return error(Code::Unsupported, "takes {}; the call has {}", dtype_name(want), dtype_name(got));
}

size_t workspace_product(const OpCall& call, BlockFormat f, const LiveSizes& bound, int ranks) {
  return static_cast<size_t>(ranks) * linear_rank_bytes(call.in[0].shape[0].value(bound), inner_size(call, f));
}

KernelEntry product_entry(Isa isa, std::string_view op, std::string_view types, BlockFormat f, CpuKernel kernel) {
  KernelEntry e;
  e.name = fmt::format("cpu.{}.{}.{}.{}", op, block_format_info(f).name, types, isa_name(isa));
  e.op = op;
  e.score = 100;
  e.bind = [f, isa](const OpCall& call, LaunchArgs& args) {
    args.dim[0] = call.in[0].shape[0];
    args.dim[1] = Dim(inner_size(call, f));
    args.dim[2] = call.in[1].shape[0];
    args.dim[3] = Dim(static_cast<int64_t>(f));
    args.dim[4] = Dim(direct_rows(isa));
  };
  e.phase[0] = opaque(kernel);
  e.param_layouts = {packed_layout(f)};
  return e;
}

void add_linear(KernelRegistry& kernels, Isa isa, BlockFormat f, DType in, DType out, CpuKernel kernel) {
  const std::string types =
      in == out ? std::string(dtype_name(in)) : fmt::format("{}_{}", dtype_name(in), dtype_name(out));
  KernelEntry e = product_entry(isa, "linear_packed", types, f, kernel);
  e.accepts = [f, in, out](const OpCall& call) {
    RETURN_IF_ERROR(accepts(call, f, call.in[0].dtype, in));
    return accepts(call, f, call.out[0].dtype, out);
  };
  if (in != DType::F32)
    e.workspace = [f](const OpCall& call, const LiveSizes& bound, int ranks) {
      return workspace_product(call, f, bound, ranks);
    };
  kernels.add(std::move(e));
}

void add_head(KernelRegistry& kernels, Isa isa, BlockFormat f, DType t, CpuKernel kernel, CpuKernel merge) {
  KernelEntry e = product_entry(isa, "lm_head_argmax_packed", dtype_name(t), f, kernel);
  e.accepts = [f, t](const OpCall& call) { return accepts(call, f, call.in[0].dtype, t); };
  e.workspace = [f](const OpCall& call, const LiveSizes& bound, int ranks) {
    return workspace_product(call, f, bound, ranks) + best_bytes(call.in[0].shape[0].value(bound), ranks);
  };
  e.phase[1] = opaque(merge);
  kernels.add(std::move(e));
}

void add_embedding(KernelRegistry& kernels, Isa isa, BlockFormat f, DType out, CpuKernel kernel) {
  KernelEntry e;
  e.name = fmt::format("cpu.embedding_packed.{}.{}.{}", block_format_info(f).name, dtype_name(out), isa_name(isa));
  e.op = "embedding_packed";
  e.score = 100;
  e.accepts = [f, out](const OpCall& call) { return accepts(call, f, call.out[0].dtype, out); };
  e.bind = [f](const OpCall& call, LaunchArgs& args) {
    args.dim[0] = call.in[1].shape[0];
    args.dim[1] = call.out[0].shape[1];
    args.dim[2] = call.in[0].shape[0];
    args.dim[3] = Dim(static_cast<int64_t>(f));
    args.dim[4] = Dim(packed_block_bytes(f));
  };
  e.phase[0] = opaque(kernel);
  e.param_layouts = {packed_layout(f)};
  kernels.add(std::move(e));
}

}  // namespace

void register_packed(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  for (const BlockFormatInfo& info : kBlockFormats) {
    const BlockFormat f = info.format;
    add_linear(kernels, isa, f, DType::F32, DType::F32, k.linear_packed_f32);
    add_linear(kernels, isa, f, DType::BF16, DType::BF16, k.linear_packed_bf16);
    add_linear(kernels, isa, f, DType::BF16, DType::F32, k.linear_packed_bf16_f32);
    add_linear(kernels, isa, f, DType::F16, DType::F16, k.linear_packed_f16);
    add_linear(kernels, isa, f, DType::F16, DType::F32, k.linear_packed_f16_f32);
    add_head(kernels, isa, f, DType::F32, k.lm_head_argmax_packed_f32, k.lm_head_argmax_merge);
    add_head(kernels, isa, f, DType::BF16, k.lm_head_argmax_packed_bf16, k.lm_head_argmax_merge);
    add_head(kernels, isa, f, DType::F16, k.lm_head_argmax_packed_f16, k.lm_head_argmax_merge);
    add_embedding(kernels, isa, f, DType::F32, k.embedding_packed_f32);
    add_embedding(kernels, isa, f, DType::BF16, k.embedding_packed_bf16);
    add_embedding(kernels, isa, f, DType::F16, k.embedding_packed_f16);
  }
}

}  // namespace reprise::cpu
