// split_qk_norm_rope and split_qk_norm_rope_kv: from one row of projected heads per token to rotated queries and keys,
// the keys and values in tensors of their own or straight in the paged cache. A norm is rounded before the rotation, as
// the meaning has it.

#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/kv_run.h"
#include "backends/cpu/kernels/norm_rope.h"
#include "ops/args/rotation.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename E>
struct Heads {
  using T = typename E::Type;
  Heads(const auto& a, const Launch& l)
      : tokens(l.size(a.sizes.tokens)),
        heads(a.sizes.heads),
        kv_heads(a.sizes.kv_heads),
        size(a.sizes.size),
        rot(a.sizes.rotated),
        eps(static_cast<float>(a.sizes.eps)),
        qkv(a.qkv),
        table(a.table),
        q_weight(a.q_weight),
        k_weight(a.k_weight) {}

  const T* head(int64_t token, int64_t h) const { return qkv + (token * (heads + 2 * kv_heads) + h) * size; }

  // Heads from `first` on of one token, side by side in `out`.
  void of_token(int64_t token, int64_t first, int64_t count, const T* weight, T* out) const {
    for (int64_t h = 0; h < count; h += kHeadsAtOnce) {
      const int64_t n = count - h < kHeadsAtOnce ? count - h : kHeadsAtOnce;
      const HeadRows<E> rows{head(token, first + h), table + token * rot, out + h * size, size, 0, size, n};
      norm_rope<E>(rows, weight, size, rot, eps);
    }
  }
  // One head of `count` tokens, side by side in `out`.
  void of_head(int64_t h, int64_t token, int64_t count, const T* weight, T* out) const {
    const HeadRows<E> rows{head(token, h), table + token * rot, out, (heads + 2 * kv_heads) * size, rot, size, count};
    norm_rope<E>(rows, weight, size, rot, eps);
  }

  void queries(T* out, int thread, int threads) const {
    const Range mine = share(tokens * heads, thread, threads);
    for (int64_t u = mine.begin; u < mine.end;) {
      const int64_t h = u % heads, count = heads - h < mine.end - u ? heads - h : mine.end - u;
      of_token(u / heads, h, count, q_weight, out + u * size);
      u += count;
    }
  }

  int64_t tokens, heads, kv_heads, size, rot;
  float eps;
  const T* qkv;
  const float* table;
  const T* q_weight;  // null: no norm
  const T* k_weight;
};

// Queries are dealt out from the other end, so that the thread with a key more has one of these less.
int opposite(const Launch& l) { return l.threads - 1 - l.thread; }

template <typename E>
void split(const SplitArgs& args, const Launch& l) {
  using T = typename E::Type;
  const Heads<E> a(args, l);
  T *k = args.k, *v = args.v;
  a.queries(args.q, opposite(l), l.threads);
  const Range mine = l.share(a.tokens * a.kv_heads);
  for (int64_t u = mine.begin; u < mine.end;) {
    const int64_t t = u / a.kv_heads, g = u % a.kv_heads;
    const int64_t count = a.kv_heads - g < mine.end - u ? a.kv_heads - g : mine.end - u;
    a.of_token(t, a.heads + g, count, a.k_weight, k + u * a.size);
    std::memcpy(v + u * a.size, a.head(t, a.heads + a.kv_heads + g), static_cast<size_t>(count * a.size) * sizeof(T));
    u += count;
  }
}

// Keys of a run of tokens are made side by side first, because the cache has tokens innermost.
template <typename E, typename Stored>
void split_kv(const SplitKvArgs& args, const Launch& l) {
  using T = typename E::Type;
  const Heads<E> a(args, l);
  typename Stored::Cell* kv = args.kv;
  a.queries(args.q, opposite(l), l.threads);
  static_assert(kKeyRun <= kHeadsAtOnce);
  alignas(64) T keys[kHeadsAtOnce * kMaxHeadSize];
  const int64_t v_stride = (a.heads + 2 * a.kv_heads) * a.size, row = kv_row_of(a.size, Stored::kScaled);
  auto write = [&](int64_t g, const T* made, const KvPlaces& to) {
    Stored::write({kv + kv_block(to.page, false, g, a.kv_heads, row), kv + kv_block(to.page, true, g, a.kv_heads, row),
                   made, a.head(to.token, a.heads + a.kv_heads + g), a.size, v_stride, to.place, to.count, a.size});
  };
  for_each_kv_run(args.slots, a.tokens, a.kv_heads, l.thread, l.threads, [&](const KvPlaces& to) {
    if (to.count > 1) {
      for (int64_t g = to.first_head; g < to.last_head; ++g) {
        a.of_head(a.heads + g, to.token, to.count, a.k_weight, keys);
        write(g, keys, to);
      }
      return;
    }
    for (int64_t g = to.first_head; g < to.last_head; g += kHeadsAtOnce) {
      const int64_t count = to.last_head - g < kHeadsAtOnce ? to.last_head - g : kHeadsAtOnce;
      a.of_token(to.token, a.heads + g, count, a.k_weight, keys);
      for (int64_t i = 0; i < count; ++i) write(g + i, keys + i * a.size, to);
    }
  });
}

}  // namespace

REPRISE_KERNELS(split_qk_norm_rope, split)
REPRISE_KERNEL(split_qk_norm_rope_kv_f32, split_kv<F32, KvAsIs<float, false>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_bf16, split_kv<Bf16, KvAsIs<uint16_t, true>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_f16, split_kv<F16, KvAsIs<uint16_t, false>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_i8_f32, split_kv<F32, KvAsInt8<F32>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_i8_bf16, split_kv<Bf16, KvAsInt8<Bf16>>)
REPRISE_KERNEL(split_qk_norm_rope_kv_i8_f16, split_kv<F16, KvAsInt8<F16>>)

}  // namespace reprise::cpu::REPRISE_ISA
