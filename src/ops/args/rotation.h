// Launch arguments of rotary positions, of cache writes, and of what joins them to the norm of heads.
//
// An op that continues an operand in place names it twice: the operand, and `same` where its result lies, which is
// the same memory. Filled in rotation.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;

struct RopeTableArgs {
  In positions;
  Out table;
  const double* inv_freq;  // the attribute's own numbers, which the host reads; they live as long as the graph
  Dim tokens;
  int64_t dim, ntk_window;
  double scale, ntk_base, ntk_factor;

  void fill(const OpCall& call);
};

struct PositionScaleArgs {
  In positions;
  Out out;
  const double* factors;  // as in RopeTableArgs
  Dim tokens;
  int64_t count, period, offset;

  void fill(const OpCall& call);
};

struct RopeTableAxesArgs {
  In positions;
  Out table;
  const double *inv_freq, *axes;  // as in RopeTableArgs
  Dim tokens;
  int64_t frequencies, columns;
  double scale;

  void fill(const OpCall& call);
};

struct RopeArgs {
  In x, table;
  Out out;
  Dim tokens;
  int64_t heads, size, rotated;
  bool interleaved;
  DType type, table_type;
  bool planes;  // of the table: rope_angles

  void fill(const OpCall& call);
};

struct RopeAnglesArgs {
  In table;
  Out angles;
  Dim tokens;
  int64_t rotated;
  bool planes;
  DType type;  // of the angles

  void fill(const OpCall& call);
};

struct IndexI64Args {
  In x;
  Out out;
  Dim count;

  void fill(const OpCall& call);
};

// Sizes of a row of projected heads: queries, keys, values.
struct SplitSizes {
  Dim tokens;
  int64_t heads, kv_heads, size, rotated;
  double eps;
  DType type, table_type;
};

struct SplitArgs {
  In qkv, table, q_weight, k_weight;
  Out q, k, v;
  SplitSizes sizes;

  void fill(const OpCall& call);
};

struct SplitKvArgs {
  Out kv;
  In qkv, table, slots, q_weight, k_weight;
  Out same, q;
  SplitSizes sizes;

  void fill(const OpCall& call);
};

struct SplitRowsArgs {
  Out keys, values;
  In qkv, table, slots, q_weight, k_weight;
  Out same_keys, same_values, q;
  SplitSizes sizes;
  Dim pages;

  void fill(const OpCall& call);
};

struct LatentRowsArgs {
  Out c_kv, k_pe;
  In kv, weight, table, slots;
  Out same_c_kv, same_k_pe;
  Dim tokens, pages;
  int64_t width, rotated;
  double eps;
  DType type, table_type, slot_type;
  bool planes;  // of the table

  void fill(const OpCall& call);
};

struct KvWriteArgs {
  Out kv;
  In k, v, slots;
  Out same;
  Dim tokens;
  int64_t heads, size;

  void fill(const OpCall& call);
};

struct RowWriteArgs {
  Out cache;
  In rows, slots;
  Out same;
  Dim tokens, pages;
  int64_t width;
  int64_t element;  // bytes
  DType type;

  void fill(const OpCall& call);
};

}  // namespace reprise
