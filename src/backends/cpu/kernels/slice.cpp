// slice and copy: bytes from one place to another.
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {

// ptr: x, out. dim: rows, bytes of a row of x, of the columns left out before, of a row of out.
void slice(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const char*>(args.ptr[0]);
  auto* out = static_cast<char*>(args.ptr[1]);
  const int64_t width = args.dim[1].value(live), begin = args.dim[2].value(live), size = args.dim[3].value(live);
  const Range mine = share_rows_or_elements(args.dim[0].value(live), size, rank, ranks);
  if (mine.begin == mine.end) return;  // an empty tensor may have no address
  for_each_row_part(mine, size, [&](int64_t row, int64_t first, int64_t last) {
    std::memcpy(out + row * size + first, x + row * width + begin + first, static_cast<size_t>(last - first));
  });
}

// ptr: x, out. dim: bytes.
void copy(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const Range mine = share(args.dim[0].value(live), 64, rank, ranks);
  if (mine.begin == mine.end) return;  // an empty tensor may have no address
  std::memcpy(static_cast<char*>(args.ptr[1]) + mine.begin, static_cast<const char*>(args.ptr[0]) + mine.begin,
              static_cast<size_t>(mine.end - mine.begin));
}

}  // namespace reprise::cpu::REPRISE_ISA
