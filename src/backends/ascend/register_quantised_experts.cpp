// Entries of W8A8 experts: products of groups of int8 rows, the fusion of the first of them with the gate behind it,
// and rows whose numbers are their expert's own.
//
// A stack [E, N, K] is stored as E matrices [K, N] in FRACTAL_NZ, not transposed: the one form that both of the
// vendor's operators take. Both want K in blocks of 16 and N in blocks of 32; other stacks keep the plain format.
//
// Scales of columns are fp32 in the checkpoint. The vendor's product of int8 rows takes fp32 scales where its result
// is fp16, and bf16 scales where it is bf16, and no other pair (ops-transformer 57781440,
// grouped_matmul/op_api/aclnn_grouped_matmul.cpp:940-973; c29bc106: 641-672). So a bf16 model rounds them to bf16
// before the product, as vllm-ascend does: at most 2^-9 of each column's scale (docs/ascend.md has what that costs in
// accuracy).
#include "backends/ascend/entries.h"
#include "backends/ascend/fractal.h"

namespace reprise::ascend {
namespace {

constexpr const char* kLayout = "fractal_nz_stack";

// Sizes of a product, as its entry keeps them.
enum ProductDim { kRows, kInner, kExperts, kWidth };

int64_t size(const LaunchArgs& args, int i, const LiveSizes& live) {
  return args.dim[static_cast<size_t>(i)].value(live);
}

size_t stack_bytes(const TensorType& type) {
  const Shape& s = type.shape;
  return static_cast<size_t>(s[0].factor * fractal_size<int8_t>(s[2].factor, s[1].factor));
}

void stack_pack(const TensorType& type, void* dst, const void* rows, int64_t first, int64_t count) {
  pack_columns(type.shape[1].factor, type.shape[2].factor, static_cast<int8_t*>(dst), static_cast<const int8_t*>(rows),
               first, count);
}

// The last row of every group and one, in the 64 bits that the operators want.
Result<aclTensor*> ends_of(void* starts, int64_t experts, Launch& l) {
  aclTensor* ends = l.tensor(l.scratch(static_cast<size_t>(experts) * sizeof(int64_t)), DType::I64, {experts});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.view(starts, DType::I32, {experts}, {1}, 1, experts + 1), ACL_INT64, ends));
  return ends;
}

aclTensor* stack_in_blocks(void* weight, int64_t e, int64_t n, int64_t k, Launch& l) {
  return l.fractal(weight, DType::I8, {e, k, n},
                   {e, blocks(n, kBlockColumns), blocks(k, kBlockRows), kBlockRows, kBlockColumns});
}

// Where operands of a product lie; a bias is added to the sums of integers.
struct Product {
  void *x, *row_scales, *starts, *weight, *scales;
  void* bias = nullptr;
  bool has_bias = false;
  void* out;
  DType out_type;
};

template <bool Fractal>
Status product(const Product& p, const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t s = size(a, kRows, live), k = size(a, kInner, live), e = size(a, kExperts, live),
                n = size(a, kWidth, live);
  ASSIGN_OR_RETURN(aclTensor * ends, ends_of(p.starts, e, l));
  aclTensor* weight = Fractal ? stack_in_blocks(p.weight, e, n, k, l)
                              : l.view(p.weight, DType::I8, {e, k, n}, {n * k, 1, k}, 0, e * n * k);
  const auto x = [&] { return l.list(l.tensor(p.x, DType::I8, {s, k})); };
  aclTensor* scale = l.tensor(p.scales, DType::F32, {e, n});
  if (p.out_type == DType::BF16) {
    aclTensor* rounded = l.tensor(l.scratch(static_cast<size_t>(e * n) * size_of(DType::BF16)), DType::BF16, {e, n});
    RETURN_IF_ERROR(l.run(l.ops().cast, scale, ACL_BF16, rounded));
    scale = rounded;
  }
  const auto rows = [&] { return l.list(l.tensor(p.row_scales, DType::F32, {s})); };
  const auto bias = [&] { return p.has_bias ? l.list(l.tensor(p.bias, DType::I32, {e, n})) : nullptr; };
  const auto out = [&] { return l.list(l.tensor(p.out, p.out_type, {s, n})); };
  return l.run(l.ops().grouped_matmul, x(), l.list(weight), bias(), l.list(scale), nullptr, nullptr, nullptr, rows(),
               ends, nullptr, nullptr, nullptr, 2, 0, 0, 0, out(), nullptr, nullptr);
}

