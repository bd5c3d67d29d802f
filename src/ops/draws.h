// The ops by which ranks draw a token from a row of logits of which each has some columns, by the rule of
// ops/draw_rule.h and with its bits. The pass shard_over_ranks puts them in the place of `sample`, with an all_gather
// behind each of the first three:
//
//   draw_tops         a rank's largest logit; so all know the row's
//   draw_sums         the weights of a rank's columns beside that, by the rule's blocks; so all know every block's
//   draw_best         what a rank has that may be drawn: a token of its block, or its best ones
//   merge_draws       the token, the same on all ranks; kUndecidedToken where these do not decide it
//   gather_undecided  the whole rows of those
//   sample_undecided  the tokens of those
//
// A rank has whole blocks of the rule: its first column is a multiple of draw::kBlock.
#pragma once

#include "ops/schema.h"

namespace reprise {

void register_draw_ops(OpRegistry& ops);

}  // namespace reprise
