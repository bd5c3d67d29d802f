// One number in, one number out: sums, products, functions, copies, fills.
#include <algorithm>
#include <cmath>

#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

// What the vector cores convert from one type to (ops-math @ c4193324, cast.cpp:61-108).
bool casts_on_core(aclDataType from, aclDataType to) {
  if (from == to) return true;
  const auto is = [to](std::initializer_list<aclDataType> types) {
    return std::find(types.begin(), types.end(), to) != types.end();
  };
  switch (from) {
    case kFloat: return is({kHalf, kBf16, kInt64, kInt32, kInt16, kInt8, kUint8, kBool});
    case kHalf: return is({kFloat, kBf16, kInt64, kInt32, kInt16, kInt8, kUint8, kBool});
    case kBf16: return is({kFloat, kHalf, kInt64, kInt32, kInt8, kUint8, kBool});
    case kInt64: return is({kFloat, kHalf, kBf16, kInt32, kInt16, kInt8, kUint32, kUint16, kUint8, kBool});
    case kInt32: return is({kFloat, kHalf, kBf16, kInt64, kInt16, kInt8, kUint32, kUint16, kUint8, kBool});
    case kInt16: return is({kFloat, kHalf, kInt64, kInt32, kInt8, kUint32, kUint16, kUint8});
    case kInt8: return is({kFloat, kHalf, kBf16, kInt64, kInt32, kInt16, kUint32, kUint16, kUint8, kBool});
    case kUint32: return is({kInt64, kInt32, kInt16, kInt8, kUint16, kUint8});
    case kUint16: return is({kInt64, kInt32, kInt16, kInt8, kUint32, kUint8});
    case kUint8: return is({kFloat, kHalf, kBf16, kInt64, kInt32, kInt16, kInt8, kUint32, kUint16});
    case kBool: return is({kFloat, kHalf, kBf16, kInt64, kInt32, kInt8, kUint8});
    default: return false;
  }
}

// Calls f(tag): double for a type computed in whole numbers is wrong beyond 2^53, so those compute as int64.
template <typename F>
void compute_type(aclDataType dtype, F&& f) {
  if (dtype == kDouble) return f(double{});
  if (is_float(dtype)) return f(float{});
  f(int64_t{});
}

// out = f(self, other) with both broadcast and promoted; `scale` multiplies the other first.
template <typename F>
int binary(Operator& op, Slot self, Slot other, Slot out, double scale, F f) {
  if (!op.ok()) return op.status();
  const auto shape = broadcast(op[self].shape, op[other].shape);
  op.valid(shape.has_value(), text_of(op[self].shape) + " and " + text_of(op[other].shape) + " do not broadcast");
  if (!op.ok()) return op.status();
  op.shape(out, *shape);
  const aclDataType dtype = promoted(op[self].dtype, op[other].dtype);
  op.valid(is_float(op[out].dtype) || !is_float(dtype),
           "out is " + name_of(op[out].dtype) + " but the result is " + name_of(dtype));
  return op.finish(Unit::Vector, static_cast<double>(op[out].count()) * (scale == 1 ? 1 : 2), [=](const Operands& v) {
    compute_type(dtype, [&](auto tag) {
      using Number = decltype(tag);
      const auto factor = static_cast<Number>(scale);
      std::vector<Number> a = read_as<Number>(v[self], v[out].shape);
      const std::vector<Number> b = read_as<Number>(v[other], v[out].shape);
      for (size_t i = 0; i < a.size(); ++i) a[i] = f(a[i], b[i], factor);
      write(v[out], a);
    });
  });
}

