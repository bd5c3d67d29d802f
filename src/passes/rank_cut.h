// RankShare and Cut: which part of a size a rank of a world has, and the rows of a parameter that this part is. Plain
// values and functions of numbers alone, so all ranks come to the same borders; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "passes/derived_param.h"

namespace reprise {

struct RankShare {
  int rank = 0;
  int size = 1;
  int experts =
      1;  // divides size: over so many parts whole experts are shared out, and each expert's rows over the rest
  int sequences = 1;  // divides size: over so many parts sequences are shared out, and a sequence's heads over the rest
  bool reduce = false;  // products whose input is cut give parts of sums, which are added over ranks
  // Rows are sent to the ranks of their experts, where the device has operators for that: the symbol of tokens, rounded
  // up to a multiple of the ranks (0: they are not).
  int sent_tokens = 0;

  // The part that the rank is of, and its place in it.
  int part() const { return rank / ranks_of_part(); }
  RankShare heads() const { return {rank % ranks_of_part(), ranks_of_part()}; }

 private:
  int ranks_of_part() const { return size / sequences; }
};

// The part of a size that this rank has.
struct Cut {
  int64_t first = 0, count = 0, of = 0;
  bool repeated = false;  // other ranks have it as well
  bool even = false;      // all ranks have as many
  bool operator==(const Cut&) const = default;

  Cut times(int64_t n) const { return {first * n, count * n, of * n, repeated, even}; }
};

// For several pieces of one size: how many units they have, and the text "[0+8,24+8/48]" with which names of parameters
// and inputs end.
int64_t count_of(const std::vector<Cut>& pieces);
std::string name_of(const std::vector<Cut>& pieces);
// The pieces that a name ends with, which is left without them; none: it names the whole.
std::vector<Cut> take_pieces(std::string& name);

// Which rank has which of `count` units, each in one piece.
Cut share_of(int64_t count, RankShare share);
// The same with borders at multiples of `unit`.
Cut share_of(int64_t count, int64_t unit, RankShare share);
// Columns of a product that belong to no head.
Cut share_of_columns(int64_t columns, RankShare share);
// Heads in groups, each group with one head of the cache. More ranks than groups share one.
Cut share_of_heads(int64_t heads, int64_t groups, RankShare share);

// Numbers of ranks that a model with so many query heads in so many groups (of keys and values) can be cut for, up to
// `most`: as many as groups, or a multiple of them up to the heads.
std::vector<int64_t> allowed_ranks(int64_t heads, int64_t groups, int64_t most);

// Appends rows [begin, end) of what `parts` make.
void cut_parts(const std::vector<ParamPart>& parts, int64_t begin, int64_t end, std::vector<ParamPart>& out);

}  // namespace reprise
