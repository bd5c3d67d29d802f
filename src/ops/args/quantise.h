// Launch arguments of the ops that make int8 rows: of plain rows, of gated ones, of groups of rows.
//
// `rows` of `width` int8 numbers are the result. `scales` and `offsets` say how many numbers there are: 1 for all
// columns, or one for each. Filled in quantise.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;

struct QuantizeStaticArgs {
  In x, scale, offset;
  Out values;
  Dim rows;
  int64_t width, scales, offsets;
  DType type;

  void fill(const OpCall& call);
};

struct QuantizeDynamicArgs {
  In x;
  Out values, scale;
  Dim rows;
  int64_t width;
  DType type;

  void fill(const OpCall& call);
};

struct SiluMulQuantArgs {
  In gate_up;
  Out values, scale;
  Dim rows;
  int64_t width;
  DType type;

  void fill(const OpCall& call);
};

struct SiluMulQuantStaticArgs {
  In gate_up, scale, offset;
  Out values;
  Dim rows;
  int64_t width, scales, offsets;
  DType type;

  void fill(const OpCall& call);
};

struct QuantizeGroupsArgs {
  In x, starts, scale, offset;
  Out values;
  Dim rows;
  int64_t width, groups;
  DType type;

  void fill(const OpCall& call);
};

}  // namespace reprise
