// Entries of the vector ops: norms, rotary embedding, elementwise, int8, argmax, slice, copy, rows.
#include "backends/cpu/kernels/argmax_shape.h"
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
// A size is a number times at most one symbol; of the sizes multiplied at most one has one.
Dim product(const Shape& s, int from, int to) {
  Dim n(1);
  for (int i = from; i < to; ++i) {
    n.factor *= s[i].factor;
    if (s[i].symbol != 0) n.symbol = s[i].symbol;
  }
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
  if (c.in[1].dtype != DType::F32) return unsupported_dtype(c, DType::F32);
  const Dim rot = c.in[1].shape[1];
  if (!rot.is_constant() || rot.factor % 2 != 0)
    return error(Code::Unsupported, "the rotated size of {} is not an even constant", describe(c));
  return Status::ok();
}

void bind_rope(const OpCall& c, LaunchArgs& args) {
  for (int i = 0; i < 3; ++i) args.dim[i] = c.in[0].shape[i];
  args.dim[3] = c.in[1].shape[1];
  args.dim[4] = c.attrs->integer("interleaved");
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

// Scale and offset are one number, or one per column: fixed here, because the kernel reads them in different ways.
template <DType T>
Status accepts_quantize_static(const OpCall& c) {
  RETURN_IF_ERROR(accepts_float<T>(c));
  for (int i : {1, 2})
    if (!c.in[i].shape[0].is_constant())
      return error(Code::Unsupported, "the size of scale or offset of {} is not a constant", describe(c));
  return Status::ok();
}

void bind_quantize_static(const OpCall& c, LaunchArgs& args) {
  bind_elementwise(c, args);
  for (int i : {1, 2}) args.dim[i + 1] = c.in[i].shape[0].factor == 1 ? 0 : 1;
}

size_t argmax_workspace(const OpCall& c, const LiveSizes& bound, int ranks) {
  return best_bytes(c.in[0].shape[0].value(bound), ranks);
}

// A rank's scratch memory holds a candidate for every column.
size_t sample_workspace(const OpCall& c, const LiveSizes&, int ranks) {
  return static_cast<size_t>(c.in[0].shape[1].factor * ranks) * sizeof(int64_t);
}

Status accepts_slice(const OpCall&) { return Status::ok(); }  // bytes of any type; its width is constant by itself

void bind_slice(const OpCall& c, LaunchArgs& args) {
  const int64_t element = static_cast<int64_t>(size_of(c.in[0].dtype));
  const Shape& s = c.in[0].shape;
  args.dim[0] = product(s, 0, s.rank() - 1);
  args.dim[1] = s.back().factor * element;
  args.dim[2] = c.attrs->integer("begin") * element;
  args.dim[3] = c.attrs->integer("size") * element;
}

// A size is a number times at most one symbol.
Status accepts_copy(const OpCall& c) {
  int symbols = 0;
  for (Dim d : c.in[0].shape.dims()) symbols += d.is_constant() ? 0 : 1;
  if (symbols > 1) return error(Code::Unsupported, "more than one size of {} is not a constant", describe(c));
  return Status::ok();
}

void bind_copy(const OpCall& c, LaunchArgs& args) {
  Dim bytes(static_cast<int64_t>(size_of(c.in[0].dtype)));
  for (Dim d : c.in[0].shape.dims()) bytes = Dim(bytes.factor * d.factor, d.is_constant() ? bytes.symbol : d.symbol);
  args.dim[0] = bytes;
}

Status accepts_picked_rows(const OpCall& c) {
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
using Workspace = size_t (*)(const OpCall&, const LiveSizes&, int);

}  // namespace

void register_vector(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  auto add = [&](std::string_view op, std::string_view dtype, Accepts accepts, Bind bind, CpuKernel kernel,
                 CpuKernel second = nullptr, Workspace workspace = nullptr) {
    KernelEntry e = entry_of(op, dtype, isa, accepts, bind, kernel, second);
    e.workspace = workspace;
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
  REPRISE_ADD(reciprocal, accepts_float, bind_elementwise);
  REPRISE_ADD(quantize_static, accepts_quantize_static, bind_quantize_static);
  REPRISE_ADD(quantize_dynamic, accepts_float, bind_elementwise);
#undef REPRISE_ADD
  add("argmax", "f32", accepts_float<DType::F32>, bind_elementwise, k.argmax_f32, k.argmax_merge, argmax_workspace);
  add("argmax", "bf16", accepts_float<DType::BF16>, bind_elementwise, k.argmax_bf16, k.argmax_merge, argmax_workspace);
  add("argmax", "f16", accepts_float<DType::F16>, bind_elementwise, k.argmax_f16, k.argmax_merge, argmax_workspace);
  add("sample", "", accepts_float<DType::F32>, bind_elementwise, k.sample, nullptr, sample_workspace);
  add("slice", "", accepts_slice, bind_slice, k.slice);
  add("copy", "", accepts_copy, bind_copy, k.copy);
  add("rope_table", "", accepts_rope_table, bind_rope_table, k.rope_table);
  add("rows", "", accepts_picked_rows, bind_rows, k.rows);
}

}  // namespace reprise::cpu
