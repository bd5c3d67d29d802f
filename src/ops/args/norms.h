// Launch arguments of layer norms, and of RMS norms alone, behind a residual addition and before a quantisation.
//
// `rows` of `width` numbers are normed, each by itself; eps is the op's attribute. A bias that is left out is null.
// `scales` and `offsets` say how many numbers there are: 1 for all columns, or one for each. Filled in norms.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;

struct RmsNormArgs {
  In x, weight, bias;
  Out out;
  Dim rows;
  int64_t width;
  double eps;
  DType type;

  void fill(const OpCall& call);
};

struct CentredRmsNormArgs {
  In x, weight;
  Out out;
  Dim rows;
  int64_t width;
  double eps;
  DType type;

  void fill(const OpCall& call);
};

struct UnitRmsNormArgs {
  In x;
  Out out;
  Dim rows;
  int64_t width;
  double eps;
  DType type;

  void fill(const OpCall& call);
};

// Rows r, r + vectors, ... have the same of the weight's `vectors` rows.
struct LayerNormArgs {
  In x, weight, bias;
  Out out;
  Dim rows;
  int64_t width, vectors;
  double eps;
  DType type;

  void fill(const OpCall& call);
};

struct AddRmsNormArgs {
  In x, r, weight, bias;
  Out out, sum;
  Dim rows;
  int64_t width;
  double eps;
  DType type;

  void fill(const OpCall& call);
};

struct AddRmsNormQuantStaticArgs {
  In x, r, weight, scale, offset, bias;
  Out values, sum;
  Dim rows;
  int64_t width, scales, offsets;
  double eps;
  DType type;

  void fill(const OpCall& call);
};

struct AddRmsNormQuantDynamicArgs {
  In x, r, weight, bias;
  Out values, scale, sum;
  Dim rows;
  int64_t width;
  double eps;
  DType type;

  void fill(const OpCall& call);
};

struct AddRmsNormQuantDividedArgs {
  In x, r, weight, divisor, zero;
  Out values, sum;
  Dim rows;
  int64_t width;
  double eps;
  DType type;

  void fill(const OpCall& call);
};

}  // namespace reprise
