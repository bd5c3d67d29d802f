// Launch arguments of the ops by which ranks draw tokens from logits whose columns they share out (ops/draws.h). As
// elements.h.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;

// mask_own_logits: columns [first, first + columns) of the vocabulary.
struct MaskOwnLogitsArgs {
  In logits, edits, words;
  Out out;
  Dim rows;
  int64_t columns, first;

  void fill(const OpCall& call);
};

struct DrawTopsArgs {
  In logits, draws, edited;
  Out out;
  Dim rows;
  int64_t columns;

  void fill(const OpCall& call);
};

struct DrawSumsArgs {
  In logits, draws, tops, edited;
  Out out;
  Dim rows;
  int64_t columns, of, ranks;

  void fill(const OpCall& call);
};

struct DrawBestArgs {
  In logits, draws, tops, sums, edited;
  Out out;
  Dim rows;
  int64_t columns, first, of, ranks, most;

  void fill(const OpCall& call);
};

struct MergeDrawsArgs {
  In draws, tops, sums, best;
  Out out;
  Dim rows;
  int64_t of, ranks, most;

  void fill(const OpCall& call);
};

// gather_undecided: this rank's bytes of a row go to [first, first + width) of `of`.
struct GatherUndecidedArgs {
  In x, tokens;
  Out out;
  Dim rows;
  int64_t width, first, of;

  void fill(const OpCall& call);
};

struct SampleUndecidedArgs {
  In logits, draws, tokens, edits, words;
  Out token, logprob, top_tokens, top_logprobs;
  Dim rows;
  int64_t columns;

  void fill(const OpCall& call);
};

}  // namespace reprise
