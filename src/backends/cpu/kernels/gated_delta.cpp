// The gated delta rule (Gated DeltaNet, arXiv 2412.06464), by state_head.h.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/state_head.h"
#include "ops/args/recurrent.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename E>
struct DeltaRule {
  using T = typename E::Type;
  using Args = GatedDeltaArgs;
  static constexpr bool kFinds = true;

  explicit DeltaRule(const Args& args) : a(args), width(2 * a.key_heads * a.key + a.heads * a.value) {}

  const T* values(int64_t head) const {
    return static_cast<const T*>(a.qkv) + 2 * a.key_heads * a.key + head * a.value;
  }

  // x / sqrt(sum of squares + 1e-6) * by; the sum as in norm.h.
  void normalise(const T* x, float by, float* out) const {
    F32x16 sum = zero();
    each_sixteen(a.key, [&](int64_t i, int64_t rest) {
      const F32x16 v = load_n<E>(x + i, rest);
      sum = fma(v, v, sum);
    });
    const float factor = 1.0f / __builtin_sqrtf(reduce_add(sum) + 1e-6f);
    each_sixteen(a.key, [&](int64_t i, int64_t rest) { store(out + i, load_n<E>(x + i, rest) * factor * by); });
  }

  void prepare(StateTile& tile, int64_t head, int64_t row, int64_t rows) const {
    const int64_t key_head = head / (a.heads / a.key_heads);
    const float by = 1.0f / __builtin_sqrtf(static_cast<float>(a.key));
    const T* qkv = a.qkv;
    for (int64_t t = 0; t < rows; ++t) {
      const T* q = qkv + (row + t) * width + key_head * a.key;
      normalise(q, by, tile.q + t * tile.pitch);
      normalise(q + a.key_heads * a.key, 1.0f, tile.k + t * tile.pitch);
    }
    const T *of_a = a.a, *of_b = a.b;
    const float *a_log = a.a_log, *dt_bias = a.dt_bias;
    const F32x16 fading = exp(splat(a_log[head])), bias = splat(dt_bias[head]);
    for (int64_t t = 0; t < rows; t += 16) {
      const F32x16 step = softplus(numbers_of_head<E>(of_a, a.heads, row + t, head, rows - t) + bias);
      store(tile.decay + t, exp_bounded(-(fading * step)));
      store(tile.beta + t, splat(1.0f) / (exp(-numbers_of_head<E>(of_b, a.heads, row + t, head, rows - t)) + 1.0f));
    }
  }

  const Args& a;
  int64_t width;
};

template <typename E>
void gated_delta(const GatedDeltaArgs& a, const Launch& l) {
  work_on_states<E, DeltaRule<E>>(a, l);
}

}  // namespace

REPRISE_KERNELS(gated_delta, gated_delta)

}  // namespace reprise::cpu::REPRISE_ISA
