// Entries of a mixture of experts: choosing, sorting, products of groups of rows, combining.
//
// Groups' borders stay on the device, so a captured graph needs no update. Negative slots do not occur on this device:
// padding rows go to experts like others, and nobody reads what comes of them.
#include <numeric>

#include "backends/ascend/entries.h"

namespace reprise::ascend {
namespace {

int64_t size(const LaunchArgs& args, int i, const LiveSizes& live) {
  return args.dim[static_cast<size_t>(i)].value(live);
}

// Attributes of moe_gate, as its entry keeps them.
enum GateDim { kTokens, kExperts, kTopK, kTopGroups, kGroups, kPairs, kNormalise, kSigmoid, kBias };

Status gate(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, kTokens, live), e = size(a, kExperts, live), k = size(a, kTopK, live);
  void* unused = l.scratch(static_cast<size_t>(t * e) * sizeof(float));
  // Sigmoid scores are normalised whatever renorm is, and up to CANN 8.5 the operator takes no other than 0
  // (ops-transformer @ c29bc106, moe_gating_top_k_tiling.cpp:200).
  const int64_t renorm = size(a, kSigmoid, live) ? 0 : size(a, kNormalise, live);
  return l.run(l.ops().gating, l.tensor(a.ptr[0], DType::F32, {t, e}),
               size(a, kBias, live) ? l.tensor(a.ptr[2], DType::F32, {e}) : nullptr, k, size(a, kTopGroups, live),
               size(a, kGroups, live), size(a, kPairs, live), renorm, size(a, kSigmoid, live), false, a.scalar[0],
               a.scalar[1], l.tensor(a.ptr[3], DType::F32, {t, k}), l.tensor(a.ptr[4], DType::I32, {t, k}),
               l.tensor(unused, DType::F32, {t, e}));
}

// The plain form, which CANN 8.1 has as well. Dividing by the sum of those chosen is a softmax over them alone.
Status gate_softmax(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, kTokens, live), e = size(a, kExperts, live), k = size(a, kTopK, live);
  return l.run(l.ops().gating_softmax, l.tensor(a.ptr[0], DType::F32, {t, e}), nullptr, k, size(a, kNormalise, live),
               false, l.tensor(a.ptr[3], DType::F32, {t, k}), l.tensor(a.ptr[4], DType::I32, {t, k}), nullptr);
}

void bind_gate(const OpCall& c, LaunchArgs& args) {
  args.dim[kTokens] = c.in[0].shape[0];
  args.dim[kExperts] = c.in[0].shape[1];
  args.dim[kTopK] = Dim(c.attrs->integer("top_k"));
  args.dim[kTopGroups] = Dim(c.attrs->integer("top_groups"));
  args.dim[kGroups] = Dim(c.attrs->integer("groups"));
  args.dim[kPairs] = Dim(c.attrs->text("group_score") == "top2" ? 1 : 0);
  args.dim[kNormalise] = Dim(c.attrs->integer("normalise"));
  args.dim[kSigmoid] = Dim(c.attrs->text("score") == "sigmoid" ? 1 : 0);
  args.dim[kBias] = Dim(c.in.size() > 2 ? 1 : 0);
  args.scalar[0] = c.attrs->number("scale");
  args.scalar[1] = c.attrs->number("eps");
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

// The operator sorts rows along with the choice; it gets their numbers as rows of one column.
Status route(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), k = size(a, 1, live), count = size(a, 2, live);
  if (t > Context::kRows)
    return error(Code::Unsupported, "moe_route: {} rows in one step, at most {}", t, Context::kRows);
  aclTensor* sorted = l.tensor(l.scratch(static_cast<size_t>(t * k) * sizeof(float)), DType::F32, {t * k, 1});
  aclTensor* ends = l.tensor(l.scratch(static_cast<size_t>(count) * sizeof(int32_t)), DType::I32, {count});
  aclTensor* unused = l.tensor(l.scratch(static_cast<size_t>(count) * sizeof(int32_t)), DType::I32, {count});
  RETURN_IF_ERROR(l.run(l.ops().init_routing, l.tensor(a.ptr[4], DType::F32, {t, 1}),
                        l.tensor(a.ptr[0], DType::I32, {t, k}), 0, 0, count, 0, 1, false, sorted,
                        l.tensor(a.ptr[2], DType::I32, {t * k}), ends, unused));
  RETURN_IF_ERROR(l.run(l.ops().cast, sorted, ACL_INT32, l.tensor(a.ptr[1], DType::I32, {t * k, 1})));
  RETURN_IF_ERROR(l.run(l.ops().zero, l.view(a.ptr[3], DType::I32, {1}, {1}, 0, count + 1)));
  return l.run(l.ops().copy, l.view(a.ptr[3], DType::I32, {count}, {1}, 1, count + 1), ends);
}

