// Entries of the floating-point ops: tables, products, norms, and what works element by element.
#include "backends/ascend/entries.h"
#include "backends/ascend/fractal.h"

namespace reprise::ascend {
namespace {

// Matrix products keep their operands' precision.
constexpr int8_t kKeepType = 0;

int64_t size(const LaunchArgs& args, int i, const LiveSizes& live) {
  return args.dim[static_cast<size_t>(i)].value(live);
}

Status embedding(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t v = size(a, 0, live), n = size(a, 1, live), t = size(a, 2, live);
  return l.run(l.ops().embedding, l.tensor(a.ptr[0], type_of(a, 0), {v, n}), l.tensor(a.ptr[1], type_of(a, 1), {t}),
               l.tensor(a.ptr[2], type_of(a, 2), {t, n}));
}

void bind_embedding(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.dim[2] = c.in[1].shape[0];
}

constexpr const char* kLinearLayout = "fractal_nz_columns";

// How a linear's weight lies, as its entry keeps it. Before the layout is chosen the operator for blocks is asked; a
// weight that is no parameter has no layout either, and lies in rows.
enum Stored : int64_t { kRowMajor, kBlocks, kNotChosen };

size_t linear_bytes(const TensorType& type) {
  return static_cast<size_t>(fractal_size<uint16_t>(type.shape[1].factor, type.shape[0].factor)) * sizeof(uint16_t);
}

void linear_pack(const TensorType& type, void* dst, const void* rows, int64_t first, int64_t count) {
  pack_columns(type.shape[0].factor, type.shape[1].factor, static_cast<uint16_t*>(dst),
               static_cast<const uint16_t*>(rows), first, count);
}

// The weight [N, K] is described as its transpose [K, N]: stored as that in blocks, or as rows by strides, which cost
// nothing.
Status linear(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), k = size(a, 1, live), n = size(a, 2, live);
  const DType type = type_of(a, 0), out_type = type_of(a, 3);
  aclTensor* x = l.tensor(a.ptr[0], type, {t, k});
  void* rounded = out_type == type ? a.ptr[3] : l.scratch(static_cast<size_t>(t * n) * size_of(type));
  aclTensor* y = l.tensor(rounded, type, {t, n});
  const int64_t stored = size(a, 3, live);
  if (stored == kBlocks || (stored == kNotChosen && l.probing())) {
    aclTensor* blocked = l.fractal(a.ptr[1], type, {k, n},
                                   {blocks(n, kBlockRows), blocks(k, kBlockRows), kBlockRows, kBlockColumns / 2});
    RETURN_IF_ERROR(l.run(l.ops().matmul_nz, x, blocked, y, kKeepType));
  } else {
    aclTensor* w = l.view(a.ptr[1], type, {k, n}, {1, k}, 0, n * k);
    if (a.scalar[0] != 0) {
      aclTensor* bias = l.tensor(a.ptr[2], type, {n});
      RETURN_IF_ERROR(l.run(l.ops().addmm, bias, x, w, l.number(1), l.number(1), y, kKeepType));
    } else {
      RETURN_IF_ERROR(l.run(l.ops().matmul, x, w, y, kKeepType));
    }
  }
  if (rounded == a.ptr[3]) return Status::ok();
  return l.run(l.ops().cast, y, acl_type(out_type), l.tensor(a.ptr[3], out_type, {t, n}));
}

void bind_linear(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[1].shape[1];
  args.dim[2] = c.in[1].shape[0];
  args.dim[3] = Dim(kRowMajor);
  args.scalar[0] = c.in.size() > 2 ? 1 : 0;
}

void bind_linear_nz(const OpCall& c, LaunchArgs& args) {
  bind_linear(c, args);
  args.dim[3] = Dim(c.param_layout == kLinearLayout ? kBlocks : c.param_layout.empty() ? kNotChosen : kRowMajor);
}

Status accepts_linear_nz(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in.size() > 2) return error(Code::Unsupported, "the operator has no bias, as in {}", describe(c));
  if (c.in[1].dtype != DType::BF16 && c.in[1].dtype != DType::F16)
    return error(Code::Unsupported, "weights in {}; allowed: bf16, f16", dtype_name(c.in[1].dtype));
  for (int d : {0, 1})
    if (const int64_t n = c.in[1].shape[d].factor; !c.in[1].shape[d].is_constant() || n % kBlockRows != 0)
      return error(Code::Unsupported, "weights of {} by {}; allowed: multiples of {}", c.in[1].shape[0].factor,
                   c.in[1].shape[1].factor, kBlockRows);
  return Status::ok();
}

// Rows of `width` numbers; `rows` of them.
Status rms_norm(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live);
  const DType type = type_of(a, 0);
  void* rstd = l.scratch(static_cast<size_t>(rows) * sizeof(float));
  const bool bias = a.scalar[1] != 0;
  void* y = bias ? l.scratch(static_cast<size_t>(rows * width) * size_of(type)) : a.ptr[3];
  aclTensor* normed = l.tensor(y, type, {rows, width});
  RETURN_IF_ERROR(l.run(l.ops().rms_norm, l.tensor(a.ptr[0], type, {rows, width}), l.tensor(a.ptr[1], type, {width}),
                        a.scalar[0], normed, l.tensor(rstd, DType::F32, {rows, 1})));
  if (!bias) return Status::ok();
  return l.run(l.ops().add, normed, l.tensor(a.ptr[2], type, {width}), l.number(1),
               l.tensor(a.ptr[3], type, {rows, width}));
}

