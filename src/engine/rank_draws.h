// RankDraws: the hosts of several ranks draw tokens together, from rows of logits of which each has columns of its own:
// by the rule of ops/draw_parts.h, so the tokens are those that one host draws from whole rows. For devices that have
// no kernels for it, or leave rows undecided.
//
// Hosts exchange by memory that all ranks of a host see, and meet as the kernels of CPUs do (ranks/member.h): numbers
// of tops, of blocks and the best candidates of each row; whole rows only where these do not decide. Log-probabilities
// are of the row as the model gave it: its sums and best tokens are exchanged besides. All ranks call draw() for the
// same rows, with what the step's inputs say; each comes to the same tokens. A failed world ends it with the reason.
// One thread; it is the only one of its rank that meets.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tensor_view.h"
#include "device/memory.h"
#include "ops/draw.h"
#include "ops/logit_edit.h"
#include "ranks/member.h"

namespace reprise::engine {

// What was drawn, row after row: as the results of op `sample`.
struct DrawnRows {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<int32_t> top_tokens;  // kMostTopTokens a row; -1: there is none
  std::vector<float> top_logprobs;

  void clear() { *this = {}; }
  // The output of the step by its name, "sampled" or "sampled.logprob" and so on; without data: it is none of these,
  // or nothing was drawn.
  TensorView view(std::string_view name) const;
  // Further rows, whose tokens are not known yet or are those given.
  void add(int64_t rows, const int32_t* known);
};

class RankDraws {
 public:
  // Columns of each rank: rank r has [borders[r], borders[r + 1]), in whole blocks of draw::kBlock.
  static Result<std::unique_ptr<RankDraws>> make(std::shared_ptr<ranks::Member> member, MemoryPool& between,
                                                 std::vector<int64_t> borders);

  // Rows of this rank's columns, and the step's inputs (ops/draw.h, ops/logit_edit.h).
  struct Rows {
    const float* logits = nullptr;
    std::span<const int32_t> draws, edits, words;
  };
  // Draws the rows of `out` from `first` on whose token is kUndecidedToken: row `first` of them is the first one of
  // `rows`. -1: there is nothing to draw.
  Status draw(const Rows& rows, size_t first, DrawnRows& out);

  // Whether the kernels of a device leave no row of such a draw (draw_parts.h).
  static bool leaves_none(const Draw& draw, int64_t vocabulary);

  // What all ranks together, and this one, write of a row at most, in bytes, but for log-probabilities and whole rows.
  int64_t row_bytes() const;
  int64_t own_row_bytes() const;

  uint64_t whole_rows() const { return whole_rows_; }  // that were exchanged so far

 private:
  static constexpr int64_t kRowsAtOnce = 16;
  // Where the ranks' words of a meeting lie: rows of `of` words, each rank writing its own of them.
  struct Place {
    int32_t* words = nullptr;
    int64_t of = 0;
  };
  // One row that is being drawn.
  struct Row {
    size_t to = 0;                 // of the results
    Draw draw;                     // without log-probabilities
    int32_t logprobs = 0;          // that are asked for; -1: none
    const float* plain = nullptr;  // this rank's columns, as the model gave them ...
    const float* own = nullptr;    // ... and as they are drawn from
    float top = 0;                 // of the plain row, of all ranks
  };

  RankDraws(std::shared_ptr<ranks::Member> member, std::vector<int64_t> borders);
  int64_t vocabulary() const { return borders_.back(); }
  int64_t first() const { return borders_[static_cast<size_t>(rank_)]; }
  int64_t columns() const { return borders_[static_cast<size_t>(rank_) + 1] - first(); }
  // Every rank has written its words, those from `at` on, of so many rows.
  Status meet(const Place& place, int64_t rows, int64_t at, int64_t words);
  void take_rows(const Rows& from, std::span<const size_t> which, size_t first);
  Status draw_taken(DrawnRows& out);
  Status find_tops();
  Status add_weights();
  Status send_best();
  Status draw_whole(const Row& row, int32_t& token);
  Status tell_logprobs(DrawnRows& out);
  void tell_row(size_t i, DrawnRows& out) const;
  const float* tops_of(size_t i, bool plain) const;
  const float* sums_of(size_t i, bool plain) const;

  std::shared_ptr<ranks::Member> member_;
  std::vector<int64_t> borders_;
  int rank_, ranks_;
  int64_t blocks_;
  Buffer memory_;
  // Rows of the tops, sums, candidates, and logits of drawn tokens: each twice, so that what a slower rank still reads
  // is not written over. A rank that writes into one of the two has met the others since all have read it.
  struct Exchanged {
    Place tops, sums, best, chosen, whole;
  };
  Exchanged turns_[2];
  size_t turn_ = 0, whole_turn_ = 0;
  std::vector<Row> rows_;
  std::vector<std::vector<float>> changed_;  // rows whose logits are changed first
  std::vector<uint64_t> scratch_;
  uint64_t whole_rows_ = 0;
};

}  // namespace reprise::engine