void bind_route(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.dim[2] = Dim(c.attrs->integer("count"));
}

Status accepts_route(const OpCall& c) {
  if (c.attrs->integer("first") == 0) return Status::ok();
  return error(Code::Unsupported, "a range of experts that does not begin at 0 has no operator here yet");
}

// Rows x [S, K] by weight [E, N, K], seen as its transpose; the operator wants ends of groups in 64 bits.
Status grouped_rows(void* x, void* starts, void* weight, void* out, const LaunchArgs& a, const LiveSizes& live,
                    Launch& l) {
  const int64_t s = size(a, 0, live), k = size(a, 1, live), e = size(a, 2, live), n = size(a, 3, live);
  const DType type = type_of(a, 0);
  aclTensor* ends = l.tensor(l.scratch(static_cast<size_t>(e) * sizeof(int64_t)), DType::I64, {e});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.view(starts, DType::I32, {e}, {1}, 1, e + 1), ACL_INT64, ends));
  return l.run(l.ops().grouped_matmul, l.list(l.tensor(x, type, {s, k})),
               l.list(l.view(weight, type, {e, k, n}, {n * k, 1, k}, 0, e * n * k)), nullptr, nullptr, nullptr, nullptr,
               nullptr, nullptr, ends, nullptr, nullptr, nullptr, 2, 0, 0, 0, l.list(l.tensor(out, type, {s, n})),
               nullptr, nullptr);
}

Status grouped_linear(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  return grouped_rows(a.ptr[0], a.ptr[1], a.ptr[2], a.ptr[3], a, live, l);
}

void bind_grouped_linear(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.dim[2] = c.in[2].shape[0];
  args.dim[3] = c.in[2].shape[1];
}

Status combine(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), k = size(a, 1, live), n = size(a, 2, live);
  const DType type = type_of(a, 0);
  constexpr int64_t kSortedByRows = 2;
  return l.run(l.ops().finalize_routing, l.tensor(a.ptr[0], type, {t * k, n}), l.tensor(a.ptr[2], DType::I32, {t * k}),
               nullptr, nullptr, nullptr, l.tensor(a.ptr[1], DType::F32, {t, k}), nullptr, kSortedByRows,
               l.tensor(a.ptr[3], type, {t, n}));
}

void bind_combine(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[2].shape[0];
  args.dim[1] = c.in[2].shape[1];
  args.dim[2] = c.in[0].shape[1];
}

Status sigmoid(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live);
  return l.run(l.ops().sigmoid, l.tensor(a.ptr[0], type_of(a, 0), {rows, width}),
               l.tensor(a.ptr[1], type_of(a, 1), {rows, width}));
}

// In fp32, rounded once.
Status scale_rows(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t rows = size(a, 0, live), width = size(a, 1, live);
  const DType type = type_of(a, 0);
  aclTensor* wide = l.tensor(l.scratch(static_cast<size_t>(rows * width) * sizeof(float)), DType::F32, {rows, width});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.ptr[0], type, {rows, width}), ACL_FLOAT, wide));
  RETURN_IF_ERROR(l.run(l.ops().mul, wide, l.tensor(a.ptr[1], DType::F32, {rows, 1}), wide));
  return l.run(l.ops().cast, wide, acl_type(type), l.tensor(a.ptr[2], type, {rows, width}));
}

void bind_rows(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = Dim(row_size(c.in[0].shape));
}

}  // namespace

void register_experts(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  add(kernels, context, {"moe_gate", gate, bind_gate, accepts_gate});
  add(kernels, context, {"moe_gate", gate_softmax, bind_gate, accepts_gate_softmax, {}, ".softmax", 50});
  add(kernels, context,
      {"moe_route", route,
       [context](const OpCall& c, LaunchArgs& args) {
         bind_route(c, args);
         args.ptr[4] = context->constant("row numbers in f32", Context::kRows * sizeof(float), [](void* to) {
           std::iota(static_cast<float*>(to), static_cast<float*>(to) + Context::kRows, 0.0F);
         });
       },
       accepts_route});
  add(kernels, context, {"grouped_linear", grouped_linear, bind_grouped_linear, want_constant_rows});
  add(kernels, context, {"moe_combine", combine, bind_combine, want_constant_rows});
  add(kernels, context, {"sigmoid", sigmoid, bind_rows, want_constant_rows});
  add(kernels, context, {"scale_rows", scale_rows, bind_rows, want_constant_rows});
}

}  // namespace reprise::ascend
