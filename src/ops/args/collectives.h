// Launch arguments of the ops by which ranks exchange data, and of what goes with them. As elements.h.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;

// all_gather: this rank's bytes of a row go to [first, first + width) of `of`. `even`: all ranks have as many, in
// order.
struct AllGatherArgs {
  In x;
  Out out;
  Dim rows;
  int64_t width, first, of;  // bytes
  DType type;
  bool even;

  void fill(const OpCall& call);
};

struct LocalIdsArgs {
  In ids;
  Out out;
  Dim rows;
  int64_t first, count;

  void fill(const OpCall& call);
};

// found_ids: of a table of `of` rows.
struct FoundIdsArgs {
  In ids;
  Out out;
  Dim rows;
  int64_t first, count, of;

  void fill(const OpCall& call);
};

struct GatherFoundArgs {
  In x, ids;
  Out out;
  Dim rows;
  int64_t width, first, count, of;  // width: numbers of a row
  DType type;

  void fill(const OpCall& call);
};

struct GatherOwnedArgs {
  In x, ids;
  Out out;
  Dim rows;
  int64_t width;  // bytes

  void fill(const OpCall& call);
};

struct OwnGroupsArgs {
  In starts;
  Out out;
  int64_t first, count;

  void fill(const OpCall& call);
};

struct OwnIndicesArgs {
  In indices, rows;
  Out out;
  Dim count;

  void fill(const OpCall& call);
};

// gather_groups: this rank's bytes of rows [starts[0], starts[groups]) go to [first, first + width) of `of`.
struct GatherGroupsArgs {
  In x, starts;
  Out out;
  Dim rows;
  int64_t groups, width, first, of;  // all but the groups in bytes

  void fill(const OpCall& call);
};

// own_rows: rows of experts [first, first + count) of `groups`.
struct OwnRowsArgs {
  In token, starts;
  Out own, borders;
  Dim places, rows;
  int64_t first, count, groups;

  void fill(const OpCall& call);
};

// combine_over_ranks: y has `rows` rows, of experts [first, ...) of `groups`, and the columns of one of `ways` ranks.
struct CombineOverRanksArgs {
  In y, weights, place, experts, starts;
  Out out;
  Dim tokens, rows;
  int64_t top_k, width, first, groups, ways;
  DType type;

  void fill(const OpCall& call);
};

// dispatch_over_ranks: `shared` tokens in all, of which the rank has its share.
struct DispatchOverRanksArgs {
  In x, experts;
  Out rows, starts, sent, counts;
  Dim tokens, shared;
  int64_t top_k, width, count, groups;
  DType type;

  void fill(const OpCall& call);
};

// dispatch_quantised: the same of int8 rows, each with its scale.
struct DispatchQuantisedArgs {
  In x, experts;
  Out rows, scale, starts, sent, counts;
  Dim tokens, shared;
  int64_t top_k, width, count, groups;
  DType type;  // of x

  void fill(const OpCall& call);
};

struct CombineDispatchedArgs {
  In y, weights, experts, sent, counts;
  Out out;
  Dim tokens, rows;
  int64_t top_k, width, groups;
  DType type;

  void fill(const OpCall& call);
};

// gather_columns: rows are those of `ways` ranks, each with the columns between two borders.
struct GatherColumnsArgs {
  In x;
  Out out;
  Dim rows;
  int64_t ways;
  const double* borders;  // the attribute's own numbers
  DType type;

  void fill(const OpCall& call);
};

// gather_marked: this rank's numbers of rows with a mark of 1 go to [first, first + width) of `of`.
struct GatherMarkedArgs {
  In x, here;
  Out out;
  Dim rows;
  int64_t width, first, of;
  DType type;

  void fill(const OpCall& call);
};

struct SumPartsArgs {
  In x, own, bias;
  Out out;
  Dim rows;
  int64_t parts, place, width;  // width: numbers of a row of the result
  DType bias_type, out_type;

  void fill(const OpCall& call);
};

struct AllReduceArgs {
  In x, bias;
  Out out;
  Dim rows;
  int64_t width;  // numbers of a row
  DType type;

  void fill(const OpCall& call);
};

struct ArgmaxPairsArgs {
  In x, ids;
  Out out;
  Dim rows;
  int64_t width, first;

  void fill(const OpCall& call);
};

struct MergeArgmaxArgs {
  In pairs;
  Out out;
  Dim rows;
  int64_t ranks;

  void fill(const OpCall& call);
};

}  // namespace reprise
