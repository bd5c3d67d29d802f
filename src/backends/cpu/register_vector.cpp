// Entries of the vector ops: norms, rotary embedding, elementwise, rows.
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/register.h"

namespace reprise::cpu {
namespace {

Status unsupported_dtype(const OpCall& c, DType takes) {
  return error(Code::Unsupported, "takes {}, not {}", dtype_name(takes), describe(c));
}

// The first operand has this dtype, and every size behind the first is a constant.
template <DType T>
Status accepts_float(const OpCall& c) {
  if (c.in[0].dtype != T) return unsupported_dtype(c, T);
  const Shape& s = c.in[0].shape;
  for (int i = 1; i < s.rank(); ++i)
    if (!s[i].is_constant()) return error(Code::Unsupported, "size {} of {} is not a constant", i, describe(c));
  return Status::ok();
}

// Product of the constant sizes [from, to) of a shape.
Dim product(const Shape& s, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; ++i) n *= s[i].factor;
  return n;
}

void bind_rms_norm(const OpCall& c, LaunchArgs& args) {
  const Shape& s = c.in[0].shape;
  args.dim[0] = s[0];
  args.dim[1] = product(s, 1, s.rank() - 1);
  args.dim[2] = s.back();
  args.scalar[0] = c.attrs->number("eps");
}

template <DType T>
Status accepts_rope(const OpCall& c) {
  RETURN_IF_ERROR(accepts_float<T>(c));
  const Dim rot = c.in[1].shape[1];
  if (!rot.is_constant() || rot.factor % 2 != 0)
    return error(Code::Unsupported, "the rotated size of {} is not an even constant", describe(c));
  return Status::ok();
}

void bind_rope(const OpCall& c, LaunchArgs& args) {
  for (int i = 0; i < 3; ++i) args.dim[i] = c.in[0].shape[i];
  args.dim[3] = c.in[1].shape[1];
}

Status accepts_rope_table(const OpCall& c) {
  if (c.attrs->integer("ntk_window") > 0 && (c.attrs->integer("dim") <= 2 || !(c.attrs->number("ntk_base") > 0)))
    return error(Code::Unsupported, "dynamic NTK needs dim > 2 and ntk_base > 0, not dim {} and ntk_base {}",
                 c.attrs->integer("dim"), c.attrs->number("ntk_base"));
  return Status::ok();
}

void bind_rope_table(const OpCall& c, LaunchArgs& args) {
  // The attribute lives as long as the graph, and so as long as anything bound from it.
  args.ptr[2] = const_cast<double*>(c.attrs->numbers("inv_freq").data());
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.attrs->integer("dim");
  args.dim[2] = c.attrs->integer("ntk_window");
  args.scalar[0] = c.attrs->number("scale");
  args.scalar[1] = c.attrs->number("ntk_base");
  args.scalar[2] = c.attrs->number("ntk_factor");
}

void bind_elementwise(const OpCall& c, LaunchArgs& args) {
  const Shape& s = c.in[0].shape;
  args.dim[0] = s[0];
  args.dim[1] = product(s, 1, s.rank());
}

Status accepts_rows(const OpCall& c) {
  if (!c.in[0].shape[1].is_constant())
    return error(Code::Unsupported, "the row size of {} is not a constant", describe(c));
  return Status::ok();
}

void bind_rows(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[1].shape[0];
  args.dim[2] = c.in[0].shape[1].factor * static_cast<int64_t>(size_of(c.in[0].dtype));
}

using Accepts = Status (*)(const OpCall&);
using Bind = void (*)(const OpCall&, LaunchArgs&);

}  // namespace

void register_vector(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  auto add = [&](std::string_view op, std::string_view dtype, Accepts accepts, Bind bind, CpuKernel kernel) {
    KernelEntry e;
    e.name = fmt::format("cpu.{}{}{}.{}", op, dtype.empty() ? "" : ".", dtype, isa_name(isa));
    e.op = op;
    e.score = 100;
    e.accepts = accepts;
    e.bind = bind;
    e.phase[0] = opaque(kernel);
    kernels.add(std::move(e));
  };
#define REPRISE_ADD(op, accepts, bind)                       \
  add(#op, "f32", accepts<DType::F32>, bind, k.op##_f32);    \
  add(#op, "bf16", accepts<DType::BF16>, bind, k.op##_bf16); \
  add(#op, "f16", accepts<DType::F16>, bind, k.op##_f16)
  REPRISE_ADD(rms_norm, accepts_float, bind_rms_norm);
  REPRISE_ADD(rope, accepts_rope, bind_rope);
  REPRISE_ADD(add, accepts_float, bind_elementwise);
  REPRISE_ADD(mul, accepts_float, bind_elementwise);
  REPRISE_ADD(silu, accepts_float, bind_elementwise);
#undef REPRISE_ADD
  add("rope_table", "", accepts_rope_table, bind_rope_table, k.rope_table);
  add("rows", "", accepts_rows, bind_rows, k.rows);
}

}  // namespace reprise::cpu
