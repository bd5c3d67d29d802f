// GCC 12 takes the undefined operands inside its own AVX-512 intrinsics for uninitialised variables.
#pragma GCC diagnostic ignored "-Wuninitialized"

#include "backends/cpu/kernels/kv_run.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: kv, k, v, slots, (kv again). dim: tokens, heads, head size. T: what k and v hold; Stored: how the cache holds
// it.
template <typename T, typename Stored>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  auto* kv = static_cast<typename Stored::Cell*>(args.ptr[0]);
  const auto* k = static_cast<const T*>(args.ptr[1]);
  const auto* v = static_cast<const T*>(args.ptr[2]);
  const int64_t heads = args.dim[1].value(live), size = args.dim[2].value(live);
  const int64_t row = kv_row_of(size, Stored::kScaled);
  for_each_kv_run(
      static_cast<const int32_t*>(args.ptr[3]), args.dim[0].value(live), heads, rank, ranks, [&](const KvPlaces& to) {
        for (int64_t h = to.first_head; h < to.last_head; ++h) {
          const int64_t at = (to.token * heads + h) * size;
          Stored::write({kv + kv_block(to.page, false, h, heads, row), kv + kv_block(to.page, true, h, heads, row),
                         k + at, v + at, heads * size, heads * size, to.place, to.count, size});
        }
      });
}

}  // namespace

REPRISE_KERNEL(kv_write_f32, run<uint32_t, KvAsIs<uint32_t, false>>)
REPRISE_KERNEL(kv_write_bf16, run<uint16_t, KvAsIs<uint16_t, true>>)
REPRISE_KERNEL(kv_write_f16, run<uint16_t, KvAsIs<uint16_t, false>>)
REPRISE_KERNEL(kv_write_f32_i8, run<float, KvAsInt8<F32>>)
REPRISE_KERNEL(kv_write_bf16_i8, run<uint16_t, KvAsInt8<Bf16>>)
REPRISE_KERNEL(kv_write_f16_i8, run<uint16_t, KvAsInt8<F16>>)

}  // namespace reprise::cpu::REPRISE_ISA
