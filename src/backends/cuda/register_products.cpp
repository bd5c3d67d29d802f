// Entries of matrix products, of what is fused with them, and of argmax.
#include "backends/cuda/kernels/product_sizes.h"
#include "backends/cuda/register.h"

namespace reprise::cuda {
namespace {

template <DType kIn, DType kOut>
Status accepts_linear(const OpCall& c) {
  if (c.in[0].dtype == kIn && c.out[0].dtype == kOut) return Status::ok();
  return error(Code::Unsupported, "takes {} and gives {}; the call has {} and {}", dtype_name(kIn), dtype_name(kOut),
               dtype_name(c.in[0].dtype), dtype_name(c.out[0].dtype));
}

void bind_linear(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[1].shape[1];
  args.dim[2] = c.in[1].shape[0];
}

void bind_elements(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
}

size_t head_workspace(const OpCall& c, const LiveSizes& bound, int) {
  const auto rows = static_cast<size_t>(c.in[0].shape[0].value(bound));
  const int64_t columns = c.in[1].shape[0].factor;
  if (c.in[0].dtype == DType::F32)
    return (rows * static_cast<size_t>(columns) + 1) * sizeof(float) + rows * row_candidates_bytes(columns);
  return rows * head_candidates_bytes(columns);
}

size_t argmax_workspace(const OpCall& c, const LiveSizes& bound, int) {
  return static_cast<size_t>(c.in[0].shape[0].value(bound)) * row_candidates_bytes(c.in[0].shape[1].factor);
}

}  // namespace

void register_products(KernelRegistry& kernels, const KernelTable& table) {
  using enum DType;
  add_entry(kernels, "linear", "f32", accepts_linear<F32, F32>, bind_linear, table.linear.f32);
  add_entry(kernels, "linear", "bf16", accepts_linear<BF16, BF16>, bind_linear, table.linear.bf16);
  add_entry(kernels, "linear", "f16", accepts_linear<F16, F16>, bind_linear, table.linear.f16);
  add_entry(kernels, "linear", "bf16_f32", accepts_linear<BF16, F32>, bind_linear, table.linear_wide.bf16);
  add_entry(kernels, "linear", "f16_f32", accepts_linear<F16, F32>, bind_linear, table.linear_wide.f16);
  auto add = [&](std::string_view op, const PerType& k, Bind bind, Workspace workspace) {
    add_entry(kernels, op, "f32", accepts_rows_of<F32>, bind, k.f32, workspace);
    add_entry(kernels, op, "bf16", accepts_rows_of<BF16>, bind, k.bf16, workspace);
    add_entry(kernels, op, "f16", accepts_rows_of<F16>, bind, k.f16, workspace);
  };
  add("linear_add", table.linear_add, bind_linear, nullptr);
  add("lm_head_argmax", table.lm_head_argmax, bind_linear, head_workspace);
  add("argmax", table.argmax, bind_elements, argmax_workspace);
}

}  // namespace reprise::cuda
