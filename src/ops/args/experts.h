// Launch arguments of the choice of experts and of the ways to them and back; their products are in products.h.
// Filled in experts.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;

struct MoeGateArgs {
  In logits, slots, bias;
  Out weights, experts;
  Dim tokens;
  int64_t count, top_k;  // experts, those taken
  int64_t groups, top_groups;
  double scale, eps;
  bool sigmoid;    // else softmax
  bool normalise;  // by the sum of those taken
  bool top_two;    // a group counts by its best pair, else by its best expert

  void fill(const OpCall& call);
};

// Experts [first, first + count).
struct MoeRouteArgs {
  In experts;
  Out token, place, starts;
  Dim tokens;
  int64_t top_k, first, count;

  void fill(const OpCall& call);
};

// A bias for each of the groups of rows.
struct AddGroupsArgs {
  In x, starts, bias;
  Out out;
  Dim rows;
  int64_t width, groups;

  void fill(const OpCall& call);
};

struct MoeCombineArgs {
  In y, weights, place;
  Out out;
  Dim tokens;
  int64_t top_k, width;
  DType type;

  void fill(const OpCall& call);
};

}  // namespace reprise
