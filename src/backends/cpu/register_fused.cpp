// Entries of the fused ops (nn/fused.h) other than those around a matrix product. A kernel gives the bits of the op's
// meaning run with the kernels of its parts.
#include "backends/cpu/kernels/quantize_shape.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/register.h"
#include "ops/core.h"

namespace reprise::cpu {
namespace {

// Operand `i` has this dtype.
Status want(const OpCall& c, int i, DType t) {
  if (c.in[static_cast<size_t>(i)].dtype == t) return Status::ok();
  return error(Code::Unsupported, "takes {}, not {}", dtype_name(t), describe(c));
}

Status want_constant(const OpCall& c, Dim d, std::string_view what) {
  if (d.is_constant()) return Status::ok();
  return error(Code::Unsupported, "the {} of {} is not a constant", what, describe(c));
}

template <DType T>
Status accepts_rows_of(const OpCall& c) {
  RETURN_IF_ERROR(want(c, 0, T));
  return want_constant(c, c.in[0].shape.back(), "row size");
}

void bind_silu_mul(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1].factor / 2;
}

template <DType T>
Status accepts_silu_mul_static(const OpCall& c) {
  RETURN_IF_ERROR(accepts_rows_of<T>(c));
  for (int i : {1, 2})
    RETURN_IF_ERROR(want_constant(c, c.in[static_cast<size_t>(i)].shape[0], "size of scale or offset"));
  return Status::ok();
}

void bind_silu_mul_static(const OpCall& c, LaunchArgs& args) {
  bind_silu_mul(c, args);
  for (int i : {1, 2}) args.dim[i + 1] = c.in[static_cast<size_t>(i)].shape[0].factor == 1 ? 0 : 1;
}

size_t workspace_silu_mul_quant(const OpCall& c, const LiveSizes&, int ranks) {
  return SiluMulShape(c.in[0].shape[1].factor / 2, static_cast<int64_t>(size_of(c.in[0].dtype)), ranks).bytes();
}

template <DType T>
Status accepts_add_norm(const OpCall& c) {
  if (c.in[0].shape.rank() != 2) return error(Code::Unsupported, "takes rows of rank 2, not {}", describe(c));
  return accepts_rows_of<T>(c);
}

template <DType T>
Status accepts_add_norm_static(const OpCall& c) {
  RETURN_IF_ERROR(accepts_add_norm<T>(c));
  for (int i : {3, 4})
    RETURN_IF_ERROR(want_constant(c, c.in[static_cast<size_t>(i)].shape[0], "size of scale or offset"));
  return Status::ok();
}

void bind_add_norm(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.scalar[0] = c.attrs->number("eps");
}

void bind_add_norm_static(const OpCall& c, LaunchArgs& args) {
  bind_add_norm(c, args);
  for (int i : {3, 4}) args.dim[i - 1] = c.in[static_cast<size_t>(i)].shape[0].factor == 1 ? 0 : 1;
}

size_t workspace_add_norm_dynamic(const OpCall& c, const LiveSizes&, int ranks) {
  return static_cast<size_t>(ranks *
                             row_scratch_bytes(c.in[0].shape[1].factor, static_cast<int64_t>(size_of(c.in[0].dtype))));
}

// The cache's variant has the operand kv before and slots after these two.
struct SplitOperands {
  int qkv, table;
};
constexpr SplitOperands kSplit{0, 1}, kSplitKv{1, 2};

Status accepts_split_of(const OpCall& c, DType t, SplitOperands at) {
  RETURN_IF_ERROR(want(c, at.qkv, t));
  RETURN_IF_ERROR(want(c, at.table, DType::F32));
  const Dim rot = c.in[static_cast<size_t>(at.table)].shape[1];
  RETURN_IF_ERROR(want_constant(c, rot, "rotated size"));
  if (rot.factor % 2 != 0) return error(Code::Unsupported, "the rotated size {} of {} is odd", rot.factor, describe(c));
  return Status::ok();
}

template <DType T>
Status accepts_split(const OpCall& c) {
  return accepts_split_of(c, T, kSplit);
}

template <DType T, DType Cache>
Status accepts_split_into(const OpCall& c) {
  RETURN_IF_ERROR(want(c, 0, Cache));
  RETURN_IF_ERROR(accepts_split_of(c, T, kSplitKv));
  const Dim size = kv_head_size(c.in[0]);
  RETURN_IF_ERROR(want_constant(c, size, "head size"));
  if (size.factor % 2 != 0 || size.factor < 2 || size.factor > 256)
    return error(Code::Unsupported, "takes even head sizes from 2 to 256, not {} of {}", size.factor, describe(c));
  return Status::ok();
}

template <DType T>
Status accepts_split_kv(const OpCall& c) {
  return accepts_split_into<T, T>(c);
}

void bind_split_of(const OpCall& c, LaunchArgs& args, SplitOperands at) {
  const Shape& qkv = c.in[static_cast<size_t>(at.qkv)].shape;
  const int64_t h = c.attrs->integer("heads"), g = c.attrs->integer("kv_heads");
  args.dim[0] = qkv[0];
  args.dim[1] = h;
  args.dim[2] = g;
  args.dim[3] = qkv[1].factor / (h + 2 * g);
  args.dim[4] = c.in[static_cast<size_t>(at.table)].shape[1];
  args.scalar[0] = c.attrs->number("eps");
}

void bind_split(const OpCall& c, LaunchArgs& args) { bind_split_of(c, args, kSplit); }
void bind_split_kv(const OpCall& c, LaunchArgs& args) { bind_split_of(c, args, kSplitKv); }

}  // namespace

