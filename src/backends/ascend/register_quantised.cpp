// Entries of W8A8: quantising rows, int8 products, and the fusions around them.
//
// A static quantisation is computed in fp32 (the vendor's operator wants scales in x's type, which would round them).
// Weights are stored in FRACTAL_NZ, blocks of 16 rows and 32 columns in the order in which the cube unit reads them;
// where the operator refuses that, as rows.
#include <algorithm>

#include "backends/ascend/entries.h"
#include "backends/ascend/fractal.h"
#include "ops/args/norms.h"
#include "ops/args/products.h"
#include "ops/args/quantise.h"

namespace reprise::ascend {
namespace {

Status quantize_static(const QuantizeStaticArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.width;
  aclTensor* x = l.tensor(a.x, a.type, {rows, width});
  if (a.type != DType::F32) {
    void* to = l.scratch(static_cast<size_t>(rows * width) * sizeof(float));
    aclTensor* wide = l.tensor(to, DType::F32, {rows, width});
    RETURN_IF_ERROR(l.run(l.ops().cast, x, ACL_FLOAT, wide));
    x = wide;
  }
  return l.run(l.ops().quantize, x, l.tensor(a.scale, DType::F32, {a.scales}),
               l.tensor(a.offset, DType::F32, {a.offsets}), false, "round", ACL_INT8, -1,
               l.tensor(a.values, DType::I8, {rows, width}));
}

Status quantize_dynamic(const QuantizeDynamicArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  return l.run(l.ops().dynamic_quantize, l.tensor(a.x, a.type, {rows, a.width}), nullptr,
               l.tensor(a.values, DType::I8, {rows, a.width}), l.tensor(a.scale, DType::F32, {rows}));
}

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

// x [T, K] by weight [N, K]; `out` in bf16 or f16, widened afterwards where fp32 is asked for. What is not there is
// null; `bias` is of `bias_type`, i32 or f32, `add` f32 behind a bias of integers.
struct Product {
  bool fractal;
  const void *x, *weight, *scale, *row_scale, *bias;
  DType bias_type;
  const void* add;
  void* out;
};

Status product(const Product& p, const auto& a, Launch& l) {
  const int64_t t = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const bool wide = a.out_type == DType::F32;
  const DType narrow = wide ? DType::BF16 : a.out_type;
  auto rows = [&](void* data, DType type) { return l.tensor(data, type, {t, n}); };
  const bool between = wide || p.add;
  aclTensor* y = rows(between ? l.scratch(static_cast<size_t>(t * n) * size_of(narrow)) : p.out, narrow);
  aclTensor* x = l.tensor(p.x, DType::I8, {t, k});
  aclTensor* scale = l.tensor(p.scale, DType::F32, {n});
  aclTensor* row_scale = p.row_scale ? l.tensor(p.row_scale, DType::F32, {t}) : nullptr;
  aclTensor* bias = p.bias ? l.tensor(p.bias, p.bias_type, {n}) : nullptr;
  if (p.fractal) {
    aclTensor* weight = l.fractal(p.weight, DType::I8, {n, k},
                                  {blocks(k, kBlockColumns), blocks(n, kBlockRows), kBlockRows, kBlockColumns});
    RETURN_IF_ERROR(l.run(l.ops().quant_matmul_nz, x, weight, row_scale, scale, nullptr, nullptr, nullptr, nullptr,
                          bias, false, true, 0, y));
  } else {
    RETURN_IF_ERROR(l.run(l.ops().quant_matmul, x, l.tensor(p.weight, DType::I8, {n, k}), scale, nullptr, row_scale,
                          bias, false, true, y));
  }
  if (p.add) return l.run(l.ops().add, y, l.tensor(p.add, DType::F32, {n}), l.number(1), rows(p.out, a.out_type));
  return wide ? l.run(l.ops().cast, y, ACL_FLOAT, rows(p.out, DType::F32)) : Status::ok();
}

template <bool Fractal>
Status linear_dynamic(const LinearW8a8DynamicArgs& a, Launch& l) {
  return product({Fractal, a.x, a.weight, a.scale, a.x_scale, a.add, DType::F32, nullptr, a.out}, a, l);
}

// fp16 wants a scale per row; there is none, so it is 1, the constant.
template <bool Fractal>
Status linear_static(const LinearW8a8StaticArgs& a, Launch& l) {
  const int64_t t = l.size(a.shape.rows);
  if (t > Context::kRows)
    return error(Code::Unsupported, "linear_w8a8_static: {} rows in one step, at most {}", t, Context::kRows);
  const void* ones = a.out_type != DType::F16 ? nullptr : l.constant() ? l.constant() : Launch::nowhere();
  return product({Fractal, a.x, a.weight, a.scale, ones, a.bias, DType::I32, a.add, a.out}, a, l);
}

// Results: int8 rows, their scales, the sum. The operator's second pair of results is not asked for.
Status add_rms_norm_dynamic(const AddRmsNormQuantDynamicArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.width;
  auto of = [&](const void* data, DType t) { return l.tensor(data, t, {rows, width}); };
  void *none = l.scratch(64), *no_scale = l.scratch(64);
  return l.run(l.ops().add_rms_norm_dynamic_quant, of(a.x, a.type), of(a.r, a.type),
               l.tensor(a.weight, a.type, {width}), nullptr, nullptr, a.eps, of(a.values, DType::I8),
               l.tensor(none, DType::I8, {1}), of(a.sum, a.type), l.tensor(a.scale, DType::F32, {rows}),
               l.tensor(no_scale, DType::F32, {1}));
}

// The vendor divides by a scale for each column, in x's type with bf16 and in fp32 with f16, and adds a zero point.
// Results: int8 rows, the sum.
Status norm_divided(const auto& a, const void* divisors, const void* zeros, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.width;
  const bool bf16 = a.type == DType::BF16;
  auto of = [&](const void* data, DType t) { return l.tensor(data, t, {rows, width}); };
  return l.run(l.ops().add_rms_norm_quant, of(a.x, a.type), of(a.r, a.type), l.tensor(a.weight, a.type, {width}),
               l.tensor(divisors, bf16 ? DType::BF16 : DType::F32, {width}), nullptr,
               l.tensor(zeros, bf16 ? DType::BF16 : DType::I32, {width}), nullptr, -1, a.eps, true,
               of(a.values, DType::I8), l.tensor(l.scratch(64), DType::I8, {1}), of(a.sum, a.type));
}

Status add_rms_norm_divided(const AddRmsNormQuantDividedArgs& a, Launch& l) {
  return norm_divided(a, a.divisor, a.zero, l);
}

// From the reciprocals that the op has; the pass load_quant_divisors makes it add_rms_norm_divided.
Status add_rms_norm_static(const AddRmsNormQuantStaticArgs& a, Launch& l) {
  const int64_t width = a.width;
  const bool bf16 = a.type == DType::BF16;
  void *by = l.scratch(static_cast<size_t>(a.scales) * sizeof(float)),
       *divisors = l.scratch(static_cast<size_t>(width) * sizeof(float)),
       *zeros = l.scratch(static_cast<size_t>(width) * sizeof(float));
  aclTensor* divided = l.tensor(by, DType::F32, {a.scales});
  RETURN_IF_ERROR(l.run(l.ops().reciprocal, l.tensor(a.scale, DType::F32, {a.scales}), divided));
  RETURN_IF_ERROR(l.run(l.ops().copy, l.tensor(divisors, bf16 ? DType::BF16 : DType::F32, {width}), divided));
  RETURN_IF_ERROR(l.run(l.ops().copy, l.tensor(zeros, bf16 ? DType::BF16 : DType::I32, {width}),
                        l.tensor(a.offset, DType::F32, {a.offsets})));
  return norm_divided(a, divisors, zeros, l);
}

Status silu_mul_quant(const SiluMulQuantArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.width;
  static char dynamic[] = "dynamic";
  return l.run(l.ops().dequant_swiglu_quant, l.tensor(a.gate_up, a.type, {rows, 2 * width}), nullptr, nullptr, nullptr,
               nullptr, nullptr, nullptr, true, dynamic, l.tensor(a.values, DType::I8, {rows, width}),
               l.tensor(a.scale, DType::F32, {rows}));
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
  entry({"quantize_static", kernel<quantize_static>, {}, want_constant_rows});
  entry({"quantize_dynamic", kernel<quantize_dynamic>, {}, want_constant_rows});
  kernels.add(ParamLayout{"fractal_nz", DeviceKind::Ascend, fractal_bytes, fractal_pack});
  const auto ones = [context](const OpCall&, LaunchArgs& args) { args.constant = context->ones(); };
  entry({"linear_w8a8_dynamic", kernel<linear_dynamic<true>>, {}, want_constant_rows, {}, ".nz", 100, {"fractal_nz"}});
  entry({"linear_w8a8_dynamic", kernel<linear_dynamic<false>>, {}, want_constant_rows, {}, "", 50});
  entry({"linear_w8a8_static", kernel<linear_static<true>>, ones, want_constant_rows, {}, ".nz", 100, {"fractal_nz"}});
  entry({"linear_w8a8_static", kernel<linear_static<false>>, ones, want_constant_rows, {}, "", 50});
  rounds_once({"add_rms_norm_quant_dynamic", kernel<add_rms_norm_dynamic>, {}, [](const OpCall& c) {
                 return without_bias_behind(c, 3);
               }});
  // Rows of whole 32 bytes: what the vendor's own graph compiler asks for before it fuses.
  auto accepts_static = [](const OpCall& c) -> Status {
    RETURN_IF_ERROR(without_bias_behind(c, 5));
    if (const int64_t width = c.in[0].shape[1].factor; width * 2 % 32 != 0)
      return error(Code::Unsupported, "rows of {} numbers; allowed: multiples of 16", width);
    return Status::ok();
  };
  rounds_once({"add_rms_norm_quant_static", kernel<add_rms_norm_static>, {}, accepts_static});
  rounds_once({"add_rms_norm_quant_divided", kernel<add_rms_norm_divided>, {}, accepts_static});
  rounds_once({"silu_mul_quant", kernel<silu_mul_quant>, {}, want_constant_rows});
}

}  // namespace reprise::ascend
