// Entries of a mixture of experts: the choice, the way to the experts and back, products in groups of rows.
#include "backends/cuda/kernels/gate_flags.h"
#include "backends/cuda/register.h"

namespace reprise::cuda {
namespace {

Status accepts_any(const OpCall&) { return Status::ok(); }

void bind_gate(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.dim[2] = c.attrs->integer("top_k");
  args.dim[3] = c.attrs->integer("groups");
  args.dim[4] = c.attrs->integer("top_groups");
  int64_t flags = 0;
  if (c.attrs->text("score") == "sigmoid") flags |= kGateSigmoid;
  if (c.attrs->integer("normalise") != 0) flags |= kGateNormalise;
  if (c.attrs->text("group_score") == "top2") flags |= kGateTopTwo;
  args.dim[5] = flags;
  args.scalar[0] = c.attrs->number("scale");
  args.scalar[1] = c.attrs->number("eps");
}

void bind_route(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.dim[2] = c.attrs->integer("first");
  args.dim[3] = c.attrs->integer("count");
}

void bind_combine(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[2].shape[0];
  args.dim[1] = c.in[2].shape[1];
  args.dim[2] = c.in[0].shape[1];
}

// Results have a row for every row in a group.
void bind_product(const OpCall& c, LaunchArgs& args, size_t weight) {
  const Shape& stack = c.in[weight].shape;
  args.dim[0] = c.out[0].shape[0];
  args.dim[1] = stack[2];
  args.dim[2] = stack[1];
  args.dim[3] = stack[0];
  args.dim[4] = c.in[0].shape[0];
}
template <size_t kWeight>
void bind_product(const OpCall& c, LaunchArgs& args) {
  bind_product(c, args, kWeight);
}

void bind_quantize(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.dim[3] = c.in[2].shape[0];
}

template <DType T>
Status accepts(const OpCall& c) {
  return want_type(c, 0, T);
}

template <DType kOut>
Status accepts_result(const OpCall& c) {
  if (c.out[0].dtype == kOut) return Status::ok();
  return error(Code::Unsupported, "gives {}, not {}", dtype_name(kOut), dtype_name(c.out[0].dtype));
}

}  // namespace

void register_experts(KernelRegistry& kernels, const KernelTable& table) {
  using enum DType;
#define REPRISE_ADD(op, accepts, bind, kernel)                      \
  add_entry(kernels, op, "f32", accepts<F32>, bind, kernel.f32);    \
  add_entry(kernels, op, "bf16", accepts<BF16>, bind, kernel.bf16); \
  add_entry(kernels, op, "f16", accepts<F16>, bind, kernel.f16)
  add_entry(kernels, "moe_gate", "", accepts_any, bind_gate, table.moe_gate);
  add_entry(kernels, "moe_route", "", accepts_any, bind_route, table.moe_route);
  REPRISE_ADD("moe_combine", accepts_rows_of, bind_combine, table.moe_combine);
  REPRISE_ADD("grouped_linear", accepts, bind_product<2>, table.grouped_linear);
  REPRISE_ADD("grouped_linear_rows", accepts, bind_product<3>, table.grouped_linear_rows);
  REPRISE_ADD("quantize_groups", accepts_rows_of, bind_quantize, table.quantize_groups);
  REPRISE_ADD("grouped_linear_w8a8_static", accepts_result, bind_product<2>, table.grouped_w8a8_static);
  REPRISE_ADD("grouped_linear_w8a8_dynamic", accepts_result, bind_product<3>, table.grouped_w8a8_dynamic);
#undef REPRISE_ADD
}

}  // namespace reprise::cuda
