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
#include "ops/args/products.h"
#include "ops/args/quantise.h"

namespace reprise::ascend {
namespace {

constexpr const char* kLayout = "fractal_nz_stack";

size_t stack_bytes(const TensorType& type) {
  const Shape& s = type.shape;
  return static_cast<size_t>(s[0].factor * fractal_size<int8_t>(s[2].factor, s[1].factor));
}

void stack_pack(const TensorType& type, void* dst, const void* rows, int64_t first, int64_t count) {
  pack_columns(type.shape[1].factor, type.shape[2].factor, static_cast<int8_t*>(dst), static_cast<const int8_t*>(rows),
               first, count);
}

// The last row of every group and one, in the 64 bits that the operators want.
Result<aclTensor*> ends_of(const void* starts, int64_t experts, Launch& l) {
  aclTensor* ends = l.tensor(l.scratch(static_cast<size_t>(experts) * sizeof(int64_t)), DType::I64, {experts});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.view(starts, DType::I32, {experts}, {1}, 1, experts + 1), ACL_INT64, ends));
  return ends;
}

aclTensor* stack_in_blocks(const void* weight, int64_t e, int64_t n, int64_t k, Launch& l) {
  return l.fractal(weight, DType::I8, {e, k, n},
                   {e, blocks(n, kBlockColumns), blocks(k, kBlockRows), kBlockRows, kBlockColumns});
}

// A bias, or null, is added to the sums of integers.
template <bool Fractal>
Status product(const auto& a, const void* row_scales, const void* added, Launch& l) {
  const int64_t s = l.size(a.shape.rows), k = a.shape.depth, e = a.groups, n = a.shape.columns;
  ASSIGN_OR_RETURN(aclTensor * ends, ends_of(a.starts, e, l));
  aclTensor* weight = Fractal ? stack_in_blocks(a.weight, e, n, k, l)
                              : l.view(a.weight, DType::I8, {e, k, n}, {n * k, 1, k}, 0, e * n * k);
  const auto x = [&] { return l.list(l.tensor(a.x, DType::I8, {s, k})); };
  aclTensor* scale = l.tensor(a.scale, DType::F32, {e, n});
  if (a.out_type == DType::BF16) {
    aclTensor* rounded = l.tensor(l.scratch(static_cast<size_t>(e * n) * size_of(DType::BF16)), DType::BF16, {e, n});
    RETURN_IF_ERROR(l.run(l.ops().cast, scale, ACL_BF16, rounded));
    scale = rounded;
  }
  const auto rows = [&] { return l.list(l.tensor(row_scales, DType::F32, {s})); };
  const auto bias = [&] { return added ? l.list(l.tensor(added, DType::I32, {e, n})) : nullptr; };
  const auto out = [&] { return l.list(l.tensor(a.out, a.out_type, {s, n})); };
  return l.run(l.ops().grouped_matmul, x(), l.list(weight), bias(), l.list(scale), nullptr, nullptr, nullptr, rows(),
               ends, nullptr, nullptr, nullptr, 2, 0, 0, 0, out(), nullptr, nullptr);
}

template <bool Fractal>
Status grouped_dynamic(const GroupedW8a8DynamicArgs& a, Launch& l) {
  return product<Fractal>(a, a.x_scale, nullptr, l);
}

// One scale serves all rows and is part of the weight's; the documents name no form without scales of rows, so they
// are 1.
template <bool Fractal>
Status grouped_static(const GroupedW8a8StaticArgs& a, Launch& l) {
  const int64_t s = l.size(a.shape.rows);
  if (s > Context::kRows)
    return error(Code::Unsupported, "grouped_linear_w8a8_static: {} rows in one step, at most {}", s, Context::kRows);
  return product<Fractal>(a, l.constant(), a.bias, l);
}

