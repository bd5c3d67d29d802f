// Entries of the floating-point ops: tables, products, norms, and what works element by element.
#include "backends/ascend/entries.h"
#include "backends/ascend/fractal.h"
#include "ops/args/elements.h"
#include "ops/args/encoder.h"
#include "ops/args/norms.h"
#include "ops/args/products.h"

namespace reprise::ascend {
namespace {

Status embedding(const IndexSelectArgs& a, Launch& l) {
  const int64_t v = l.size(a.x_rows), n = a.width, t = l.size(a.rows);
  return l.run(l.ops().embedding, l.tensor(a.x, a.type, {v, n}), l.tensor(a.index, DType::I32, {t}),
               l.tensor(a.out, a.type, {t, n}));
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
Status linear(const LinearArgs& a, Launch& l) {
  const int64_t t = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  aclTensor* x = l.tensor(a.x, a.type, {t, k});
  const bool wide = a.out_type != a.type;
  aclTensor* y = l.tensor(wide ? l.scratch(static_cast<size_t>(t * n) * size_of(a.type)) : a.out.data, a.type, {t, n});
  if (l.way() == kBlocks || (l.way() == kNotChosen && l.probing())) {
    aclTensor* blocked = l.fractal(a.weight, a.type, {k, n},
                                   {blocks(n, kBlockRows), blocks(k, kBlockRows), kBlockRows, kBlockColumns / 2});
    RETURN_IF_ERROR(l.run(l.ops().matmul_nz, x, blocked, y, kKeepType));
  } else {
    aclTensor* w = l.view(a.weight, a.type, {k, n}, {1, k}, 0, n * k);
    if (a.bias) {
      aclTensor* bias = l.tensor(a.bias, a.type, {n});
      RETURN_IF_ERROR(l.run(l.ops().addmm, bias, x, w, l.number(1), l.number(1), y, kKeepType));
    } else {
      RETURN_IF_ERROR(l.run(l.ops().matmul, x, w, y, kKeepType));
    }
  }
  if (!wide) return Status::ok();
  return l.run(l.ops().cast, y, acl_type(a.out_type), l.tensor(a.out, a.out_type, {t, n}));
}

void bind_linear_nz(const OpCall& c, LaunchArgs& args) {
  args.way = c.param_layout == kLinearLayout ? kBlocks : c.param_layout.empty() ? kNotChosen : kRowMajor;
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

Status rms_norm(const RmsNormArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.width;
  void* rstd = l.scratch(static_cast<size_t>(rows) * sizeof(float));
  void* y = a.bias ? l.scratch(static_cast<size_t>(rows * width) * size_of(a.type)) : a.out.data;
  aclTensor* normed = l.tensor(y, a.type, {rows, width});
  RETURN_IF_ERROR(l.run(l.ops().rms_norm, l.tensor(a.x, a.type, {rows, width}), l.tensor(a.weight, a.type, {width}),
                        a.eps, normed, l.tensor(rstd, DType::F32, {rows, 1})));
  if (!a.bias) return Status::ok();
  return l.run(l.ops().add, normed, l.tensor(a.bias, a.type, {width}), l.number(1),
               l.tensor(a.out, a.type, {rows, width}));
}

Status add_rms_norm(const AddRmsNormArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  void* rstd = l.scratch(static_cast<size_t>(rows) * sizeof(float));
  const auto of = [&](const void* data) { return l.tensor(data, a.type, {rows, a.width}); };
  return l.run(l.ops().add_rms_norm, of(a.x), of(a.r), l.tensor(a.weight, a.type, {a.width}), a.eps, of(a.out),
               l.tensor(rstd, DType::F32, {rows, 1}), of(a.sum));
}

Status without_bias(const OpCall& c, size_t bias) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in.size() > bias) return error(Code::Unsupported, "the vendor's operator has no bias, as in {}", describe(c));
  return Status::ok();
}

// Rows of what works number by number.
aclTensor* rows_of(const void* data, const auto& a, Launch& l) {
  return l.tensor(data, a.type, {l.size(a.rows), a.width});
}

Status add_rows(const BinaryArgs& a, Launch& l) {
  return l.run(l.ops().add, rows_of(a.a, a, l), rows_of(a.b, a, l), l.number(1), rows_of(a.out, a, l));
}
Status mul_rows(const BinaryArgs& a, Launch& l) {
  return l.run(l.ops().mul, rows_of(a.a, a, l), rows_of(a.b, a, l), rows_of(a.out, a, l));
}
Status silu_rows(const UnaryArgs& a, Launch& l) {
  return l.run(l.ops().silu, rows_of(a.x, a, l), rows_of(a.out, a, l));
}
Status reciprocal_rows(const UnaryArgs& a, Launch& l) {
  return l.run(l.ops().reciprocal, rows_of(a.x, a, l), rows_of(a.out, a, l));
}
Status copy_rows(const CopyArgs& a, Launch& l) { return l.run(l.ops().copy, rows_of(a.out, a, l), rows_of(a.x, a, l)); }

Status silu_mul(const SiluMulArgs& a, Launch& l) {
  return l.run(l.ops().swiglu, l.tensor(a.gate_up, a.type, {l.size(a.rows), 2 * a.width}), -1, rows_of(a.out, a, l));
}

// x[index[r]]
Status gather_rows(const IndexSelectArgs& a, Launch& l) {
  const int64_t n = l.size(a.rows);
  return l.run(l.ops().index_select, l.tensor(a.x, a.type, {l.size(a.x_rows), a.width}), 0,
               l.tensor(a.index, DType::I32, {n}), l.tensor(a.out, a.type, {n, a.width}));
}

Status slice(const SliceArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  return l.run(l.ops().copy, l.tensor(a.out, a.type, {rows, a.size}),
               l.view(a.x, a.type, {rows, a.size}, {a.width, 1}, a.begin, rows * a.width));
}

// Either part into its columns, as bytes.
Status concat(const ConcatArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.a_width + a.b_width;
  const auto put = [&](const void* part, int64_t begin, int64_t count) {
    return l.run(l.ops().copy, l.view(a.out, DType::I8, {rows, count}, {width, 1}, begin, rows * width),
                 l.tensor(part, DType::I8, {rows, count}));
  };
  RETURN_IF_ERROR(put(a.a, 0, a.a_width));
  return put(a.b, a.a_width, a.b_width);
}

// Plain memory, however the weights lie in it.
Status prefetch(const PrefetchArgs& a, Launch& l) {
  const Library& acl = l.library();
  return l.enqueue([&](aclrtStream stream) {
    auto* from = static_cast<char*>(const_cast<void*>(a.param.data)) + a.first;
    return acl.check(acl.aclrtCmoAsync(from, static_cast<size_t>(a.bytes), ACL_RT_CMO_TYPE_PREFETCH, stream),
                     "read weights ahead");
  });
}

Status argmax(const UnaryArgs& a, Launch& l) {
  return l.run(l.ops().argmax, rows_of(a.x, a, l), 1, false, l.tensor(a.out, DType::I32, {l.size(a.rows)}));
}

}  // namespace

void register_dense(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto entry = [&](Entry e) { add(kernels, context, std::move(e)); };
  entry({"embedding", kernel<embedding>, {}, want_constant_rows});
  kernels.add(ParamLayout{kLinearLayout, DeviceKind::Ascend, linear_bytes, linear_pack});
  entry({"linear", kernel<linear>, bind_linear_nz, accepts_linear_nz, {}, ".nz", 100, {kLinearLayout, "row_major"}});
  entry({"linear", kernel<linear>, {}, want_constant_rows, {}, "", 50});
  entry({"rms_norm", kernel<rms_norm>, {}, want_constant_rows});
  // Documented to round the sum before it is normed, as the parts do.
  entry({"add_rms_norm", kernel<add_rms_norm>, {}, [](const OpCall& c) { return without_bias(c, 3); }});
  entry({"add", kernel<add_rows>, {}, want_constant_rows});
  entry({"mul", kernel<mul_rows>, {}, want_constant_rows});
  entry({"silu", kernel<silu_rows>, {}, want_constant_rows});
  entry({"reciprocal", kernel<reciprocal_rows>, {}, want_constant_rows});
  entry({"copy", kernel<copy_rows>, {}, want_constant_rows});
  entry({.op = "silu_mul", .kernel = kernel<silu_mul>, .accepts = want_constant_rows, .exact = false});
  entry({"index_select", kernel<gather_rows>, {}, want_constant_rows});
  entry({"slice", kernel<slice>, {}, want_constant_rows});
  entry({"concat", kernel<concat>, {}, want_constant_rows});
  entry({"argmax", kernel<argmax>, {}, want_constant_rows});
  if (context->library().aclrtCmoAsync) entry({"prefetch", kernel<prefetch>, {}, want_constant_rows});
}

}  // namespace reprise::ascend
