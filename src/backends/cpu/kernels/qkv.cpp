// split_qk_norm_rope and split_qk_norm_rope_kv: from one row of projected heads per token to rotated queries and keys,
// the keys and values in tensors of their own or straight in the paged cache. A norm is rounded before the rotation, as
// the meaning has it.

#include "backends/cpu/kernels/kv_run.h"
#include "backends/cpu/kernels/norm.h"
#include "backends/cpu/kernels/rope.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Norm and rotation of a whole head of the usual sizes without a stop in memory between the two.
template <typename E, int kChunks>
inline void norm_rope_whole(const typename E::Type* x, const typename E::Type* weight, const float* table,
                            typename E::Type* out, float eps) {
  constexpr int kPairs = kChunks / 2;
  F32x16 v[kChunks];
  F32x16 squares = zero();
#pragma GCC unroll 8
  for (int i = 0; i < kChunks; ++i) {
    v[i] = E::load(x + 16 * i);
    squares = fma(v[i], v[i], squares);
  }
  const F32x16 factor = splat(rms_factor_of(squares, 16 * kChunks, eps));
#pragma GCC unroll 8
  for (int i = 0; i < kPairs; ++i) {
    const F32x16 a = E::round(v[i] * factor * E::load(weight + 16 * i));
    const F32x16 b = E::round(v[i + kPairs] * factor * E::load(weight + 16 * (i + kPairs)));
    const F32x16 c = load(table + 16 * i), s = load(table + 16 * (i + kPairs));
    E::store(out + 16 * i, rope_first(a, b, c, s));
    E::store(out + 16 * (i + kPairs), rope_second(a, b, c, s));
  }
}

// dim: tokens, query heads, key/value heads, head size, rotated size. scalar: eps.
template <typename E>
struct Heads {
  using T = typename E::Type;
  Heads(const LaunchArgs& args, const LiveSizes& live)
      : tokens(args.dim[0].value(live)),
        heads(args.dim[1].value(live)),
        kv_heads(args.dim[2].value(live)),
        size(args.dim[3].value(live)),
        rot(args.dim[4].value(live)),
        eps(static_cast<float>(args.scalar[0])) {}

  const T* head(int64_t token, int64_t h) const { return qkv + (token * (heads + 2 * kv_heads) + h) * size; }

  void norm_rope(const T* x, const T* weight, int64_t token, T* out) const {
    if (weight && rot == size && size == 128) return norm_rope_whole<E, 8>(x, weight, table + token * rot, out, eps);
    if (weight && rot == size && size == 64) return norm_rope_whole<E, 4>(x, weight, table + token * rot, out, eps);
    if (weight) {
      rms_norm_row<E>(x, weight, out, size, eps);
      x = out;
    }
    rope_head<E>(x, table + token * rot, out, rot / 2, size);
  }

  void queries(T* out, int rank, int ranks) const {
    const Range mine = share(tokens * heads, rank, ranks);
    for (int64_t u = mine.begin; u < mine.end; ++u) {
      const int64_t t = u / heads;
      norm_rope(head(t, u % heads), q_weight, t, out + u * size);
    }
  }

  int64_t tokens, heads, kv_heads, size, rot;
  float eps;
  const T* qkv = nullptr;
  const float* table = nullptr;
  const T* q_weight = nullptr;
  const T* k_weight = nullptr;
};

// Queries are dealt out from the other end, so that the rank with a key more has one of these less.
int opposite(int rank, int ranks) { return ranks - 1 - rank; }

// ptr: qkv, table, q_weight or null, k_weight or null, q, k, v.
template <typename E>
void split(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  using T = typename E::Type;
  Heads<E> a(args, live);
  a.qkv = static_cast<const T*>(args.ptr[0]);
  a.table = static_cast<const float*>(args.ptr[1]);
  a.q_weight = static_cast<const T*>(args.ptr[2]);
  a.k_weight = static_cast<const T*>(args.ptr[3]);
  auto* k = static_cast<T*>(args.ptr[5]);
  auto* v = static_cast<T*>(args.ptr[6]);
  a.queries(static_cast<T*>(args.ptr[4]), opposite(rank, ranks), ranks);
  const Range mine = share(a.tokens * a.kv_heads, rank, ranks);
  for (int64_t u = mine.begin; u < mine.end; ++u) {
    const int64_t t = u / a.kv_heads, g = u % a.kv_heads;
    a.norm_rope(a.head(t, a.heads + g), a.k_weight, t, k + u * a.size);
    std::memcpy(v + u * a.size, a.head(t, a.heads + a.kv_heads + g), static_cast<size_t>(a.size) * sizeof(T));
  }
}

// ptr: kv, qkv, table, slots, q_weight or null, k_weight or null, (kv again), q. Keys of a run of tokens are made side
// by side first, because the cache has tokens innermost.
template <typename E, typename Stored>
void split_kv(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  using T = typename E::Type;
  Heads<E> a(args, live);
  auto* kv = static_cast<typename Stored::Cell*>(args.ptr[0]);
  a.qkv = static_cast<const T*>(args.ptr[1]);
  a.table = static_cast<const float*>(args.ptr[2]);
  a.q_weight = static_cast<const T*>(args.ptr[4]);
  a.k_weight = static_cast<const T*>(args.ptr[5]);
  a.queries(static_cast<T*>(args.ptr[7]), opposite(rank, ranks), ranks);
  alignas(64) T keys[kKeyRun * kMaxHeadSize];
  const int64_t v_stride = (a.heads + 2 * a.kv_heads) * a.size, row = kv_row_of(a.size, Stored::kScaled);
  for_each_kv_run(
      static_cast<const int32_t*>(args.ptr[3]), a.tokens, a.kv_heads, rank, ranks,
      [&](int64_t g, int64_t t, int64_t count, int64_t page, int64_t place) {
        for (int64_t j = 0; j < count; ++j)
          a.norm_rope(a.head(t + j, a.heads + g), a.k_weight, t + j, keys + j * a.size);
        Stored::write({kv + kv_block(page, false, g, a.kv_heads, row), kv + kv_block(page, true, g, a.kv_heads, row),
                       keys, a.head(t, a.heads + a.kv_heads + g), a.size, v_stride, place, count, a.size});
      });
}

}  // namespace

#define REPRISE_KERNEL(name, ...)                                                 \
  void name(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) { \
    __VA_ARGS__(args, live, rank, ranks);                                         \
  }
REPRISE_KERNEL(split_qk_norm_rope_f32, split<F32>)
REPRISE_KERNEL(split_qk_norm_rope_bf16, split<Bf16>)
REPRISE_KERNEL(split_qk_norm_rope_f16, split<F16>)
REPRISE_KERNEL(split_qk_norm_rope_kv_f32, split_kv<F32, KvAsIs<float, false>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_bf16, split_kv<Bf16, KvAsIs<uint16_t, true>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_f16, split_kv<F16, KvAsIs<uint16_t, false>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_f32_i8, split_kv<F32, KvAsInt8<F32>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_bf16_i8, split_kv<Bf16, KvAsInt8<Bf16>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_f16_i8, split_kv<F16, KvAsInt8<F16>>)
#undef REPRISE_KERNEL

}  // namespace reprise::cpu::REPRISE_ISA
