#include "ops/args/draws.h"

#include "ops/args/rows.h"
#include "ops/draws.h"

namespace reprise {

void MaskOwnLogitsArgs::fill(const OpCall& c) {
  rows = c.in[1].shape[0];
  columns = c.in[0].shape[1].factor;
  first = c.attrs->integer("first");
}
void DrawTopsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  columns = c.in[0].shape[1].factor;
}
void DrawSumsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  columns = c.in[0].shape[1].factor;
  of = c.attrs->integer("of");
  ranks = c.in[2].shape[1].factor;
}
void DrawBestArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  columns = c.in[0].shape[1].factor;
  first = c.attrs->integer("first");
  of = c.attrs->integer("of");
  ranks = c.in[2].shape[1].factor;
  most = c.attrs->integer("most");
}
void MergeDrawsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  of = c.attrs->integer("of");
  ranks = c.in[1].shape[1].factor;
  most = c.in[3].shape[1].factor / ranks / 2 - 1;
}
void GatherUndecidedArgs::fill(const OpCall& c) {
  const auto element = static_cast<int64_t>(size_of(c.in[0].dtype));
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor * element;
  first = c.attrs->integer("first") * element;
  of = c.attrs->integer("of") * element;
}
void SampleUndecidedArgs::fill(const OpCall& c) {
  rows = c.in[1].shape[0];
  columns = c.in[0].shape[1].factor;
}

std::span<const OpArgs> draw_args() {
  static const OpArgs rows[] = {
      op_row("mask_own_logits", &MaskOwnLogitsArgs::out, &MaskOwnLogitsArgs::logits, constant_rows),
      op_row("draw_tops", &DrawTopsArgs::out, &DrawTopsArgs::logits, constant_rows),
      op_row("draw_sums", &DrawSumsArgs::out, &DrawSumsArgs::logits, constant_rows),
      op_row("draw_best", &DrawBestArgs::out, &DrawBestArgs::logits, constant_rows),
      op_row("merge_draws", &MergeDrawsArgs::out, &MergeDrawsArgs::draws, constant_rows),
      op_row("gather_undecided", &GatherUndecidedArgs::out, &GatherUndecidedArgs::x, constant_rows),
      op_row("sample_undecided", &SampleUndecidedArgs::top_logprobs, &SampleUndecidedArgs::logits, constant_rows),
  };
  return rows;
}

}  // namespace reprise
