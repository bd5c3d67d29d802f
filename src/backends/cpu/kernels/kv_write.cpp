#include "backends/cpu/kernels/kv_run.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: kv, k, v, slots, (kv again). dim: tokens, heads, head size.
template <typename T, bool kPairs>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  auto* kv = static_cast<T*>(args.ptr[0]);
  const auto* k = static_cast<const T*>(args.ptr[1]);
  const auto* v = static_cast<const T*>(args.ptr[2]);
  const int64_t heads = args.dim[1].value(live), size = args.dim[2].value(live);
  for_each_kv_run(static_cast<const int32_t*>(args.ptr[3]), args.dim[0].value(live), heads, rank, ranks,
                  [&](int64_t head, int64_t t, int64_t count, int64_t page, int64_t place) {
                    const int64_t at = (t * heads + head) * size;
                    write_kv_run<T, kPairs>(kv + kv_block(page, false, head, heads, size),
                                            kv + kv_block(page, true, head, heads, size), k + at, v + at, heads * size,
                                            heads * size, place, count, size);
                  });
}

}  // namespace

void kv_write_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<uint32_t, false>(args, live, rank, ranks);
}
void kv_write_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<uint16_t, true>(args, live, rank, ranks);
}
void kv_write_f16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<uint16_t, false>(args, live, rank, ranks);
}

}  // namespace reprise::cpu::REPRISE_ISA
