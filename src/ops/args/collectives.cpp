#include "ops/args/collectives.h"

#include "ops/args/rows.h"

namespace reprise {

void AllGatherArgs::fill(const OpCall& c) {
  const auto element = static_cast<int64_t>(size_of(c.in[0].dtype));
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor * element;
  first = c.attrs->integer("first") * element;
  of = c.attrs->integer("of") * element;
  type = c.in[0].dtype;
  even = c.attrs->integer("even") == 1;
}
void LocalIdsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  first = c.attrs->integer("first");
  count = c.attrs->integer("count");
}
void FoundIdsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  first = c.attrs->integer("first");
  count = c.attrs->integer("count");
  of = c.attrs->integer("of");
}
void GatherFoundArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  first = c.attrs->integer("first");
  count = c.attrs->integer("count");
  of = c.attrs->integer("of");
  type = c.in[0].dtype;
}
void GatherOwnedArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor * static_cast<int64_t>(size_of(c.in[0].dtype));
}
void OwnGroupsArgs::fill(const OpCall& c) {
  first = c.attrs->integer("first");
  count = c.attrs->integer("count");
}
void OwnIndicesArgs::fill(const OpCall& c) { count = c.in[0].shape[0]; }
void GatherGroupsArgs::fill(const OpCall& c) {
  const auto element = static_cast<int64_t>(size_of(c.in[0].dtype));
  rows = c.in[0].shape[0];
  groups = c.in[1].shape[0].factor - 1;
  width = c.in[0].shape[1].factor * element;
  first = c.attrs->integer("first") * element;
  of = c.attrs->integer("of") * element;
}

void OwnRowsArgs::fill(const OpCall& c) {
  places = c.in[0].shape[0];
  rows = c.out[0].shape[0];
  first = c.attrs->integer("first");
  count = c.attrs->integer("count");
  groups = c.in[1].shape[0].factor - 1;
}
void CombineOverRanksArgs::fill(const OpCall& c) {
  tokens = c.in[1].shape[0];
  rows = c.in[0].shape[0];
  top_k = c.in[1].shape[1].factor;
  width = c.in[0].shape[1].factor;
  first = c.attrs->integer("first");
  groups = c.in[4].shape[0].factor - 1;
  ways = c.attrs->integer("ways");
  type = c.in[0].dtype;
}

namespace {

void fill_dispatch(auto& a, const OpCall& c) {
  a.tokens = c.in[0].shape[0];
  a.shared = Dim(1, c.out[0].shape[0].symbol);
  a.top_k = c.in[1].shape[1].factor;
  a.width = c.in[0].shape[1].factor;
  a.count = c.attrs->integer("count");
  a.groups = c.attrs->integer("groups");
  a.type = c.in[0].dtype;
}

}  // namespace

void DispatchOverRanksArgs::fill(const OpCall& c) { fill_dispatch(*this, c); }
void DispatchQuantisedArgs::fill(const OpCall& c) { fill_dispatch(*this, c); }
void CombineDispatchedArgs::fill(const OpCall& c) {
  tokens = c.in[1].shape[0];
  rows = c.in[0].shape[0];
  top_k = c.in[1].shape[1].factor;
  width = c.in[0].shape[1].factor;
  groups = c.in[4].shape[0].factor;
  type = c.in[0].dtype;
}
void GatherColumnsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  ways = static_cast<int64_t>(c.attrs->numbers("borders").size()) - 1;
  borders = c.attrs->numbers("borders").data();
  type = c.in[0].dtype;
}
void GatherMarkedArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  first = c.attrs->integer("first");
  of = c.attrs->integer("of");
  type = c.in[0].dtype;
}

void SumPartsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  parts = c.attrs->integer("parts");
  place = c.attrs->integer("place");
  width = c.out[0].shape[1].factor;
  bias_type = c.in.size() > 2 ? c.in[2].dtype : DType::F32;
  out_type = c.out[0].dtype;
}
void ArgmaxPairsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  first = c.attrs->integer("first");
}
void AllReduceArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  type = c.in[0].dtype;
}

void MergeArgmaxArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  ranks = c.in[0].shape[1].factor / 2;
}

std::span<const OpArgs> collective_args() {
  static const OpArgs rows[] = {
      op_row("all_gather", &AllGatherArgs::out, &AllGatherArgs::x, constant_rows),
      op_row("local_ids", &LocalIdsArgs::out, &LocalIdsArgs::ids),
      op_row("gather_owned", &GatherOwnedArgs::out, &GatherOwnedArgs::x, constant_rows),
      op_row("found_ids", &FoundIdsArgs::out, &FoundIdsArgs::ids),
      op_row("gather_found", &GatherFoundArgs::out, &GatherFoundArgs::x, constant_rows),
      op_row("own_groups", &OwnGroupsArgs::out, &OwnGroupsArgs::starts),
      op_row("own_slots", &OwnIndicesArgs::out, &OwnIndicesArgs::indices),
      op_row("own_cu_seqlens", &OwnIndicesArgs::out, &OwnIndicesArgs::indices),
      op_row("gather_groups", &GatherGroupsArgs::out, &GatherGroupsArgs::x, constant_rows),
      op_row("dispatch_over_ranks", &DispatchOverRanksArgs::counts, &DispatchOverRanksArgs::x, constant_rows),
      op_row("dispatch_quantised", &DispatchQuantisedArgs::counts, &DispatchQuantisedArgs::x, constant_rows),
      op_row("combine_dispatched", &CombineDispatchedArgs::out, &CombineDispatchedArgs::y, constant_rows),
      op_row("gather_columns", &GatherColumnsArgs::out, &GatherColumnsArgs::x, constant_rows),
      op_row("gather_marked", &GatherMarkedArgs::out, &GatherMarkedArgs::x, constant_rows),
      op_row("own_rows", &OwnRowsArgs::borders, &OwnRowsArgs::token),
      op_row("combine_over_ranks", &CombineOverRanksArgs::out, &CombineOverRanksArgs::y, constant_rows),
      op_row("sum_parts", &SumPartsArgs::out, &SumPartsArgs::x, &SumPartsArgs::out),
      op_row("all_reduce", &AllReduceArgs::out, &AllReduceArgs::x, constant_rows),
      op_row("argmax_pairs", &ArgmaxPairsArgs::out, &ArgmaxPairsArgs::x, constant_rows),
      op_row("merge_argmax", &MergeArgmaxArgs::out, &MergeArgmaxArgs::pairs, constant_rows),
  };
  return rows;
}

}  // namespace reprise
