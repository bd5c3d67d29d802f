// Launch arguments of LoRA adapters (ops/lora.cpp): rows of x or y, of which each names a slot by ids, 0 being none.
// Plain data that every kernel compiler reads. Filled in lora.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;

// `width` is that of x, `rank` the most rows of a slot of a.
struct LoraShrinkArgs {
  In x, ids, a, ranks, scales;
  Out h;
  Dim rows;
  int64_t width, rank;

  void fill(const OpCall& call);
};

// Columns [begin, begin + columns) of y, which is `width` wide.
struct LoraExpandArgs {
  Out y;
  In h, ids, b, ranks;
  Out out;  // y
  Dim rows;
  int64_t width, begin, columns, rank;

  void fill(const OpCall& call);
};

}  // namespace reprise
