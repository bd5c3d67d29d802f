// shard_over_ranks: cuts a model over the ranks of a world, in the form that exchanges activations.
//
// Every matrix whose author says so (the attribute "shard") is cut by its output rows, attention by the heads of its
// cache; a value that is needed whole and is not goes through all_gather. No sum crosses ranks: an output element is
// the same chain over the same inner size as on one rank, so any number of ranks gives the same bits. The pass knows
// ops by the traits and roles of their schemas. It is required where there are several ranks, and stands behind
// quantise_linears, so that scales and biases are cut with their rows; passes behind it see an ordinary graph of this
// rank's sizes.
//
// Where whole experts are shared out, a rank has the rows of its own groups (operands Starts) and leaves the others
// zero, through all ops that work row by row; gather_groups puts the rows of all ranks together.
#pragma once

#include <string_view>
#include <vector>

#include "passes/pass.h"

namespace reprise {

struct RankShare {
  int rank = 0;
  int size = 1;
  int experts =
      1;  // divides size: over so many parts whole experts are shared out, and each expert's rows over the rest
};

Pass shard_over_ranks(RankShare share);

// Numbers of ranks that a model with so many query heads in so many groups (of keys and values) can be cut for, up to
// `most`: as many as groups, or a multiple of them up to the heads.
std::vector<int64_t> allowed_ranks(int64_t heads, int64_t groups, int64_t most);

}  // namespace reprise
