#include "backends/cpu/kernels/simd.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {

// ptr: x, index, out. dim: rows of x, rows of out, bytes of a row.
void rows(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const char*>(args.ptr[0]);
  const auto* index = static_cast<const int32_t*>(args.ptr[1]);
  auto* out = static_cast<char*>(args.ptr[2]);
  const int64_t count = args.dim[0].value(live), bytes = args.dim[2].value(live);
  const Range r = share(args.dim[1].value(live), rank, ranks);
  for (int64_t i = r.begin; i < r.end; ++i) {
    if (index[i] >= 0 && index[i] < count)
      std::memcpy(out + i * bytes, x + index[i] * bytes, static_cast<size_t>(bytes));
    else
      std::memset(out + i * bytes, 0, static_cast<size_t>(bytes));
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
