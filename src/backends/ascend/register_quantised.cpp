// Entries of W8A8: quantising rows, int8 products, and the fusions around them.
//
// A static quantisation is computed in fp32 (the vendor's operator wants scales in x's type, which would round them).
// Weights are stored in FRACTAL_NZ, blocks of 16 rows and 32 columns in the order in which the cube unit reads them;
// where the operator refuses that, as rows.
#include <algorithm>

#include "backends/ascend/entries.h"
#include "backends/ascend/fractal.h"

namespace reprise::ascend {
namespace {

int64_t size(const LaunchArgs& args, int i, const LiveSizes& live) {
  return args.dim[static_cast<size_t>(i)].value(live);
}

Status quantize_static(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live);
  aclTensor* x = l.tensor(a.ptr[0], type_of(a, 0), {rows, width});
  if (type_of(a, 0) != DType::F32) {
    void* to = l.scratch(static_cast<size_t>(rows * width) * sizeof(float));
    aclTensor* wide = l.tensor(to, DType::F32, {rows, width});
    RETURN_IF_ERROR(l.run(l.ops().cast, x, ACL_FLOAT, wide));
    x = wide;
  }
  return l.run(l.ops().quantize, x, l.tensor(a.ptr[1], DType::F32, {size(a, 2, live)}),
               l.tensor(a.ptr[2], DType::F32, {size(a, 3, live)}), false, "round", ACL_INT8, -1,
               l.tensor(a.ptr[3], DType::I8, {rows, width}));
}

void bind_quantize(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  for (size_t i = 1; i < c.in.size(); ++i) args.dim[i + 1] = c.in[i].shape[0];
}

Status quantize_dynamic(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live);
  return l.run(l.ops().dynamic_quantize, l.tensor(a.ptr[0], type_of(a, 0), {rows, width}), nullptr,
               l.tensor(a.ptr[1], DType::I8, {rows, width}), l.tensor(a.ptr[2], DType::F32, {rows}));
}

// An operand that may be left out. A probe's addresses are null, so that tells nothing.
struct Optional {
  bool given = false;
  void* data = nullptr;
};

// A weight [N, K] as blocks [K / 32, N / 16, 16, 32], padded with zeros.
size_t fractal_bytes(const TensorType& type) {
  return static_cast<size_t>(blocks(type.shape[1].factor, kBlockColumns) * blocks(type.shape[0].factor, kBlockRows) *
                             kBlockRows * kBlockColumns);
}

void fractal_pack(const TensorType& type, void* dst, const void* rows, int64_t first, int64_t count) {
  const int64_t k = type.shape[1].factor, down = blocks(type.shape[0].factor, kBlockRows);
  for (int64_t row = first; row < first + count; ++row) {
    const auto* from = static_cast<const int8_t*>(rows) + (row - first) * k;
    for (int64_t column = 0; column < k; column += kBlockColumns) {
      const int64_t block = column / kBlockColumns * down + row / kBlockRows;
      auto* to = static_cast<int8_t*>(dst) + (block * kBlockRows + row % kBlockRows) * kBlockColumns;
      std::copy_n(from + column, std::min(kBlockColumns, k - column), to);
    }
  }
}

// x [T, K] by weight [N, K]; `out` in bf16 or f16, widened afterwards where fp32 is asked for.
struct Product {
  bool fractal;
  void *x, *weight, *scale;
  Optional row_scale;
  Optional bias;  // of `bias_type`, i32 or f32
  DType bias_type;
  Optional add;  // f32, after a bias of integers
  void* out;
  DType out_type;
};

Status product(const Product& p, const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), k = size(a, 1, live), n = size(a, 2, live);
  const bool wide = p.out_type == DType::F32;
  const DType narrow = wide ? DType::BF16 : p.out_type;
  auto rows = [&](void* data, DType type) { return l.tensor(data, type, {t, n}); };
  const bool between = wide || p.add.given;
  aclTensor* y = rows(between ? l.scratch(static_cast<size_t>(t * n) * size_of(narrow)) : p.out, narrow);
  aclTensor* x = l.tensor(p.x, DType::I8, {t, k});
  aclTensor* scale = l.tensor(p.scale, DType::F32, {n});
  aclTensor* row_scale = p.row_scale.given ? l.tensor(p.row_scale.data, DType::F32, {t}) : nullptr;
  aclTensor* bias = p.bias.given ? l.tensor(p.bias.data, p.bias_type, {n}) : nullptr;
  if (p.fractal) {
    aclTensor* weight = l.fractal(p.weight, DType::I8, {n, k},
                                  {blocks(k, kBlockColumns), blocks(n, kBlockRows), kBlockRows, kBlockColumns});
    RETURN_IF_ERROR(l.run(l.ops().quant_matmul_nz, x, weight, row_scale, scale, nullptr, nullptr, nullptr, nullptr,
                          bias, false, true, 0, y));
  } else {
    RETURN_IF_ERROR(l.run(l.ops().quant_matmul, x, l.tensor(p.weight, DType::I8, {n, k}), scale, nullptr, row_scale,
                          bias, false, true, y));
  }
  if (p.add.given)
    return l.run(l.ops().add, y, l.tensor(p.add.data, DType::F32, {n}), l.number(1), rows(p.out, p.out_type));
  return wide ? l.run(l.ops().cast, y, ACL_FLOAT, rows(p.out, DType::F32)) : Status::ok();
}