// out = f(self, scalar) in the type of self, or FLOAT where self is whole and the scalar is not.
template <typename F>
int with_scalar(Operator& op, Slot self, Slot out, double other, bool whole, F f) {
  if (!op.ok()) return op.status();
  op.shape(out, op[self].shape);
  const aclDataType dtype = !whole && !is_float(op[self].dtype) ? kFloat : op[self].dtype;
  op.valid(is_float(op[out].dtype) || !is_float(dtype),
           "out is " + name_of(op[out].dtype) + " but the result is " + name_of(dtype));
  return op.finish(Unit::Vector, static_cast<double>(op[out].count()), [=](const Operands& v) {
    compute_type(dtype, [&](auto tag) {
      using Number = decltype(tag);
      std::vector<Number> a = read<Number>(v[self]);
      for (Number& value : a) value = f(value, static_cast<Number>(other));
      write(v[out], a);
    });
  });
}

template <typename F>
int unary(const char* name, Tensor self, TensorRef out, uint64_t* size, aclOpExecutor** executor, F f) {
  Operator op(name, size, executor);
  const Slot x = op.in("self", self), y = op.out("out", out);
  if (!op.ok()) return op.status();
  op.dtype(x, {kFloat, kHalf, kBf16});
  op.same_dtype(y, x);
  op.shape(y, op[x].shape);
  return op.finish(Unit::Vector, static_cast<double>(op[y].count()) * 4, [=](const Operands& v) {
    std::vector<float> values = read(v[x]);
    for (float& value : values) value = f(value);
    write(v[y], values);
  });
}

bool whole(Scalar scalar) { return scalar != nullptr && live(scalar) && !is_float(scalar->dtype); }

const auto add = [](auto a, auto b, auto scale) { return a + b * scale; };

int fill(const char* name, TensorRef self, Scalar value, bool zero, uint64_t* size, aclOpExecutor** executor) {
  Operator op(name, size, executor);
  const Slot x = op.ref("selfRef", self, Walk::Strides);
  const double number = zero ? 0 : op.number("value", value);
  if (!op.ok()) return op.status();
  return op.finish(
      Unit::Vector, 0,
      [=](const Operands& v) { write(v[x], std::vector<double>(static_cast<size_t>(v[x].count()), number)); },
      op[x].bytes());
}

