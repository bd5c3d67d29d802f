#include "backends/cpu/kernels/elementwise.h"

#include "backends/cpu/kernels/curves.h"
#include "backends/cpu/kernels/define.h"
#include "ops/args/elements.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

struct Add {
  static F32x16 apply(F32x16 a, F32x16 b) { return a + b; }
};
struct Mul {
  static F32x16 apply(F32x16 a, F32x16 b) { return a * b; }
};

struct Reciprocal {
  static F32x16 apply(F32x16 x) { return splat(1.0f) / x; }
};
struct Silu {
  static F32x16 apply(F32x16 x) { return silu(x); }
};
struct Gelu {
  static F32x16 apply(F32x16 x) { return gelu(x); }
};
struct GeluTanh {
  static F32x16 apply(F32x16 x) { return gelu_tanh(x); }
};
struct ReluSquared {
  static F32x16 apply(F32x16 x) {
    const F32x16 above = select(greater(zero(), x), zero(), x);  // what is no number stays so
    return above * above;
  }
};
struct Sigmoid {
  static F32x16 apply(F32x16 x) { return splat(1.0f) / (exp(-x) + 1.0f); }
};

struct Scale {
  static F32x16 apply(F32x16 x, float by) { return x * by; }
};
struct Softcap {
  static F32x16 apply(F32x16 x, float cap) { return tanh(x / splat(cap)) * cap; }
};

template <typename E, typename Op>
void binary(const BinaryArgs& args, const Launch& l) {
  const typename E::Type *a = args.a, *b = args.b;
  typename E::Type* out = args.out;
  const Range r = share_rows_or_elements(l.size(args.rows), args.width, l.thread, l.threads);
  a += r.begin, b += r.begin;
  store_each<E>(out + r.begin, r.end - r.begin,
                [=](int64_t i, int64_t rest) { return Op::apply(load_n<E>(a + i, rest), load_n<E>(b + i, rest)); });
}

template <typename E, typename Op>
void unary(const UnaryArgs& args, const Launch& l) {
  const typename E::Type* x = args.x;
  typename E::Type* out = args.out;
  const Range r = share_rows_or_elements(l.size(args.rows), args.width, l.thread, l.threads);
  x += r.begin;
  store_each<E>(out + r.begin, r.end - r.begin,
                [=](int64_t i, int64_t rest) { return Op::apply(load_n<E>(x + i, rest)); });
}

template <typename E, typename Op>
void with_number(const NumberArgs& args, const Launch& l) {
  const typename E::Type* x = args.x;
  typename E::Type* out = args.out;
  const float number = static_cast<float>(args.number);
  const Range r = share_rows_or_elements(l.size(args.rows), args.width, l.thread, l.threads);
  x += r.begin;
  store_each<E>(out + r.begin, r.end - r.begin,
                [=](int64_t i, int64_t rest) { return Op::apply(load_n<E>(x + i, rest), number); });
}

template <typename E>
void swiglu_clamped(const SwigluClampedArgs& args, const Launch& l) {
  const typename E::Type *gate = args.gate, *up = args.up;
  typename E::Type* out = args.out;
  const F32x16 alpha = splat(static_cast<float>(args.alpha)), top = splat(static_cast<float>(args.limit));
  const Range r = share_rows_or_elements(l.size(args.rows), args.width, l.thread, l.threads);
  gate += r.begin, up += r.begin;
  store_each<E>(out + r.begin, r.end - r.begin, [=](int64_t i, int64_t rest) {
    F32x16 g = load_n<E>(gate + i, rest), u = load_n<E>(up + i, rest);
    g = select(greater(g, top), top, g);
    u = select(greater(u, top), top, u);
    u = select(greater(-top, u), -top, u);
    return (u + 1.0f) * (g / (exp(-(g * alpha)) + 1.0f));
  });
}

}  // namespace

REPRISE_KERNELS(add, binary, Add)
REPRISE_KERNELS(mul, binary, Mul)
REPRISE_KERNELS(reciprocal, unary, Reciprocal)
REPRISE_KERNELS(silu, unary, Silu)
REPRISE_KERNELS(gelu, unary, Gelu)
REPRISE_KERNELS(gelu_tanh, unary, GeluTanh)
REPRISE_KERNELS(relu_squared, unary, ReluSquared)
REPRISE_KERNELS(scale, with_number, Scale)
REPRISE_KERNELS(softcap, with_number, Softcap)
REPRISE_KERNELS(sigmoid, unary, Sigmoid)
REPRISE_KERNELS(swiglu_clamped, swiglu_clamped)

}  // namespace reprise::cpu::REPRISE_ISA
