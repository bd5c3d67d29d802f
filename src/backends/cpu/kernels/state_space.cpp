// The state-space step of Mamba-2 (arXiv 2405.21060), by state_head.h: a state fades by one number a head and takes in
// each row's x times B; C asks it.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/state_head.h"
#include "ops/args/recurrent.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Keys are B, queries are C, values are x.
template <typename E>
struct SpaceRule {
  using T = typename E::Type;
  using Args = StateSpaceArgs;
  static constexpr bool kFinds = false;

  explicit SpaceRule(const Args& args) : a(args), width(a.heads * a.value + 2 * a.groups * a.key) {}

  const T* values(int64_t head) const { return static_cast<const T*>(a.xbc) + head * a.value; }

  void prepare(StateTile& tile, int64_t head, int64_t row, int64_t rows) const {
    const float *a_log = a.a_log, *dt_bias = a.dt_bias, *d = a.d;
    tile.skip = d[head];
    const int64_t group = head / (a.heads / a.groups);
    const T* b = static_cast<const T*>(a.xbc) + row * width + a.heads * a.value + group * a.key;
    for (int64_t t = 0; t < rows; ++t, b += width) {
      const T* c = b + a.groups * a.key;
      float *k = tile.k + t * tile.pitch, *q = tile.q + t * tile.pitch;
      each_sixteen(a.key, [&](int64_t i, int64_t rest) {
        store(k + i, load_n<E>(b + i, rest));
        store(q + i, load_n<E>(c + i, rest));
      });
    }
    const T* dt = a.dt;
    const F32x16 fading = exp(splat(a_log[head])), bias = splat(dt_bias[head]),
                 least = splat(static_cast<float>(a.least_step)), most = splat(static_cast<float>(a.most_step));
    for (int64_t t = 0; t < rows; t += 16) {
      F32x16 step = larger(softplus(numbers_of_head<E>(dt, a.heads, row + t, head, rows - t) + bias), least);
      if (a.most_step > 0) step = select(greater(step, most), most, step);
      store(tile.decay + t, exp_bounded(-(fading * step)));
      store(tile.beta + t, step);
    }
  }

  const Args& a;
  int64_t width;
};

template <typename E>
void state_space(const StateSpaceArgs& a, const Launch& l) {
  work_on_states<E, SpaceRule<E>>(a, l);
}

}  // namespace

REPRISE_KERNELS(state_space, state_space)

}  // namespace reprise::cpu::REPRISE_ISA
