// AttentionPlan: a step's rows and lengths as the vendor's attention wants them, read from the engine's tables on the
// host.
//
// One sequence per row (a decode step) is the form with a batch; anything else is a row of tokens with cumulative
// lengths, and so is a step of attention that the form with a batch does not know (`joined`). Padding rows behind the
// batch belong to no sequence: in the first form they have the length 0, in the second a sequence of their own reads
// the scratch page. Where no row of the page table is free, or the table's row is too short, they are left out. Rows of
// other parts of a world are left out, too: their sequences have a length and no rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace reprise::ascend {

struct AttentionPlan {
  bool one_row_each = false;
  int64_t first_token = 0, first_sequence = 0;  // before them are other parts' rows of the query and of the page table
  int64_t tokens = 0;                           // rows of the query that take part
  int64_t sequences = 0;                        // rows of the page table that are read
  std::vector<int64_t> query_end;               // cumulative, ends at `tokens`; empty when one_row_each
  std::vector<int64_t> lengths;                 // of keys, per sequence

  // `tokens` and `sequences` of the launch; a row of the page table has room for `context` tokens. `lens` has one entry
  // per sequence, `starts` one more.
  static AttentionPlan of(int64_t tokens, int64_t sequences, int64_t context, std::span<const int32_t> lens,
                          std::span<const int32_t> starts, bool joined = false);
  // Stands for any plan of these sizes where none is known: everything as long as it can be. `each` wants as many
  // sequences as tokens.
  static AttentionPlan longest(int64_t tokens, int64_t sequences, int64_t context, bool each);
  // A dummy batch, in which no row belongs to a sequence: steps of length 0, or one sequence of the first tokens, whose
  // pages have undefined contents. For a task group, which needs its launch all the same.
  static AttentionPlan dummy(int64_t tokens, int64_t sequences, int64_t context, bool joined = false);
  bool empty() const { return tokens == 0 || sequences == 0; }
  // Plans of at most these sizes for which the vendor's attention takes other workspaces than for the longest: it cuts
  // the keys of few short queries (at most 16 rows) and of uneven lengths over its cores, and collects the parts
  // (ops-transformer 57781440: fused_infer_attention_score_tiling.cpp:1478-1495, arch22/fia_tiling_nonquant.cpp:627).
  static std::vector<AttentionPlan> cut_over_cores(int64_t tokens, int64_t sequences, int64_t context);
};

// So many bytes behind the beginning.
inline const void* behind(const void* data, int64_t bytes) {
  return bytes == 0 ? data : static_cast<const uint8_t*>(data) + bytes;
}

// The same work in sequences of at most `rows` rows, for operators that take no more. Every piece of a sequence has the
// pages of the whole one, so the page table is copied row by row.
struct CutPlan {
  struct Copy {
    int64_t to = 0, count = 0;  // rows of the new table
    int64_t from = 0;           // row of the old one: the first of as many, or the only one
    bool repeated = false;
  };
  AttentionPlan plan;
  std::vector<Copy> copies;

  static CutPlan of(const AttentionPlan& whole, int64_t rows);
  // No plan of these sizes has more sequences, or copies, once it is cut.
  static int64_t most_sequences(int64_t tokens, int64_t sequences, int64_t rows);
  static int64_t most_copies(int64_t tokens, int64_t sequences, int64_t rows);
};

}  // namespace reprise::ascend
