#include "backends/cpu/kernels/elementwise.h"

#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

struct Add {
  static F32x16 apply(F32x16 a, F32x16 b) { return a + b; }
};
struct Mul {
  static F32x16 apply(F32x16 a, F32x16 b) { return a * b; }
};

// dim: first size, elements per unit of it.
Range elements_of_rank(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  return share_rows_or_elements(args.dim[0].value(live), args.dim[1].value(live), rank, ranks);
}

// ptr: a, b, out.
template <typename E, typename Op>
void binary(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* a = static_cast<const typename E::Type*>(args.ptr[0]);
  const auto* b = static_cast<const typename E::Type*>(args.ptr[1]);
  auto* out = static_cast<typename E::Type*>(args.ptr[2]);
  const Range r = elements_of_rank(args, live, rank, ranks);
  a += r.begin, b += r.begin;
  store_each<E>(out + r.begin, r.end - r.begin,
                [=](int64_t i, int64_t rest) { return Op::apply(load_n<E>(a + i, rest), load_n<E>(b + i, rest)); });
}

// ptr: x, out.
template <typename E>
void reciprocal_of(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  auto* out = static_cast<typename E::Type*>(args.ptr[1]);
  const Range r = elements_of_rank(args, live, rank, ranks);
  for (int64_t i = r.begin; i < r.end; i += 16)
    store_n<E>(out + i, splat(1.0f) / load_n<E>(x + i, r.end - i), r.end - i);
}

// ptr: x, out.
template <typename E>
void silu_of(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  auto* out = static_cast<typename E::Type*>(args.ptr[1]);
  const Range r = elements_of_rank(args, live, rank, ranks);
  x += r.begin;
  store_each<E>(out + r.begin, r.end - r.begin, [=](int64_t i, int64_t rest) { return silu(load_n<E>(x + i, rest)); });
}

}  // namespace

REPRISE_KERNELS(add, binary, Add)
REPRISE_KERNELS(mul, binary, Mul)
REPRISE_KERNELS(reciprocal, reciprocal_of)
REPRISE_KERNELS(silu, silu_of)

}  // namespace reprise::cpu::REPRISE_ISA
