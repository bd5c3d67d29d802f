// Entries of what works number by number, and of copies of rows.
#include "backends/cuda/register.h"

namespace reprise::cuda {
namespace {

void bind_elements(const OpCall& c, LaunchArgs& args) {
  const Shape& s = c.in[0].shape;
  args.dim[0] = s[0];
  args.dim[1] = product_of(s, 1, s.rank());
}

void bind_halves(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1].factor / 2;
}

Status accepts_slice(const OpCall&) { return Status::ok(); }  // bytes of any type; its width is constant by itself

void bind_slice(const OpCall& c, LaunchArgs& args) {
  const auto element = static_cast<int64_t>(size_of(c.in[0].dtype));
  const Shape& s = c.in[0].shape;
  args.dim[0] = product_of(s, 0, s.rank() - 1);
  args.dim[1] = s.back().factor * element;
  args.dim[2] = c.attrs->integer("begin") * element;
  args.dim[3] = c.attrs->integer("size") * element;
}

Status accepts_copy(const OpCall& c) {
  int symbols = 0;
  for (Dim d : c.in[0].shape.dims()) symbols += d.is_constant() ? 0 : 1;
  if (symbols > 1) return error(Code::Unsupported, "more than one size of {} is not a constant", describe(c));
  return Status::ok();
}

void bind_copy(const OpCall& c, LaunchArgs& args) {
  Dim bytes = product_of(c.in[0].shape, 0, c.in[0].shape.rank());
  bytes.factor *= static_cast<int64_t>(size_of(c.in[0].dtype));
  args.dim[0] = bytes;
}

Status accepts_picked_rows(const OpCall& c) { return want_constant_rows(c, 0); }

void bind_rows(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[1].shape[0];
  args.dim[2] = c.in[0].shape[1].factor * static_cast<int64_t>(size_of(c.in[0].dtype));
}

}  // namespace

void register_elements(KernelRegistry& kernels, const KernelTable& table) {
  auto add = [&](std::string_view op, const PerType& k, Bind bind) {
    add_entry(kernels, op, "f32", accepts_rows_of<DType::F32>, bind, k.f32);
    add_entry(kernels, op, "bf16", accepts_rows_of<DType::BF16>, bind, k.bf16);
    add_entry(kernels, op, "f16", accepts_rows_of<DType::F16>, bind, k.f16);
  };
  add("add", table.add, bind_elements);
  add("mul", table.mul, bind_elements);
  add("silu", table.silu, bind_elements);
  add("sigmoid", table.sigmoid, bind_elements);
  add("reciprocal", table.reciprocal, bind_elements);
  add("silu_mul", table.silu_mul, bind_halves);
  add("scale_rows", table.scale_rows, bind_elements);
  add_entry(kernels, "slice", "", accepts_slice, bind_slice, table.slice);
  add_entry(kernels, "copy", "", accepts_copy, bind_copy, table.copy);
  add_entry(kernels, "rows", "", accepts_picked_rows, bind_rows, table.rows);
  add_entry(kernels, "embedding", "", accepts_picked_rows, bind_rows, table.embedding);
}

}  // namespace reprise::cuda
