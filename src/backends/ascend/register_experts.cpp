// Entries of a mixture of experts: choosing, sorting, products of groups of rows, combining.
//
// Groups' borders stay on the device, so a captured graph needs no update. Negative slots do not occur on this device:
// padding rows go to experts like others, and nothing reads what comes of them.
#include <algorithm>
#include <numeric>

#include "backends/ascend/entries.h"
#include "ops/args/elements.h"
#include "ops/args/experts.h"
#include "ops/args/products.h"

namespace reprise::ascend {
namespace {

Status gate(const MoeGateArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), e = a.count, k = a.top_k;
  void* unused = l.scratch(static_cast<size_t>(t * e) * sizeof(float));
  // Sigmoid scores are normalised for every renorm, and up to CANN 8.5 the operator takes no other than 0
  // (ops-transformer @ c29bc106, moe_gating_top_k_tiling.cpp:200).
  const int64_t renorm = a.normalise && !a.sigmoid ? 1 : 0;
  return l.run(l.ops().gating, l.tensor(a.logits, DType::F32, {t, e}),
               a.bias ? l.tensor(a.bias, DType::F32, {e}) : nullptr, k, a.top_groups, a.groups, a.top_two ? 1 : 0,
               renorm, a.sigmoid ? 1 : 0, false, a.scale, a.eps, l.tensor(a.weights, DType::F32, {t, k}),
               l.tensor(a.experts, DType::I32, {t, k}), l.tensor(unused, DType::F32, {t, e}));
}

// The plain form, which CANN 8.1 has as well. Dividing by the sum of those chosen is a softmax over them alone.
Status gate_softmax(const MoeGateArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), k = a.top_k;
  return l.run(l.ops().gating_softmax, l.tensor(a.logits, DType::F32, {t, a.count}), nullptr, k, a.normalise ? 1 : 0,
               false, l.tensor(a.weights, DType::F32, {t, k}), l.tensor(a.experts, DType::I32, {t, k}), nullptr);
}

Status accepts_gate(const OpCall& c) {
  if (c.attrs->text("score") == "sigmoid" && c.attrs->integer("normalise") == 0)
    return error(Code::Unsupported, "the vendor's gating always normalises sigmoid scores, unlike {}", describe(c));
  return Status::ok();
}

Status accepts_gate_softmax(const OpCall& c) {
  if (c.attrs->text("score") != "softmax" || c.in.size() > 2 || c.attrs->integer("groups") != 1 ||
      c.attrs->number("scale") != 1)
    return error(Code::Unsupported, "takes softmax scores without bias, groups and scale, unlike {}", describe(c));
  return Status::ok();
}

// The operator sorts rows along with the choice; it gets their numbers, the constant, as rows of one column.
Status route(const MoeRouteArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), k = a.top_k, count = a.count;
  if (t > Context::kRows)
    return error(Code::Unsupported, "moe_route: {} rows in one step, at most {}", t, Context::kRows);
  aclTensor* sorted = l.tensor(l.scratch(static_cast<size_t>(t * k) * sizeof(float)), DType::F32, {t * k, 1});
  aclTensor* ends = l.tensor(l.scratch(static_cast<size_t>(count) * sizeof(int32_t)), DType::I32, {count});
  aclTensor* unused = l.tensor(l.scratch(static_cast<size_t>(count) * sizeof(int32_t)), DType::I32, {count});
  RETURN_IF_ERROR(l.run(l.ops().init_routing, l.tensor(l.constant(), DType::F32, {t, 1}),
                        l.tensor(a.experts, DType::I32, {t, k}), 0, 0, count, 0, 1, false, sorted,
                        l.tensor(a.place, DType::I32, {t * k}), ends, unused));
  RETURN_IF_ERROR(l.run(l.ops().cast, sorted, ACL_INT32, l.tensor(a.token, DType::I32, {t * k, 1})));
  RETURN_IF_ERROR(l.run(l.ops().zero, l.view(a.starts, DType::I32, {1}, {1}, 0, count + 1)));
  return l.run(l.ops().copy, l.view(a.starts, DType::I32, {count}, {1}, 1, count + 1), ends);
}

Status accepts_route(const OpCall& c) {
  if (c.attrs->integer("first") == 0) return Status::ok();
  return error(Code::Unsupported, "a range of experts that does not begin at 0 has no operator here yet");
}

// Rows x [S, K] by weight [E, N, K], seen as its transpose; the operator wants ends of groups in 64 bits.
Status grouped_linear(const GroupedLinearArgs& a, Launch& l) {
  const int64_t s = l.size(a.shape.rows), k = a.shape.depth, e = a.groups, n = a.shape.columns;
  aclTensor* ends = l.tensor(l.scratch(static_cast<size_t>(e) * sizeof(int64_t)), DType::I64, {e});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.view(a.starts, DType::I32, {e}, {1}, 1, e + 1), ACL_INT64, ends));
  return l.run(l.ops().grouped_matmul, l.list(l.tensor(a.x, a.type, {s, k})),
               l.list(l.view(a.weight, a.type, {e, k, n}, {n * k, 1, k}, 0, e * n * k)), nullptr, nullptr, nullptr,
               nullptr, nullptr, nullptr, ends, nullptr, nullptr, nullptr, 2, 0, 0, 0,
               l.list(l.tensor(a.out, a.type, {s, n})), nullptr, nullptr);
}

