// Entries of a mixture of experts: the choice, the way to the experts and back, products in groups of rows.
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/moe_shape.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/register.h"

namespace reprise::cpu {
namespace {

Status accepts_gate(const OpCall& c) {
  if (const int64_t groups = c.attrs->integer("groups"); groups > kMaxGateGroups)
    return error(Code::Unsupported, "takes up to {} groups, not {}", kMaxGateGroups, groups);
  return Status::ok();
}

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

size_t workspace_gate(const OpCall& c, const LiveSizes&, int ranks) {
  return static_cast<size_t>(ranks * 2 * gate_row(c.in[0].shape[1].factor)) * sizeof(float);
}

Status accepts_any(const OpCall&) { return Status::ok(); }

void bind_route(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.dim[2] = c.attrs->integer("first");
  args.dim[3] = c.attrs->integer("count");
}

size_t workspace_route(const OpCall& c, const LiveSizes&, int ranks) {
  return static_cast<size_t>(ranks * route_row(c.attrs->integer("count"))) * sizeof(int32_t);
}

template <DType T>
Status accepts(const OpCall& c) {
  if (c.in[0].dtype == T) return Status::ok();
  return error(Code::Unsupported, "takes {}, not {}", dtype_name(T), describe(c));
}

void bind_combine(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[2].shape[0];
  args.dim[1] = c.in[2].shape[1];
  args.dim[2] = c.in[0].shape[1];
}

void bind_rows(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  int64_t width = 1;
  for (int i = 1; i < c.in[0].shape.rank(); ++i) width *= c.in[0].shape[i].factor;
  args.dim[1] = width;
}

template <DType T>
Status accepts_rows(const OpCall& c) {
  RETURN_IF_ERROR(accepts<T>(c));
  for (int i = 1; i < c.in[0].shape.rank(); ++i)
    if (!c.in[0].shape[i].is_constant())
      return error(Code::Unsupported, "size {} of {} is not a constant", i, describe(c));
  return Status::ok();
}

// `rows` is the type whose rows lie in groups.
void bind_product(const TensorType& rows, const TensorType& weight, LaunchArgs& args) {
  args.dim[0] = rows.shape[0];
  args.dim[1] = weight.shape[2];
  args.dim[2] = weight.shape[1];
  args.dim[3] = weight.shape[0];
  args.dim[4] = Dim(bf16_dot_is_fast() ? 1 : 0);
}

void bind_grouped(const OpCall& c, LaunchArgs& args) {
  bind_product(c.in[0], c.in[2], args);
  args.dim[5] = c.in[0].shape[0];
  args.dim[6] = 0;
}

void bind_grouped_rows(const OpCall& c, LaunchArgs& args) {
  bind_product(c.out[0], c.in[3], args);
  args.dim[5] = c.in[0].shape[0];
  args.dim[6] = 1;
}

size_t workspace_grouped(const OpCall& c, const LiveSizes& bound, int ranks) {
  return static_cast<size_t>(ranks) * linear_rank_bytes(c.out[0].shape[0].value(bound), c.in[0].shape[1].factor);
}

template <DType T>
void add(KernelRegistry& kernels, Isa isa, CpuKernel grouped, CpuKernel combine, CpuKernel sigmoid, CpuKernel scale) {
  const auto name = dtype_name(T);
  for (const bool rows : {false, true}) {
    KernelEntry e = entry_of(rows ? "grouped_linear_rows" : "grouped_linear", name, isa, accepts<T>,
                             rows ? bind_grouped_rows : bind_grouped, grouped);
    e.workspace = workspace_grouped;
    e.param_layouts = {"panel64"};
    kernels.add(std::move(e));
  }
  kernels.add(entry_of("moe_combine", name, isa, accepts<T>, bind_combine, combine));
  kernels.add(entry_of("sigmoid", name, isa, accepts_rows<T>, bind_rows, sigmoid));
  kernels.add(entry_of("scale_rows", name, isa, accepts_rows<T>, bind_rows, scale));
}

}  // namespace

void register_experts(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  KernelEntry gate = entry_of("moe_gate", "", isa, accepts_gate, bind_gate, k.moe_gate);
  gate.workspace = workspace_gate;
  kernels.add(std::move(gate));
  KernelEntry route = entry_of("moe_route", "", isa, accepts_any, bind_route, k.moe_route);
  route.workspace = workspace_route;
  kernels.add(std::move(route));
  add<DType::F32>(kernels, isa, k.grouped_linear_f32, k.moe_combine_f32, k.sigmoid_f32, k.scale_rows_f32);
  add<DType::BF16>(kernels, isa, k.grouped_linear_bf16, k.moe_combine_bf16, k.sigmoid_bf16, k.scale_rows_bf16);
  add<DType::F16>(kernels, isa, k.grouped_linear_f16, k.moe_combine_f16, k.sigmoid_f16, k.scale_rows_f16);
}

}  // namespace reprise::cpu
