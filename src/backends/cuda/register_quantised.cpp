// Entries of int8: quantising, products, and what is fused with them.
#include "backends/cuda/kernels/product_sizes.h"
#include "backends/cuda/register.h"

namespace reprise::cuda {
namespace {

int64_t step_of(const OpCall& c, size_t i) { return c.in[i].shape[0].factor == 1 ? 0 : 1; }

Status want_constant_scales(const OpCall& c, size_t first) {
  for (size_t i : {first, first + 1})
    if (!c.in[i].shape[0].is_constant())
      return error(Code::Unsupported, "the size of scale or offset of {} is not a constant", describe(c));
  return Status::ok();
}

template <DType T, size_t kScale>
Status accepts_static(const OpCall& c) {
  RETURN_IF_ERROR(accepts_rows_of<T>(c));
  return want_constant_scales(c, kScale);
}

void bind_quantize(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
}
void bind_quantize_static(const OpCall& c, LaunchArgs& args) {
  bind_quantize(c, args);
  args.dim[2] = step_of(c, 1);
  args.dim[3] = step_of(c, 2);
}
void bind_gated(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1].factor / 2;
}
void bind_gated_static(const OpCall& c, LaunchArgs& args) {
  bind_gated(c, args);
  args.dim[2] = step_of(c, 1);
  args.dim[3] = step_of(c, 2);
}
void bind_norm_dynamic(const OpCall& c, LaunchArgs& args) {
  bind_quantize(c, args);
  args.scalar[0] = c.attrs->number("eps");
}
void bind_norm_static(const OpCall& c, LaunchArgs& args) {
  bind_norm_dynamic(c, args);
  args.dim[2] = step_of(c, 3);
  args.dim[3] = step_of(c, 4);
}

template <DType kOut>
Status accepts_product(const OpCall& c) {
  if (c.out[0].dtype == kOut) return Status::ok();
  return error(Code::Unsupported, "gives {}, not {}", dtype_name(kOut), dtype_name(c.out[0].dtype));
}
void bind_product_of(const OpCall& c, LaunchArgs& args, size_t weight) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[weight].shape[1];
  args.dim[2] = c.in[weight].shape[0];
}
void bind_product_static(const OpCall& c, LaunchArgs& args) { bind_product_of(c, args, 1); }
void bind_product_dynamic(const OpCall& c, LaunchArgs& args) { bind_product_of(c, args, 2); }

template <size_t kWeight>
size_t product_workspace(const OpCall& c, const LiveSizes& bound, int) {
  return sums_bytes(c.in[0].shape[0].value(bound), c.in[kWeight].shape[0].factor);
}

Status accepts_head(const OpCall&) { return Status::ok(); }

size_t head_workspace(const OpCall& c, const LiveSizes& bound, int) {
  return static_cast<size_t>(c.in[0].shape[0].value(bound)) * head_candidates_bytes(c.in[2].shape[0].factor);
}

}  // namespace

void register_quantised(KernelRegistry& kernels, const KernelTable& table) {
  using enum DType;
#define REPRISE_ADD(op, accepts, bind)                                 \
  add_entry(kernels, #op, "f32", accepts<F32>, bind, table.op.f32);    \
  add_entry(kernels, #op, "bf16", accepts<BF16>, bind, table.op.bf16); \
  add_entry(kernels, #op, "f16", accepts<F16>, bind, table.op.f16)
#define REPRISE_ADD_STATIC(op, scale, bind)                                          \
  add_entry(kernels, #op, "f32", accepts_static<F32, scale>, bind, table.op.f32);    \
  add_entry(kernels, #op, "bf16", accepts_static<BF16, scale>, bind, table.op.bf16); \
  add_entry(kernels, #op, "f16", accepts_static<F16, scale>, bind, table.op.f16)
  REPRISE_ADD_STATIC(quantize_static, 1, bind_quantize_static);
  REPRISE_ADD_STATIC(silu_mul_quant_static, 1, bind_gated_static);
  REPRISE_ADD_STATIC(add_rms_norm_quant_static, 3, bind_norm_static);
  REPRISE_ADD(quantize_dynamic, accepts_rows_of, bind_quantize);
  REPRISE_ADD(silu_mul_quant, accepts_rows_of, bind_gated);
  REPRISE_ADD(add_rms_norm_quant_dynamic, accepts_rows_of, bind_norm_dynamic);
  auto add_product = [&](std::string_view op, const PerType& k, Bind bind, Workspace workspace) {
    add_entry(kernels, op, "f32", accepts_product<F32>, bind, k.f32, workspace);
    add_entry(kernels, op, "bf16", accepts_product<BF16>, bind, k.bf16, workspace);
    add_entry(kernels, op, "f16", accepts_product<F16>, bind, k.f16, workspace);
  };
  add_product("linear_w8a8_static", table.linear_w8a8_static, bind_product_static, product_workspace<1>);
  add_product("linear_w8a8_dynamic", table.linear_w8a8_dynamic, bind_product_dynamic, product_workspace<2>);
#undef REPRISE_ADD
#undef REPRISE_ADD_STATIC
  add_entry(kernels, "lm_head_argmax_w8a8", "", accepts_head, bind_product_dynamic, table.lm_head_argmax_w8a8,
            head_workspace);
}

}  // namespace reprise::cuda
