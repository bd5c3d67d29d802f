// Sizes that the kernels of a mixture of experts and the entries that reserve their workspaces share. Internal linkage,
// because kernel sources may not share inline code across instruction sets.
#pragma once

#include <cstdint>

namespace reprise::cpu {

static constexpr int64_t kMaxGateGroups = 256;

// Floats of one row of scores, numbers of one thread's counts: whole cache lines.
[[maybe_unused]] static constexpr int64_t gate_row(int64_t experts) { return (experts + 15) / 16 * 16; }
[[maybe_unused]] static constexpr int64_t route_row(int64_t experts) { return (experts + 16) / 16 * 16; }

}  // namespace reprise::cpu
