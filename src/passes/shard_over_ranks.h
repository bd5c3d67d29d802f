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
// What works on a cache is given the slots and the cu_seqlens of the part's sequences alone, so attention meets no
// other rows, and gather_groups puts the rows of all parts together. What the rank does not attend to stays cut by
// output rows: how many rows a part has is an input of the step, and no graph depends on it.
#pragma once

#include <string_view>

#include "passes/pass.h"
#include "passes/rank_cut.h"

namespace reprise {

// Inputs of a step that differ over parts with sequences of their own: slots of rows, cu_seqlens of sequences, and the
// borders of the parts' rows, by which the former two are made. Where the host reads lengths they are staged as
// inputs, too, and which rows are this rank's part's: then gather_marked puts the rows of all parts together.
struct PartInputs {
  std::string_view slots, cu_seqlens, part_rows;
  std::string_view own_slots = {}, own_cu_seqlens = {}, own_rows = {};  // and of another input X with slots own_X
};

// An output besides: the tokens that ranks have drawn without whole logits, kUndecidedToken (ops/draw.h) where not.
constexpr std::string_view kMergedDraws = "sampled.merged";
// Where a device cannot gather the rows that are undecided: this rank's columns of the logits, from which the hosts of
// all ranks draw them, or every token where the device has no kernels for it either.
constexpr std::string_view kOwnLogits = "sampled.own_logits";
// What remarks say where ranks draw from their own columns; decisions are found by it.
constexpr std::string_view kDrawnByRanks = "exchange their best tokens";
// Which columns of logits of a vocabulary a rank has where tokens are drawn from its own.
Cut drawn_columns(int64_t vocabulary, RankShare share);

Pass shard_over_ranks(RankShare share, PartInputs inputs = {});

}  // namespace reprise