void bind_rms_norm(const OpCall& c, LaunchArgs& args) {
  const Shape& s = c.in[0].shape;
  args.dim[0] = s.rank() == 3 ? Dim(s[0].factor * s[1].factor, s[0].symbol) : s[0];
  args.dim[1] = s.back();
  args.scalar[0] = c.attrs->number("eps");
  args.scalar[1] = c.in.size() > 2 ? 1 : 0;
}

Status add_rms_norm(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live);
  const DType type = type_of(a, 0);
  void* rstd = l.scratch(static_cast<size_t>(rows) * sizeof(float));
  return l.run(l.ops().add_rms_norm, l.tensor(a.ptr[0], type, {rows, width}), l.tensor(a.ptr[1], type, {rows, width}),
               l.tensor(a.ptr[2], type, {width}), a.scalar[0], l.tensor(a.ptr[4], type, {rows, width}),
               l.tensor(rstd, DType::F32, {rows, 1}), l.tensor(a.ptr[5], type, {rows, width}));
}

Status without_bias(const OpCall& c, size_t bias) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in.size() > bias) return error(Code::Unsupported, "the vendor's operator has no bias, as in {}", describe(c));
  return Status::ok();
}

void bind_rows(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = Dim(row_size(c.in[0].shape));
  args.scalar[0] = 0;
}

void bind_add_rms_norm(const OpCall& c, LaunchArgs& args) {
  bind_rows(c, args);
  args.scalar[0] = c.attrs->number("eps");
}

aclTensor* rows_of(const LaunchArgs& a, int i, const LiveSizes& live, Launch& l) {
  return l.tensor(a.ptr[static_cast<size_t>(i)], type_of(a, i), {size(a, 0, live), size(a, 1, live)});
}

Status add_rows(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  return l.run(l.ops().add, rows_of(a, 0, live, l), rows_of(a, 1, live, l), l.number(1), rows_of(a, 2, live, l));
}
Status mul_rows(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  return l.run(l.ops().mul, rows_of(a, 0, live, l), rows_of(a, 1, live, l), rows_of(a, 2, live, l));
}
Status silu_rows(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  return l.run(l.ops().silu, rows_of(a, 0, live, l), rows_of(a, 1, live, l));
}
Status reciprocal_rows(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  return l.run(l.ops().reciprocal, rows_of(a, 0, live, l), rows_of(a, 1, live, l));
}
Status copy_rows(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  return l.run(l.ops().copy, rows_of(a, 1, live, l), rows_of(a, 0, live, l));
}

Status silu_mul(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), width = size(a, 1, live);
  return l.run(l.ops().swiglu, rows_of(a, 0, live, l), -1, l.tensor(a.ptr[1], type_of(a, 1), {t, width / 2}));
}

// x[index[r]]
Status gather_rows(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t n = size(a, 2, live);
  return l.run(l.ops().index_select, rows_of(a, 0, live, l), 0, l.tensor(a.ptr[1], type_of(a, 1), {n}),
               l.tensor(a.ptr[2], type_of(a, 2), {n, size(a, 1, live)}));
}

void bind_gather_rows(const OpCall& c, LaunchArgs& args) {
  bind_rows(c, args);
  args.dim[2] = c.in[1].shape[0];
}

// Columns [begin, begin + size) of rows of `width`.
Status slice(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live), begin = size(a, 2, live), n = size(a, 3, live);
  return l.run(l.ops().copy, l.tensor(a.ptr[1], type_of(a, 1), {rows, n}),
               l.view(a.ptr[0], type_of(a, 0), {rows, n}, {width, 1}, begin, rows * width));
}

void bind_slice(const OpCall& c, LaunchArgs& args) {
  const Shape& s = c.in[0].shape;
  args.dim[0] = s.rank() == 3 ? Dim(s[0].factor * s[1].factor, s[0].symbol) : s[0];
  args.dim[1] = s.back();
  args.dim[2] = Dim(c.attrs->integer("begin"));
  args.dim[3] = Dim(c.attrs->integer("size"));
}

Status argmax(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  return l.run(l.ops().argmax, rows_of(a, 0, live, l), 1, false, l.tensor(a.ptr[1], type_of(a, 1), {size(a, 0, live)}));
}

}  // namespace

void register_dense(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto entry = [&](Entry e) { add(kernels, context, std::move(e)); };
  entry({"embedding", embedding, bind_embedding, want_constant_rows});
  kernels.add(ParamLayout{kLinearLayout, DeviceKind::Ascend, linear_bytes, linear_pack});
  entry({"linear", linear, bind_linear_nz, accepts_linear_nz, {}, ".nz", 100, {kLinearLayout, "row_major"}});
  entry({"linear", linear, bind_linear, want_constant_rows, {}, "", 50});
  entry({"rms_norm", rms_norm, bind_rms_norm, want_constant_rows});
  // Documented to round the sum before it is normed, as the parts do.
  entry({"add_rms_norm", add_rms_norm, bind_add_rms_norm, [](const OpCall& c) { return without_bias(c, 3); }});
  entry({"add", add_rows, bind_rows, want_constant_rows});
  entry({"mul", mul_rows, bind_rows, want_constant_rows});
  entry({"silu", silu_rows, bind_rows, want_constant_rows});
  entry({"reciprocal", reciprocal_rows, bind_rows, want_constant_rows});
  entry({"copy", copy_rows, bind_rows, want_constant_rows});
  entry({.op = "silu_mul", .kernel = silu_mul, .bind = bind_rows, .accepts = want_constant_rows, .exact = false});
  entry({"rows", gather_rows, bind_gather_rows, want_constant_rows});
  entry({"slice", slice, bind_slice, want_constant_rows});
  entry({"argmax", argmax, bind_rows, want_constant_rows});
}

}  // namespace reprise::ascend
