// Entries of functions of single numbers besides those of register_dense.cpp, and of norms with a mean or with weights
// around 0.
#include "backends/ascend/entries.h"
#include "ops/args/elements.h"
#include "ops/args/norms.h"

namespace reprise::ascend {
namespace {

// How GeluV2 approximates: by the error function, or by a hyperbolic tangent.
enum Approximation : i64 { kByErf, kByTanh };

template <Approximation kForm>
Status gelu_rows(const UnaryArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  return l.run(l.ops().gelu, l.tensor(a.x, a.type, {rows, a.width}), kForm, l.tensor(a.out, a.type, {rows, a.width}));
}

Status scale_all(const NumberArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  return l.run(l.ops().muls, l.tensor(a.x, a.type, {rows, a.width}), l.number(static_cast<float>(a.number)),
               l.tensor(a.out, a.type, {rows, a.width}));
}

// max(x, 0)^2 in fp32, rounded once.
Status relu_squared_rows(const UnaryArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  aclTensor* wide =
      l.tensor(l.scratch(static_cast<size_t>(rows * a.width) * sizeof(float)), DType::F32, {rows, a.width});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.x, a.type, {rows, a.width}), ACL_FLOAT, wide));
  RETURN_IF_ERROR(l.run(l.ops().clamp_min, wide, l.number(0), wide));
  RETURN_IF_ERROR(l.run(l.ops().mul, wide, wide, wide));
  return l.run(l.ops().cast, wide, acl_type(a.type), l.tensor(a.out, a.type, {rows, a.width}));
}

// (u + 1) g / (1 + exp(-alpha g)) with g = min(gate, limit) and u = up between -limit and limit, in fp32, rounded once.
// An upper limit is the lower one of the negative, for which there is an operator already. `way` is the dtype.
Status swiglu_clamped_rows(const SwigluClampedArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.width;
  const auto type = static_cast<DType>(l.way());
  const auto limit = static_cast<float>(a.limit), alpha = static_cast<float>(a.alpha);
  const auto numbers = [&] {
    return l.tensor(l.scratch(static_cast<size_t>(rows * width) * sizeof(float)), DType::F32, {rows, width});
  };
  const auto negate = [&](aclTensor* x) { return l.run(l.ops().muls, x, l.number(-1), x); };
  const auto at_least = [&](aclTensor* x) { return l.run(l.ops().clamp_min, x, l.number(-limit), x); };
  aclTensor *g = numbers(), *u = numbers(), *share = numbers();
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.gate, type, {rows, width}), ACL_FLOAT, g));
  RETURN_IF_ERROR(negate(g));
  RETURN_IF_ERROR(at_least(g));
  RETURN_IF_ERROR(l.run(l.ops().muls, g, l.number(-alpha), share));
  RETURN_IF_ERROR(l.run(l.ops().sigmoid, share, share));
  RETURN_IF_ERROR(negate(g));
  RETURN_IF_ERROR(l.run(l.ops().mul, g, share, g));
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.up, type, {rows, width}), ACL_FLOAT, u));
  RETURN_IF_ERROR(at_least(u));
  RETURN_IF_ERROR(negate(u));
  RETURN_IF_ERROR(at_least(u));
  RETURN_IF_ERROR(negate(u));
  RETURN_IF_ERROR(l.run(l.ops().adds, u, l.number(1), l.number(1), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, u, g, u));
  return l.run(l.ops().cast, u, acl_type(type), l.tensor(a.out, type, {rows, width}));
}

// cap * tanh(x / cap), in fp32, rounded once.
Status softcap_all(const NumberArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows);
  const auto cap = static_cast<float>(a.number);
  const bool wide = a.type == DType::F32;
  aclTensor* out = l.tensor(a.out, a.type, {rows, a.width});
  aclTensor* values =
      wide ? out
           : l.tensor(l.scratch(static_cast<size_t>(rows * a.width) * sizeof(float)), DType::F32, {rows, a.width});
  aclTensor* x = l.tensor(a.x, a.type, {rows, a.width});
  if (!wide) RETURN_IF_ERROR(l.run(l.ops().cast, x, ACL_FLOAT, values));
  RETURN_IF_ERROR(l.run(l.ops().muls, wide ? x : values, l.number(1 / cap), values));
  RETURN_IF_ERROR(l.run(l.ops().tanh, values, values));
  RETURN_IF_ERROR(l.run(l.ops().muls, values, l.number(cap), values));
  return wide ? Status::ok() : l.run(l.ops().cast, values, acl_type(a.type), out);
}

