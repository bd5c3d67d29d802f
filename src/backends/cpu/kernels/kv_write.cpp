// GCC 12 takes the undefined operands inside its own AVX-512 intrinsics for uninitialised variables.
#pragma GCC diagnostic ignored "-Wuninitialized"

#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/kv_run.h"
#include "ops/args/rotation.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// T: what k and v hold; Stored: how the cache holds it.
template <typename T, typename Stored>
void write_cache(const KvWriteArgs& a, const Launch& l) {
  typename Stored::Cell* kv = a.kv;
  const T *k = a.k, *v = a.v;
  const int64_t heads = a.heads, size = a.size;
  const int64_t row = kv_row_of(size, Stored::kScaled);
  for_each_kv_run(a.slots, l.size(a.tokens), heads, l.thread, l.threads, [&](const KvPlaces& to) {
    for (int64_t h = to.first_head; h < to.last_head; ++h) {
      const int64_t at = (to.token * heads + h) * size;
      Stored::write({kv + kv_block(to.page, false, h, heads, row), kv + kv_block(to.page, true, h, heads, row), k + at,
                     v + at, heads * size, heads * size, to.place, to.count, size});
    }
  });
}

}  // namespace

REPRISE_KERNEL(kv_write_f32, write_cache<uint32_t, KvAsIs<uint32_t, false>>)
REPRISE_KERNEL(kv_write_bf16, write_cache<uint16_t, KvAsIs<uint16_t, true>>)
REPRISE_KERNEL(kv_write_f16, write_cache<uint16_t, KvAsIs<uint16_t, false>>)
REPRISE_KERNEL(kv_write_i8_f32, write_cache<float, KvAsInt8<F32>>)
REPRISE_KERNEL(kv_write_i8_bf16, write_cache<uint16_t, KvAsInt8<Bf16>>)
REPRISE_KERNEL(kv_write_i8_f16, write_cache<uint16_t, KvAsInt8<F16>>)

}  // namespace reprise::cpu::REPRISE_ISA