template <bool Fractal>
Status linear_dynamic(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  return product<Fractal>({.x = a.ptr[0],
                           .row_scales = a.ptr[1],
                           .starts = a.ptr[2],
                           .weight = a.ptr[3],
                           .scales = a.ptr[4],
                           .out = a.ptr[5],
                           .out_type = type_of(a, 5)},
                          a, live, l);
}

// One scale serves all rows and is part of the weight's; the documents name no form without scales of rows, so they
// are 1.
template <bool Fractal>
Status linear_static(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t s = size(a, kRows, live);
  if (s > Context::kRows)
    return error(Code::Unsupported, "grouped_linear_w8a8_static: {} rows in one step, at most {}", s, Context::kRows);
  return product<Fractal>({.x = a.ptr[0],
                           .row_scales = a.ptr[6],
                           .starts = a.ptr[1],
                           .weight = a.ptr[2],
                           .scales = a.ptr[3],
                           .bias = a.ptr[4],
                           .has_bias = true,
                           .out = a.ptr[5],
                           .out_type = type_of(a, 5)},
                          a, live, l);
}

// Gate in the first half of a row, up in the second; between the product and int8 nothing is rounded.
Status linear_silu_mul_quant(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t s = size(a, kRows, live), k = size(a, kInner, live), e = size(a, kExperts, live),
                n = size(a, kWidth, live);
  ASSIGN_OR_RETURN(aclTensor * ends, ends_of(a.ptr[2], e, l));
  const auto gated = [&](const auto& op, aclTensor* weight) {
    return l.run(op, l.tensor(a.ptr[0], DType::I8, {s, k}), weight, nullptr, nullptr,
                 l.tensor(a.ptr[4], DType::F32, {e, n}), l.tensor(a.ptr[1], DType::F32, {s}), ends,
                 l.tensor(a.ptr[5], DType::I8, {s, n / 2}), l.tensor(a.ptr[6], DType::F32, {s}), nullptr);
  };
  if (l.ops().grouped_swiglu_quant_nz)
    return gated(l.ops().grouped_swiglu_quant_nz, stack_in_blocks(a.ptr[3], e, n, k, l));
  // The older entry wants the blocks themselves as the view (aclnn_grouped_matmul_swiglu_quant.cpp:127-132, 195).
  const Launch::Sizes view{e, blocks(n, kBlockColumns), blocks(k, kBlockRows), kBlockRows, kBlockColumns};
  return gated(l.ops().grouped_swiglu_quant, l.fractal(a.ptr[3], DType::I8, view, view));
}

// What is padded in blocks has no place in the vendor's sizes (TransWeightToNzCheckAlign of the same file).
Status accepts_blocks(const OpCall& c, size_t weight) {
  RETURN_IF_ERROR(want_constant_rows(c));
  const int64_t n = c.in[weight].shape[1].factor, k = c.in[weight].shape[2].factor;
  if (k % kBlockRows != 0 || n % kBlockColumns != 0)
    return error(Code::Unsupported, "experts of [{}, {}] do not fill blocks of {} columns by {} rows", n, k,
                 kBlockColumns, kBlockRows);
  return Status::ok();
}

void bind_product(const OpCall& c, LaunchArgs& args, size_t weight) {
  const Shape& stack = c.in[weight].shape;
  args.dim[kRows] = c.in[0].shape[0];
  args.dim[kInner] = stack[2];
  args.dim[kExperts] = stack[0];
  args.dim[kWidth] = stack[1];
}

