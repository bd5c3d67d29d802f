// Launch arguments of the ops of encoders, of pooled outputs and of heads that draft. Filled in encoder.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;

// Attention of rows over the rows of their sequence: all of them where `window` is 0, else those less than so many rows
// away. `borders`: numbers of cu_seqlens, one more than sequences.
struct SegmentAttentionArgs {
  In q, k, v, cu_seqlens;
  Out out;
  Dim tokens, borders;
  int64_t heads, kv_heads, size, window;
  double scale;
  DType type;

  void fill(const OpCall& call);
};

// A row for each of `rows`; `kind` 0: the last, 1: the mean, 2: the first.
struct PoolRowsArgs {
  In x, cu_seqlens, rows;
  Out out;
  Dim tokens, borders, count;
  int64_t width, kind;
  DType type;  // of x

  void fill(const OpCall& call);
};

// widths in bytes
struct ConcatArgs {
  In a, b;
  Out out;
  Dim rows;
  int64_t a_width, b_width;

  void fill(const OpCall& call);
};

// l2_normalize, widen
struct VectorsArgs {
  In x;
  Out out;
  Dim rows;
  int64_t width;
  DType type;  // of x

  void fill(const OpCall& call);
};

}  // namespace reprise
