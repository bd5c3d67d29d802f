// shard_over_ranks: cuts a model over the ranks of a world, in the form that exchanges activations.
//
// Every matrix whose author says so (the attribute "shard") is cut by its output rows, attention by the heads of its
// cache; a value that is needed whole and is not goes through all_gather. No sum crosses ranks: an output element is
// the same chain over the same inner size as on one rank, so any number of ranks gives the same bits. The pass knows
// ops by the traits and roles of their schemas. It is required where there are several ranks, and stands behind
// quantise_linears, so that scales and biases are cut with their rows; passes behind it see an ordinary graph of this
// rank's sizes.
//
// In the form `reduce` a matrix of the word "row", whose input is cut already, is cut by its columns: each rank has a
// part of every sum, and the parts are added in the order of ranks. That moves half as much, and the bits are those of
// this number of ranks. What the form cannot cut so (blocks, experts, rows quantised as they come) stays as above.
//
// Where whole experts are shared out, a rank has the rows of its own groups (operands Starts) and leaves the others
// zero, through all ops that work row by row; gather_groups puts the rows of all ranks together.
//
// Where sequences are shared out, a rank's cache has those of its part of the world, with its share of their heads.
// What works on a cache is given the slots and the borders of the part's sequences alone, so attention meets no other
// rows, and gather_groups puts the rows of all parts together. What the rank does not attend to stays cut by
// output rows: how many rows a part has is an input of the step, and no graph depends on it.
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
  int sequences = 1;  // divides size: over so many parts sequences are shared out, and a sequence's heads over the rest
  bool reduce = false;  // products whose input is cut give parts of sums, which are added over ranks

  // The part that the rank is of, and its place in it.
  int part() const { return rank / ranks_of_part(); }
  RankShare heads() const { return {rank % ranks_of_part(), ranks_of_part()}; }

 private:
  int ranks_of_part() const { return size / sequences; }
};

// Inputs of a step that differ over parts with sequences of their own: slots of rows, borders of sequences, and the
// borders of the parts' rows, by which the former two are made.
struct PartInputs {
  std::string_view slots, borders, part_rows;
};

Pass shard_over_ranks(RankShare share, PartInputs inputs = {});

// Numbers of ranks that a model with so many query heads in so many groups (of keys and values) can be cut for, up to
// `most`: as many as groups, or a multiple of them up to the heads.
std::vector<int64_t> allowed_ranks(int64_t heads, int64_t groups, int64_t most);

}  // namespace reprise