// No operator quantises rows by numbers of their groups. A column of ones times matrices of one number each gives
// every row its expert's number, to the bit.
Status quantize_groups(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t s = size(a, kRows, live), k = size(a, kInner, live), e = size(a, kExperts, live);
  if (s > Context::kRows)
    return error(Code::Unsupported, "quantize_groups: {} rows in one step, at most {}", s, Context::kRows);
  ASSIGN_OR_RETURN(aclTensor * ends, ends_of(a.ptr[1], e, l));
  void* ones = a.ptr[5];
  void* each = l.scratch(static_cast<size_t>(s) * sizeof(float));
  const auto of_group = [&](void* numbers) {
    return l.run(l.ops().grouped_matmul, l.list(l.tensor(ones, DType::F32, {s, 1})),
                 l.list(l.tensor(numbers, DType::F32, {e, 1, 1})), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                 ends, nullptr, nullptr, nullptr, 2, 0, 0, 0, l.list(l.tensor(each, DType::F32, {s, 1})), nullptr,
                 nullptr);
  };
  aclTensor* wide = l.tensor(l.scratch(static_cast<size_t>(s * k) * sizeof(float)), DType::F32, {s, k});
  aclTensor* column = l.tensor(each, DType::F32, {s, 1});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.ptr[0], type_of(a, 0), {s, k}), ACL_FLOAT, wide));
  RETURN_IF_ERROR(of_group(a.ptr[2]));
  RETURN_IF_ERROR(l.run(l.ops().mul, wide, column, wide));
  RETURN_IF_ERROR(of_group(a.ptr[3]));
  RETURN_IF_ERROR(l.run(l.ops().add, wide, column, l.number(1), wide));
  return l.run(l.ops().quantize, wide, l.tensor(ones, DType::F32, {1}), nullptr, false, "round", ACL_INT8, -1,
               l.tensor(a.ptr[4], DType::I8, {s, k}));
}

}  // namespace

void register_quantised_experts(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto entry = [&](Entry e) { add(kernels, context, std::move(e)); };
  kernels.add(ParamLayout{kLayout, DeviceKind::Ascend, stack_bytes, stack_pack});
  auto bind_dynamic = [](const OpCall& c, LaunchArgs& args) { bind_product(c, args, 3); };
  auto bind_static = [context](const OpCall& c, LaunchArgs& args) {
    bind_product(c, args, 2);
    args.ptr[6] = context->ones();
  };
  const auto product_entry = [&](const char* op, AscendKernel fractal, AscendKernel rows, const auto& bind,
                                 size_t weight) {
    entry({op,
           fractal,
           bind,
           [weight](const OpCall& c) { return accepts_blocks(c, weight); },
           {},
           ".nz",
           100,
           {kLayout}});
    entry({op, rows, bind, want_constant_rows, {}, "", 50});
  };
  product_entry("grouped_linear_w8a8_dynamic", linear_dynamic<true>, linear_dynamic<false>, bind_dynamic, 3);
  product_entry("grouped_linear_w8a8_static", linear_static<true>, linear_static<false>, bind_static, 2);
  entry({.op = "grouped_silu_mul_quant",
         .kernel = linear_silu_mul_quant,
         .bind = bind_dynamic,
         .accepts = [](const OpCall& c) { return accepts_blocks(c, 3); },
         .variant = ".nz",
         .param_layouts = {kLayout},
         .exact = false});
  entry({"quantize_groups", quantize_groups,
         [context](const OpCall& c, LaunchArgs& args) {
           args.dim[kRows] = c.in[0].shape[0];
           args.dim[kInner] = c.in[0].shape[1];
           args.dim[kExperts] = c.in[2].shape[0];
           args.ptr[5] = context->ones();
         },
         want_constant_rows});
}

}  // namespace reprise::ascend