// No operator adds vectors to rows by their groups. A column of ones times matrices of one row each gives every row its
// expert's vector, to the bit; the sum is rounded once. `way` is the dtype.
Status add_groups(const AddGroupsArgs& a, Launch& l) {
  const int64_t s = l.size(a.rows), e = a.groups, n = a.width;
  if (s > Context::kRows)
    return error(Code::Unsupported, "add_groups: {} rows in one step, at most {}", s, Context::kRows);
  const auto type = static_cast<DType>(l.way());
  aclTensor* ends = l.tensor(l.scratch(static_cast<size_t>(e) * sizeof(int64_t)), DType::I64, {e});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.view(a.starts, DType::I32, {e}, {1}, 1, e + 1), ACL_INT64, ends));
  const void* each = l.scratch(static_cast<size_t>(s * n) * size_of(type));
  RETURN_IF_ERROR(l.run(l.ops().grouped_matmul, l.list(l.tensor(l.constant(), type, {s, 1})),
                        l.list(l.tensor(a.bias, type, {e, 1, n})), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                        ends, nullptr, nullptr, nullptr, 2, 0, 0, 0, l.list(l.tensor(each, type, {s, n})), nullptr,
                        nullptr));
  return l.run(l.ops().add, l.tensor(a.x, type, {s, n}), l.tensor(each, type, {s, n}), l.number(1),
               l.tensor(a.out, type, {s, n}));
}

Status combine(const MoeCombineArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), k = a.top_k, n = a.width;
  constexpr int64_t kSortedByRows = 2;
  return l.run(l.ops().finalize_routing, l.tensor(a.y, a.type, {t * k, n}), l.tensor(a.place, DType::I32, {t * k}),
               nullptr, nullptr, nullptr, l.tensor(a.weights, DType::F32, {t, k}), nullptr, kSortedByRows,
               l.tensor(a.out, a.type, {t, n}));
}

Status sigmoid(const UnaryArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  return l.run(l.ops().sigmoid, l.tensor(a.x, a.type, {rows, a.width}), l.tensor(a.out, a.type, {rows, a.width}));
}

// In fp32, rounded once.
Status scale_rows(const ScaleRowsArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.width;
  aclTensor* wide = l.tensor(l.scratch(static_cast<size_t>(rows * width) * sizeof(float)), DType::F32, {rows, width});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.x, a.type, {rows, width}), ACL_FLOAT, wide));
  RETURN_IF_ERROR(l.run(l.ops().mul, wide, l.tensor(a.scale, DType::F32, {rows, 1}), wide));
  return l.run(l.ops().cast, wide, acl_type(a.type), l.tensor(a.out, a.type, {rows, width}));
}

}  // namespace

void register_experts(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto row_numbers = [context](const OpCall&, LaunchArgs& args) {
    args.constant = context->constant("row numbers in f32", Context::kRows * sizeof(float), [](void* to) {
      std::iota(static_cast<float*>(to), static_cast<float*>(to) + Context::kRows, 0.0F);
    });
  };
  add(kernels, context, {"moe_gate", kernel<gate>, {}, accepts_gate});
  add(kernels, context, {"moe_gate", kernel<gate_softmax>, {}, accepts_gate_softmax, {}, ".softmax", 50});
  add(kernels, context, {"moe_route", kernel<route>, row_numbers, accepts_route});
  add(kernels, context, {"grouped_linear", kernel<grouped_linear>, {}, want_constant_rows});
  const auto typed_ones = [context](const OpCall& c, LaunchArgs& args) {
    const DType type = c.in[0].dtype;
    args.way = static_cast<int64_t>(type);
    if (type == DType::F32) {
      args.constant = context->ones();
      return;
    }
    args.constant = context->constant(type == DType::BF16 ? "ones in bf16" : "ones in f16",
                                      Context::kRows * sizeof(uint16_t), [type](void* to) {
                                        const uint16_t one = type == DType::BF16 ? 0x3f80 : 0x3c00;
                                        std::fill_n(static_cast<uint16_t*>(to), Context::kRows, one);
                                      });
  };
  add(kernels, context, {"add_groups", kernel<add_groups>, typed_ones, want_constant_rows});
  add(kernels, context, {"moe_combine", kernel<combine>, {}, want_constant_rows});
  add(kernels, context, {"sigmoid", kernel<sigmoid>, {}, want_constant_rows});
  add(kernels, context, {"scale_rows", kernel<scale_rows>, {}, want_constant_rows});
}

}  // namespace reprise::ascend