template <bool Fractal>
Status linear_dynamic(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const Optional scales{true, a.ptr[1]}, bias{a.scalar[0] != 0, a.ptr[4]};
  return product({Fractal, a.ptr[0], a.ptr[2], a.ptr[3], scales, bias, DType::F32, {}, a.ptr[5], type_of(a, 5)}, a,
                 live, l);
}

// fp16 wants a scale per row; there is none, so it is 1.
template <bool Fractal>
Status linear_static(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live);
  if (t > Context::kRows)
    return error(Code::Unsupported, "linear_w8a8_static: {} rows in one step, at most {}", t, Context::kRows);
  const Optional ones{type_of(a, 5) == DType::F16, a.ptr[6]}, bias{true, a.ptr[3]}, more{a.scalar[0] != 0, a.ptr[4]};
  return product({Fractal, a.ptr[0], a.ptr[1], a.ptr[2], ones, bias, DType::I32, more, a.ptr[5], type_of(a, 5)}, a,
                 live, l);
}

// Weight is operand `weight`; an added vector is operand 4.
void bind_product(const OpCall& c, LaunchArgs& args, size_t weight) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[weight].shape[1];
  args.dim[2] = c.in[weight].shape[0];
  args.scalar[0] = c.in.size() > 4 ? 1 : 0;
}

// Results: int8 rows, their scales, the sum. The operator's second pair of results is not asked for.
Status add_rms_norm_dynamic(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live);
  const DType type = type_of(a, 0);
  auto of = [&](int i, DType t) { return l.tensor(a.ptr[static_cast<size_t>(i)], t, {rows, width}); };
  void *none = l.scratch(64), *no_scale = l.scratch(64);
  return l.run(l.ops().add_rms_norm_dynamic_quant, of(0, type), of(1, type), l.tensor(a.ptr[2], type, {width}), nullptr,
               nullptr, a.scalar[0], of(4, DType::I8), l.tensor(none, DType::I8, {1}), of(6, type),
               l.tensor(a.ptr[5], DType::F32, {rows}), l.tensor(no_scale, DType::F32, {1}));
}

// The vendor divides by a scale for each column, in x's type beside bf16 and in fp32 beside f16, and adds a zero point.
// Results: int8 rows, the sum.
Status norm_divided(const LaunchArgs& a, const LiveSizes& live, Launch& l, void* divisors, void* zeros, int results) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live);
  const DType type = type_of(a, 0);
  const bool bf16 = type == DType::BF16;
  auto of = [&](int i, DType t) { return l.tensor(a.ptr[static_cast<size_t>(i)], t, {rows, width}); };
  return l.run(l.ops().add_rms_norm_quant, of(0, type), of(1, type), l.tensor(a.ptr[2], type, {width}),
               l.tensor(divisors, bf16 ? DType::BF16 : DType::F32, {width}), nullptr,
               l.tensor(zeros, bf16 ? DType::BF16 : DType::I32, {width}), nullptr, -1, a.scalar[0], true,
               of(results, DType::I8), l.tensor(l.scratch(64), DType::I8, {1}), of(results + 1, type));
}

Status add_rms_norm_divided(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  return norm_divided(a, live, l, a.ptr[3], a.ptr[4], 5);
}

