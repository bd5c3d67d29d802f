#include "backends/ascend/attention_plan.h"

#include <algorithm>

namespace reprise::ascend {

AttentionPlan AttentionPlan::of(int64_t tokens, int64_t sequences, int64_t context, std::span<const int32_t> lens,
                                std::span<const int32_t> starts, bool joined) {
  AttentionPlan p;
  int64_t first = 0, live = 0;
  p.one_row_each = tokens == sequences && !joined;
  for (int64_t r = 0; r < sequences; ++r) {
    const auto i = static_cast<size_t>(r);
    const int64_t rows = starts[i + 1] - starts[i];
    if (rows > 0 && live == 0) first = r;
    if (rows > 0) live = r + 1;
    if (rows > 1 || (rows == 1 && starts[i] != r)) p.one_row_each = false;
  }
  if (p.one_row_each) {
    p.tokens = p.sequences = sequences;
    p.lengths.assign(lens.begin(), lens.begin() + sequences);
    for (size_t r = 0; r < p.lengths.size(); ++r)
      if (starts[r + 1] == starts[r]) p.lengths[r] = 0;
    return p;
  }
  p.first_sequence = first;
  p.first_token = live > 0 ? starts[static_cast<size_t>(first)] : 0;
  for (int64_t r = first; r < live; ++r) {
    p.query_end.push_back(starts[static_cast<size_t>(r) + 1] - p.first_token);
    p.lengths.push_back(lens[static_cast<size_t>(r)]);
  }
  p.tokens = live > 0 ? p.query_end.back() : 0;
  const bool free = live < sequences && lens[static_cast<size_t>(live)] == 0;  // a row of the page table
  if (const int64_t padding = std::min(tokens - p.first_token - p.tokens, context); padding > 0 && free) {
    p.tokens += padding;
    p.query_end.push_back(p.tokens);
    p.lengths.push_back(padding);
    ++live;
  }
  p.sequences = live - first;
  return p;
}

AttentionPlan AttentionPlan::longest(int64_t tokens, int64_t sequences, int64_t context, bool each) {
  AttentionPlan p;
  p.one_row_each = each;
  p.sequences = std::min(sequences, tokens);
  p.tokens = std::min(tokens, p.sequences * context);
  p.lengths.assign(static_cast<size_t>(p.sequences), context);
  if (p.one_row_each) return p;
  // The last ones have as many rows as they have keys, the others one.
  p.query_end.assign(static_cast<size_t>(p.sequences), p.tokens);
  for (int64_t r = p.sequences - 1, end = p.tokens; r >= 0; --r) {
    p.query_end[static_cast<size_t>(r)] = end;
    end = std::max(end - context, r);
  }
  return p;
}

AttentionPlan AttentionPlan::dummy(int64_t tokens, int64_t sequences, int64_t context, bool joined) {
  AttentionPlan p = longest(tokens, sequences, context, tokens == sequences && !joined);
  if (p.one_row_each) {
    p.lengths.assign(p.lengths.size(), 0);
    return p;
  }
  p.sequences = 1;
  p.tokens = std::min(tokens, context);
  p.query_end = p.lengths = {p.tokens};
  return p;
}

std::vector<AttentionPlan> AttentionPlan::cut_over_cores(int64_t tokens, int64_t sequences, int64_t context) {
  constexpr int64_t kShortQuery = 16;
  std::vector<AttentionPlan> out;
  for (const int64_t few : {int64_t{1}, int64_t{2}, int64_t{4}})
    if (few <= std::min(tokens, sequences)) {
      out.push_back(longest(std::min(tokens, few * kShortQuery), few, context, false));
      AttentionPlan& p = out.back();
      for (int64_t r = 0; r < p.sequences; ++r)
        p.query_end[static_cast<size_t>(r)] = std::min(p.tokens, (r + 1) * kShortQuery);
      p.query_end.back() = p.tokens;
    }
  if (tokens != sequences) return out;
  for (int64_t n = sequences;; n = 1) {
    out.push_back(longest(n, n, context, true));
    for (size_t r = 1; r < out.back().lengths.size(); r += 2) out.back().lengths[r] = std::max<int64_t>(1, context / 2);
    if (n == 1) return out;
  }
}

CutPlan CutPlan::of(const AttentionPlan& whole, int64_t rows) {
  CutPlan c;
  c.plan.tokens = whole.tokens;
  c.plan.first_token = whole.first_token;
  int64_t first = 0;
  for (int64_t r = 0; r < whole.sequences; ++r) {
    const auto i = static_cast<size_t>(r);
    const int64_t n = whole.query_end[i] - first, pieces = std::max<int64_t>(1, (n + rows - 1) / rows);
    const auto at = static_cast<int64_t>(c.plan.lengths.size());
    for (int64_t done = 0, piece = 0; piece < pieces; ++piece) {
      done = std::min(n, done + rows);
      c.plan.query_end.push_back(first + done);
      c.plan.lengths.push_back(whole.lengths[i] - (n - done));
    }
    const bool run = pieces == 1 && !c.copies.empty() && !c.copies.back().repeated;
    if (run)
      ++c.copies.back().count;
    else
      c.copies.push_back({at, pieces, whole.first_sequence + r, pieces > 1});
    first = whole.query_end[i];
  }
  c.plan.sequences = static_cast<int64_t>(c.plan.lengths.size());
  return c;
}

// A sequence in pieces has one that is not full, and the others share the rows.
int64_t CutPlan::most_sequences(int64_t tokens, int64_t sequences, int64_t rows) {
  return std::min(tokens / rows + sequences, std::max(tokens, sequences));
}

// One for each sequence in pieces, which has more than `rows` rows, and one for each run between them.
int64_t CutPlan::most_copies(int64_t tokens, int64_t sequences, int64_t rows) {
  return std::min(sequences, 2 * (tokens / (rows + 1)) + 1);
}

}  // namespace reprise::ascend