// One weight for all rows.
Status layer_norm_rows(const LayerNormArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), shape[] = {a.width};
  const auto vector = [&](const In& of) { return of ? l.tensor(of, a.type, {a.width}) : nullptr; };
  return l.run(l.ops().layer_norm, l.tensor(a.x, a.type, {rows, a.width}), l.integers(shape), vector(a.weight),
               vector(a.bias), a.eps, l.tensor(a.out, a.type, {rows, a.width}), nullptr, nullptr);
}

// A weight for each of the heads of a row, which the operator has not: in fp32 without one, then times it.
Status layer_norm_heads(const LayerNormArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), heads = a.vectors, tokens = rows / heads, shape[] = {a.width};
  const auto numbers = [&] {
    return l.tensor(l.scratch(static_cast<size_t>(rows * a.width) * sizeof(float)), DType::F32,
                    {tokens, heads, a.width});
  };
  const auto weights = [&](const In& of) { return l.tensor(of, a.type, {1, heads, a.width}); };
  aclTensor *x = numbers(), *y = numbers();
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.x, a.type, {tokens, heads, a.width}), ACL_FLOAT, x));
  RETURN_IF_ERROR(l.run(l.ops().layer_norm, x, l.integers(shape), nullptr, nullptr, a.eps, y, nullptr, nullptr));
  RETURN_IF_ERROR(l.run(l.ops().mul, y, weights(a.weight), x));
  if (a.bias) RETURN_IF_ERROR(l.run(l.ops().add, x, weights(a.bias), l.number(1), x));
  return l.run(l.ops().cast, x, acl_type(a.type), l.tensor(a.out, a.type, {tokens, heads, a.width}));
}

Status accepts_one_weight(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in[1].shape.rank() == 1) return Status::ok();
  return error(Code::Unsupported, "LayerNorm has one weight for all heads, unlike {}", describe(c));
}

// 1 + weight in fp32, as the norm takes it beside rows of fewer bits.
Status centred_rms_norm(const CentredRmsNormArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.width;
  aclTensor* weight = l.tensor(l.scratch(static_cast<size_t>(width) * sizeof(float)), DType::F32, {width});
  void* rstd = l.scratch(static_cast<size_t>(rows) * sizeof(float));
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.weight, a.type, {width}), ACL_FLOAT, weight));
  RETURN_IF_ERROR(l.run(l.ops().adds, weight, l.number(1), l.number(1), weight));
  return l.run(l.ops().rms_norm, l.tensor(a.x, a.type, {rows, width}), weight, a.eps,
               l.tensor(a.out, a.type, {rows, width}), l.tensor(rstd, DType::F32, {rows, 1}));
}

// The norm with a weight of ones.
Status unit_rms_norm(const UnitRmsNormArgs& a, Launch& l) {
  const int64_t rows = l.size(a.rows), width = a.width;
  void* rstd = l.scratch(static_cast<size_t>(rows) * sizeof(float));
  return l.run(l.ops().rms_norm, l.tensor(a.x, a.type, {rows, width}), l.tensor(l.constant(), DType::F32, {width}),
               a.eps, l.tensor(a.out, a.type, {rows, width}), l.tensor(rstd, DType::F32, {rows, 1}));
}

}  // namespace

void register_functions(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  add(kernels, context, {"gelu", kernel<gelu_rows<kByErf>>, {}, want_constant_rows});
  add(kernels, context, {"gelu_tanh", kernel<gelu_rows<kByTanh>>, {}, want_constant_rows});
  add(kernels, context, {"relu_squared", kernel<relu_squared_rows>, {}, want_constant_rows});
  const auto typed = [](const OpCall& c, LaunchArgs& args) { args.way = static_cast<int64_t>(c.in[0].dtype); };
  add(kernels, context, {"swiglu_clamped", kernel<swiglu_clamped_rows>, typed, want_constant_rows});
  add(kernels, context, {"scale", kernel<scale_all>, {}, want_constant_rows});
  add(kernels, context, {"softcap", kernel<softcap_all>, {}, want_constant_rows});
  add(kernels, context, {"layer_norm", kernel<layer_norm_rows>, {}, accepts_one_weight});
  add(kernels, context, {"layer_norm", kernel<layer_norm_heads>, {}, want_constant_rows, {}, ".heads", 50});
  const auto ones = [context](const OpCall& c, LaunchArgs& args) {
    const int64_t width = c.in[0].shape.back().factor;
    args.constant = context->constant(fmt::format("{} ones", width), static_cast<size_t>(width) * sizeof(float),
                                      [width](void* to) { std::fill_n(static_cast<float*>(to), width, 1.0F); });
  };
  add(kernels, context, {"unit_rms_norm", kernel<unit_rms_norm>, ones, want_constant_rows});
  add(kernels, context, {"rms_norm_centred", kernel<centred_rms_norm>, {}, want_constant_rows});
}

}  // namespace reprise::ascend