// Gate in the first half of a row, up in the second; between the product and int8 nothing is rounded.
Status linear_silu_mul_quant(const GroupedSiluMulQuantArgs& a, Launch& l) {
  const int64_t s = l.size(a.shape.rows), k = a.shape.depth, e = a.groups, n = a.shape.columns;
  ASSIGN_OR_RETURN(aclTensor * ends, ends_of(a.starts, e, l));
  const auto gated = [&](const auto& op, aclTensor* weight) {
    return l.run(op, l.tensor(a.x, DType::I8, {s, k}), weight, nullptr, nullptr, l.tensor(a.scale, DType::F32, {e, n}),
                 l.tensor(a.x_scale, DType::F32, {s}), ends, l.tensor(a.values, DType::I8, {s, n / 2}),
                 l.tensor(a.values_scale, DType::F32, {s}), nullptr);
  };
  if (l.ops().grouped_swiglu_quant_nz)
    return gated(l.ops().grouped_swiglu_quant_nz, stack_in_blocks(a.weight, e, n, k, l));
  // The older entry wants the blocks themselves as the view (aclnn_grouped_matmul_swiglu_quant.cpp:127-132, 195).
  const Launch::Sizes view{e, blocks(n, kBlockColumns), blocks(k, kBlockRows), kBlockRows, kBlockColumns};
  return gated(l.ops().grouped_swiglu_quant, l.fractal(a.weight, DType::I8, view, view));
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

// No operator quantises rows by numbers of their groups. A column of ones times matrices of one number each gives
// every row its expert's number, to the bit.
Status quantize_groups(const QuantizeGroupsArgs& a, Launch& l) {
  const int64_t s = l.size(a.rows), k = a.width, e = a.groups;
  if (s > Context::kRows)
    return error(Code::Unsupported, "quantize_groups: {} rows in one step, at most {}", s, Context::kRows);
  ASSIGN_OR_RETURN(aclTensor * ends, ends_of(a.starts, e, l));
  const void* ones = l.constant();
  void* each = l.scratch(static_cast<size_t>(s) * sizeof(float));
  const auto of_group = [&](const void* numbers) {
    return l.run(l.ops().grouped_matmul, l.list(l.tensor(ones, DType::F32, {s, 1})),
                 l.list(l.tensor(numbers, DType::F32, {e, 1, 1})), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                 ends, nullptr, nullptr, nullptr, 2, 0, 0, 0, l.list(l.tensor(each, DType::F32, {s, 1})), nullptr,
                 nullptr);
  };
  aclTensor* wide = l.tensor(l.scratch(static_cast<size_t>(s * k) * sizeof(float)), DType::F32, {s, k});
  aclTensor* column = l.tensor(each, DType::F32, {s, 1});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.x, a.type, {s, k}), ACL_FLOAT, wide));
  RETURN_IF_ERROR(of_group(a.scale));
  RETURN_IF_ERROR(l.run(l.ops().mul, wide, column, wide));
  RETURN_IF_ERROR(of_group(a.offset));
  RETURN_IF_ERROR(l.run(l.ops().add, wide, column, l.number(1), wide));
  return l.run(l.ops().quantize, wide, l.tensor(ones, DType::F32, {1}), nullptr, false, "round", ACL_INT8, -1,
               l.tensor(a.values, DType::I8, {s, k}));
}

}  // namespace

void register_quantised_experts(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto entry = [&](Entry e) { add(kernels, context, std::move(e)); };
  kernels.add(ParamLayout{kLayout, DeviceKind::Ascend, stack_bytes, stack_pack});
  const auto ones = [context](const OpCall&, LaunchArgs& args) { args.constant = context->ones(); };
  const auto in_blocks = [](size_t weight) { return [weight](const OpCall& c) { return accepts_blocks(c, weight); }; };
  entry({"grouped_linear_w8a8_dynamic", kernel<grouped_dynamic<true>>, {}, in_blocks(3), {}, ".nz", 100, {kLayout}});
  entry({"grouped_linear_w8a8_dynamic", kernel<grouped_dynamic<false>>, {}, want_constant_rows, {}, "", 50});
  entry({"grouped_linear_w8a8_static", kernel<grouped_static<true>>, ones, in_blocks(2), {}, ".nz", 100, {kLayout}});
  entry({"grouped_linear_w8a8_static", kernel<grouped_static<false>>, ones, want_constant_rows, {}, "", 50});
  entry({.op = "grouped_silu_mul_quant",
         .kernel = kernel<linear_silu_mul_quant>,
         .accepts = in_blocks(3),
         .variant = ".nz",
         .param_layouts = {kLayout},
         .exact = false});
  entry({"quantize_groups", kernel<quantize_groups>, ones, want_constant_rows});
}

}  // namespace reprise::ascend