// From the reciprocals that the op has; the pass load_quant_divisors makes it add_rms_norm_divided.
Status add_rms_norm_static(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t width = size(a, 1, live), scales = size(a, 2, live), offsets = size(a, 3, live);
  const bool bf16 = type_of(a, 0) == DType::BF16;
  void *by = l.scratch(static_cast<size_t>(scales) * sizeof(float)),
       *divisors = l.scratch(static_cast<size_t>(width) * sizeof(float)),
       *zeros = l.scratch(static_cast<size_t>(width) * sizeof(float));
  aclTensor* divided = l.tensor(by, DType::F32, {scales});
  RETURN_IF_ERROR(l.run(l.ops().reciprocal, l.tensor(a.ptr[3], DType::F32, {scales}), divided));
  RETURN_IF_ERROR(l.run(l.ops().copy, l.tensor(divisors, bf16 ? DType::BF16 : DType::F32, {width}), divided));
  RETURN_IF_ERROR(l.run(l.ops().copy, l.tensor(zeros, bf16 ? DType::BF16 : DType::I32, {width}),
                        l.tensor(a.ptr[4], DType::F32, {offsets})));
  return norm_divided(a, live, l, divisors, zeros, 6);
}

Status silu_mul_quant(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live);
  static char dynamic[] = "dynamic";
  return l.run(l.ops().dequant_swiglu_quant, l.tensor(a.ptr[0], type_of(a, 0), {rows, width}), nullptr, nullptr,
               nullptr, nullptr, nullptr, nullptr, true, dynamic, l.tensor(a.ptr[1], DType::I8, {rows, width / 2}),
               l.tensor(a.ptr[2], DType::F32, {rows}));
}

Status without_bias_behind(const OpCall& c, size_t operands) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in.size() > operands)
    return error(Code::Unsupported, "the vendor's operator has no bias, as in {}", describe(c));
  return Status::ok();
}

}  // namespace

void register_quantised(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto entry = [&](Entry e) { add(kernels, context, std::move(e)); };
  // What these compute before int8 stays in fp32, where the parts round it to the model's dtype.
  const auto rounds_once = [&](Entry e) {
    e.exact = false;
    entry(std::move(e));
  };
  entry({"quantize_static", quantize_static, bind_quantize, want_constant_rows});
  entry({"quantize_dynamic", quantize_dynamic, bind_quantize, want_constant_rows});
  kernels.add(ParamLayout{"fractal_nz", DeviceKind::Ascend, fractal_bytes, fractal_pack});
  auto bind_dynamic = [](const OpCall& c, LaunchArgs& args) { bind_product(c, args, 2); };
  auto bind_static = [context](const OpCall& c, LaunchArgs& args) {
    bind_product(c, args, 1);
    args.ptr[6] = context->ones();
  };
  auto product_entry = [&](const char* op, AscendKernel fractal, AscendKernel rows, const auto& bind) {
    entry({op, fractal, bind, want_constant_rows, {}, ".nz", 100, {"fractal_nz"}});
    entry({op, rows, bind, want_constant_rows, {}, "", 50});
  };
  product_entry("linear_w8a8_dynamic", linear_dynamic<true>, linear_dynamic<false>, bind_dynamic);
  product_entry("linear_w8a8_static", linear_static<true>, linear_static<false>, bind_static);
  rounds_once({"add_rms_norm_quant_dynamic", add_rms_norm_dynamic,
               [](const OpCall& c, LaunchArgs& args) {
                 bind_quantize({c.op, c.in.first(1), c.out, c.attrs, {}}, args);
                 args.scalar[0] = c.attrs->number("eps");
               },
               [](const OpCall& c) { return without_bias_behind(c, 3); }});
  // Rows of whole 32 bytes: what the vendor's own graph compiler asks for before it fuses.
  auto accepts_static = [](const OpCall& c) -> Status {
    RETURN_IF_ERROR(without_bias_behind(c, 5));
    if (const int64_t width = c.in[0].shape[1].factor; width * 2 % 32 != 0)
      return error(Code::Unsupported, "rows of {} numbers; allowed: multiples of 16", width);
    return Status::ok();
  };
  rounds_once({"add_rms_norm_quant_static", add_rms_norm_static,
               [](const OpCall& c, LaunchArgs& args) {
                 bind_quantize({c.op, c.in.first(1), c.out, c.attrs, {}}, args);
                 args.dim[2] = c.in[3].shape[0];
                 args.dim[3] = c.in[4].shape[0];
                 args.scalar[0] = c.attrs->number("eps");
               },
               accepts_static});
  rounds_once({"add_rms_norm_quant_divided", add_rms_norm_divided,
               [](const OpCall& c, LaunchArgs& args) {
                 bind_quantize({c.op, c.in.first(1), c.out, c.attrs, {}}, args);
                 args.scalar[0] = c.attrs->number("eps");
               },
               accepts_static});
  rounds_once({"silu_mul_quant", silu_mul_quant, bind_quantize, want_constant_rows});
}

}  // namespace reprise::ascend