void register_fused(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  auto add = [&](std::string_view op, std::string_view dtype, Status (*accepts)(const OpCall&),
                 void (*bind)(const OpCall&, LaunchArgs&), CpuKernel first, CpuKernel second = nullptr,
                 size_t(*workspace)(const OpCall&, const LiveSizes&, int) = nullptr) {
    KernelEntry e = entry_of(op, dtype, isa, accepts, bind, first, second);
    e.workspace = workspace;
    kernels.add(std::move(e));
  };
#define REPRISE_ADD(op, accepts, bind)                       \
  add(#op, "f32", accepts<DType::F32>, bind, k.op##_f32);    \
  add(#op, "bf16", accepts<DType::BF16>, bind, k.op##_bf16); \
  add(#op, "f16", accepts<DType::F16>, bind, k.op##_f16)
  REPRISE_ADD(silu_mul, accepts_rows_of, bind_silu_mul);
  REPRISE_ADD(silu_mul_quant_static, accepts_silu_mul_static, bind_silu_mul_static);
  REPRISE_ADD(add_rms_norm, accepts_add_norm, bind_add_norm);
  REPRISE_ADD(add_rms_norm_quant_static, accepts_add_norm_static, bind_add_norm_static);
  REPRISE_ADD(split_qk_norm_rope, accepts_split, bind_split);
  REPRISE_ADD(split_qk_norm_rope_kv, accepts_split_kv, bind_split_kv);
#undef REPRISE_ADD
  add("split_qk_norm_rope_kv", "f32_i8", accepts_split_into<DType::F32, DType::I8>, bind_split_kv,
      k.split_qk_norm_rope_kv_f32_i8);
  add("split_qk_norm_rope_kv", "bf16_i8", accepts_split_into<DType::BF16, DType::I8>, bind_split_kv,
      k.split_qk_norm_rope_kv_bf16_i8);
  add("split_qk_norm_rope_kv", "f16_i8", accepts_split_into<DType::F16, DType::I8>, bind_split_kv,
      k.split_qk_norm_rope_kv_f16_i8);
  add("add_rms_norm_quant_dynamic", "f32", accepts_add_norm<DType::F32>, bind_add_norm,
      k.add_rms_norm_quant_dynamic_f32, nullptr, workspace_add_norm_dynamic);
  add("add_rms_norm_quant_dynamic", "bf16", accepts_add_norm<DType::BF16>, bind_add_norm,
      k.add_rms_norm_quant_dynamic_bf16, nullptr, workspace_add_norm_dynamic);
  add("add_rms_norm_quant_dynamic", "f16", accepts_add_norm<DType::F16>, bind_add_norm,
      k.add_rms_norm_quant_dynamic_f16, nullptr, workspace_add_norm_dynamic);
  add("silu_mul_quant", "f32", accepts_rows_of<DType::F32>, bind_silu_mul, k.silu_mul_quant_f32,
      k.silu_mul_quant_finish_f32, workspace_silu_mul_quant);
  add("silu_mul_quant", "bf16", accepts_rows_of<DType::BF16>, bind_silu_mul, k.silu_mul_quant_bf16,
      k.silu_mul_quant_finish_bf16, workspace_silu_mul_quant);
  add("silu_mul_quant", "f16", accepts_rows_of<DType::F16>, bind_silu_mul, k.silu_mul_quant_f16,
      k.silu_mul_quant_finish_f16, workspace_silu_mul_quant);
}

}  // namespace reprise::cpu
