// embedding: rows of a table by id. An id outside the table gives a row of zeros.
// The launch's way is k per group of the panel layout, or 0 where the table is row-major.
#include <cstring>

#include "backends/cpu/kernels/define.h"
#include "ops/args/elements.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kPanel = 64;
constexpr int64_t kChunk = 64;  // elements of a row that one thread takes at a time; even, so that pairs stay together

template <typename Group>
void gather(const Group* panel, int64_t first, int64_t count, char* out) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(out + i * static_cast<int64_t>(sizeof(Group)), panel + (first + i) * kPanel, sizeof(Group));
}

void from_rows(const IndexSelectArgs& a, const Launch& l) {
  const char* table = a.x;
  const int32_t* ids = a.index;
  char* out = a.out;
  const int64_t row = a.width * a.element, table_rows = a.x_rows.factor;
  const Range mine = l.share(l.size(a.rows));
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    if (ids[t] < 0 || ids[t] >= table_rows)
      std::memset(out + t * row, 0, static_cast<size_t>(row));
    else
      std::memcpy(out + t * row, table + ids[t] * row, static_cast<size_t>(row));
  }
}

void from_panels(const IndexSelectArgs& a, const Launch& l) {
  const char* table = a.x;
  const int32_t* ids = a.index;
  char* out = a.out;
  const int64_t width = a.width, table_rows = a.x_rows.factor, elem = a.element, group = l.way;
  const int64_t panel_bytes = (width + group - 1) / group * kPanel * group * elem;
  const int64_t chunks = (width + kChunk - 1) / kChunk;
  // A row of a panel is one element out of every line, so even a single row is worth sharing.
  const Range mine = l.share(l.size(a.rows) * chunks);
  for (int64_t u = mine.begin; u < mine.end; ++u) {
    const int64_t t = u / chunks, first = u % chunks * kChunk;
    const int64_t count = width - first < kChunk ? width - first : kChunk;
    char* to = out + (t * width + first) * elem;
    const int64_t id = ids[t];
    if (id < 0 || id >= table_rows) {
      std::memset(to, 0, static_cast<size_t>(count * elem));
      continue;
    }
    const char* panel = table + id / kPanel * panel_bytes + id % kPanel * group * elem;
    if (group * elem == 4)
      gather(reinterpret_cast<const uint32_t*>(panel), first / group, count / group, to);
    else
      gather(reinterpret_cast<const uint16_t*>(panel), first, count, to);
    if (count % group != 0)  // the last element of an odd row has a group to itself
      std::memcpy(to + (count - 1) * elem, panel + (first + count - 1) / group * kPanel * group * elem,
                  static_cast<size_t>(elem));
  }
}

void embed(const IndexSelectArgs& a, const Launch& l) {
  if (l.way == 0)
    from_rows(a, l);
  else
    from_panels(a, l);
}

}  // namespace

REPRISE_KERNEL(embedding, embed)

}  // namespace reprise::cpu::REPRISE_ISA