// Elements of one view become those of another, broadcast and converted.
void convert_elements(const View& from, const View& to) {
  if (to.dtype == kBool && from.dtype != kBool) {
    std::vector<double> values = read_as<double>(from, to.shape);
    for (double& value : values) value = value != 0;
    write(to, values);
  } else if (is_float(from.dtype) && from.dtype != kDouble) {
    write(to, read_as<float>(from, to.shape));
  } else if (from.dtype == kDouble) {
    write(to, read_as<double>(from, to.shape));
  } else {
    write(to, read_as<int64_t>(from, to.shape));
  }
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnAddGetWorkspaceSize(Tensor self, Tensor other, Scalar alpha, TensorRef out, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  Operator op("aclnnAdd", workspaceSize, executor);
  const Slot a = op.in("self", self), b = op.in("other", other);
  const double scale = op.number("alpha", alpha);
  const Slot y = op.out("out", out);
  return binary(op, a, b, y, scale, add);
}
ACLNN_PHASE2(aclnnAdd);

aclnnStatus aclnnInplaceAddGetWorkspaceSize(Tensor selfRef, Tensor other, Scalar alpha, uint64_t* workspaceSize,
                                            aclOpExecutor** executor) {
  Operator op("aclnnInplaceAdd", workspaceSize, executor);
  const Slot a = op.ref("selfRef", selfRef), b = op.in("other", other);
  const double scale = op.number("alpha", alpha);
  return binary(op, a, b, a, scale, add);
}
ACLNN_PHASE2(aclnnInplaceAdd);

aclnnStatus aclnnMulGetWorkspaceSize(Tensor self, Tensor other, TensorRef out, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  Operator op("aclnnMul", workspaceSize, executor);
  const Slot a = op.in("self", self), b = op.in("other", other), y = op.out("out", out);
  return binary(op, a, b, y, 1, [](auto x, auto z, auto) { return x * z; });
}
ACLNN_PHASE2(aclnnMul);

aclnnStatus aclnnAddsGetWorkspaceSize(Tensor self, Scalar other, Scalar alpha, TensorRef out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  Operator op("aclnnAdds", workspaceSize, executor);
  const Slot x = op.in("self", self);
  const double value = op.number("other", other), scale = op.number("alpha", alpha);
  const Slot y = op.out("out", out);
  return with_scalar(op, x, y, value * scale, whole(other) && whole(alpha), [](auto a, auto b) { return a + b; });
}
ACLNN_PHASE2(aclnnAdds);

aclnnStatus aclnnMulsGetWorkspaceSize(Tensor self, Scalar other, TensorRef out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  Operator op("aclnnMuls", workspaceSize, executor);
  const Slot x = op.in("self", self);
  const double value = op.number("other", other);
  const Slot y = op.out("out", out);
  return with_scalar(op, x, y, value, whole(other), [](auto a, auto b) { return a * b; });
}
ACLNN_PHASE2(aclnnMuls);

aclnnStatus aclnnClampMinGetWorkspaceSize(Tensor self, Scalar min, TensorRef out, uint64_t* workspaceSize,
                                          aclOpExecutor** executor) {
  Operator op("aclnnClampMin", workspaceSize, executor);
  const Slot x = op.in("self", self);
  const double value = op.number("min", min);
  const Slot y = op.out("out", out);
  return with_scalar(op, x, y, value, whole(min), [](auto a, auto b) { return a < b ? b : a; });
}
ACLNN_PHASE2(aclnnClampMin);

aclnnStatus aclnnCosGetWorkspaceSize(Tensor self, TensorRef out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary("aclnnCos", self, out, workspaceSize, executor, [](float x) { return std::cos(x); });
}
ACLNN_PHASE2(aclnnCos);

aclnnStatus aclnnSinGetWorkspaceSize(Tensor self, TensorRef out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary("aclnnSin", self, out, workspaceSize, executor, [](float x) { return std::sin(x); });
}
ACLNN_PHASE2(aclnnSin);

aclnnStatus aclnnReciprocalGetWorkspaceSize(Tensor self, TensorRef out, uint64_t* workspaceSize,
                                            aclOpExecutor** executor) {
  return unary("aclnnReciprocal", self, out, workspaceSize, executor, [](float x) { return 1 / x; });
}
ACLNN_PHASE2(aclnnReciprocal);

aclnnStatus aclnnSiluGetWorkspaceSize(Tensor self, TensorRef out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary("aclnnSilu", self, out, workspaceSize, executor, [](float x) { return x / (1 + std::exp(-x)); });
}
ACLNN_PHASE2(aclnnSilu);

aclnnStatus aclnnSigmoidGetWorkspaceSize(Tensor self, TensorRef out, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) {
  return unary("aclnnSigmoid", self, out, workspaceSize, executor, [](float x) { return 1 / (1 + std::exp(-x)); });
}
ACLNN_PHASE2(aclnnSigmoid);

aclnnStatus aclnnExpGetWorkspaceSize(Tensor self, TensorRef out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary("aclnnExp", self, out, workspaceSize, executor, [](float x) { return std::exp(x); });
}
ACLNN_PHASE2(aclnnExp);

// hicann/ops-nn @ 80902332 activation/softplus_v2/op_api/aclnn_softplus.cpp: x where beta x is above the threshold.
aclnnStatus aclnnSoftplusGetWorkspaceSize(Tensor self, Scalar beta, Scalar threshold, TensorRef out,
                                          uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnSoftplus", workspaceSize, executor);
  const Slot x = op.in("self", self);
  const auto steep = static_cast<float>(op.number("beta", beta));
  const auto most = static_cast<float>(op.number("threshold", threshold));
  const Slot y = op.out("out", out);
  if (!op.ok()) return op.status();
  op.dtype(x, {kFloat, kHalf, kBf16});
  op.dtype(y, {kFloat, kHalf, kBf16});
  op.shape(y, op[x].shape);
  return op.finish(Unit::Vector, static_cast<double>(op[y].count()) * 6, [=](const Operands& v) {
    std::vector<float> values = read(v[x]);
    for (float& value : values)
      if (const float z = steep * value; z <= most) value = std::log1p(std::exp(z)) / steep;
    write(v[y], values);
  });
}
ACLNN_PHASE2(aclnnSoftplus);

aclnnStatus aclnnTanhGetWorkspaceSize(Tensor self, TensorRef out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary("aclnnTanh", self, out, workspaceSize, executor, [](float x) { return std::tanh(x); });
}
ACLNN_PHASE2(aclnnTanh);

// 1 is the form with a hyperbolic tangent, any other number that with the error function (hicann/ops-nn @ a84fd19a,
// activation/gelu_v2/op_api/aclnn_gelu_v2.cpp:25-34).
aclnnStatus aclnnGeluV2GetWorkspaceSize(Tensor x, int64_t approximate, TensorRef y, uint64_t* workspaceSize,
                                        aclOpExecutor** executor) {
  constexpr float kHalfRoot = 0.70710678f, kRootOfTwoOverPi = 0.79788456f;
  if (approximate == 1)
    return unary("aclnnGeluV2", x, y, workspaceSize, executor,
                 [](float v) { return v * (1 + std::tanh(kRootOfTwoOverPi * (v + 0.044715f * v * v * v))) / 2; });
  return unary("aclnnGeluV2", x, y, workspaceSize, executor,
               [](float v) { return v * (1 + std::erf(v * kHalfRoot)) / 2; });
}
ACLNN_PHASE2(aclnnGeluV2);

// The strided copy: broadcasts, converts, and needs nothing to be packed.
aclnnStatus aclnnInplaceCopyGetWorkspaceSize(TensorRef selfRef, Tensor src, uint64_t* workspaceSize,
                                             aclOpExecutor** executor) {
  Operator op("aclnnInplaceCopy", workspaceSize, executor);
  const Slot to = op.ref("selfRef", selfRef, Walk::Strides), from = op.in("src", src, Walk::Strides);
  if (!op.ok()) return op.status();
  const auto shape = broadcast(op[to].shape, op[from].shape);
  op.valid(shape && *shape == op[to].shape,
           "src " + text_of(op[from].shape) + " does not broadcast to " + text_of(op[to].shape));
  op.once("it copies to the view it was given");
  return op.finish(
      Unit::Vector, 0, [=](const Operands& v) { convert_elements(v[from], v[to]); }, op[to].bytes() + op[from].bytes());
}
ACLNN_PHASE2(aclnnInplaceCopy);

aclnnStatus aclnnCastGetWorkspaceSize(Tensor self, const aclDataType dtype, TensorRef out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  Operator op("aclnnCast", workspaceSize, executor);
  const Slot from = op.in("self", self), to = op.out("out", out);
  op.attributes({dtype});
  if (!op.ok()) return op.status();
  op.valid(op[to].dtype == dtype, "out is " + name_of(op[to].dtype) + " but dtype asks for " + name_of(dtype));
  op.shape(to, op[from].shape);
  return op.finish(op.vector_or(casts_on_core(op[from].dtype, op[to].dtype)), static_cast<double>(op[to].count()),
                   [=](const Operands& v) { convert_elements(v[from], v[to]); });
}
ACLNN_PHASE2(aclnnCast);

aclnnStatus aclnnInplaceZeroGetWorkspaceSize(TensorRef selfRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return fill("aclnnInplaceZero", selfRef, nullptr, true, workspaceSize, executor);
}
ACLNN_PHASE2(aclnnInplaceZero);

aclnnStatus aclnnInplaceFillScalarGetWorkspaceSize(TensorRef selfRef, Scalar value, uint64_t* workspaceSize,
                                                   aclOpExecutor** executor) {
  return fill("aclnnInplaceFillScalar", selfRef, value, false, workspaceSize, executor);
}
ACLNN_PHASE2(aclnnInplaceFillScalar);

}  // extern "C"
