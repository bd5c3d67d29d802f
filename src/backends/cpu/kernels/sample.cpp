#include "backends/cpu/kernels/table.h"
#include "ops/args/elements.h"
#include "ops/draw_rule.h"
#include "ops/logit_edit.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

struct Rows {
  const float* logits;
  const float* edited;
  const int32_t* draws;
  int32_t* token;
  float* logprob;
  int32_t* top_tokens;
  float* top_logprobs;
  int64_t columns;
};

void sample_row(const Rows& rows, int64_t r, draw::Candidate* scratch) {
  Draw d;
  __builtin_memcpy(static_cast<void*>(&d), rows.draws + r * kDrawWords, sizeof d);
  const float* row = rows.logits + r * rows.columns;
  int32_t* ids = rows.top_tokens + r * kMostTopTokens;
  float* logprobs = rows.top_logprobs + r * kMostTopTokens;
  for (int64_t i = 0; i < kMostTopTokens; ++i) ids[i] = -1, logprobs[i] = 0;
  rows.logprob[r] = 0;
  const float* drawn_from = d.edited > 0 ? rows.edited + (d.edited - 1) * rows.columns : row;
  const int32_t token = rows.token[r] = draw::token(drawn_from, rows.columns, d, scratch);
  if (token < 0 || d.logprobs < 0) return;
  draw::Candidate best;
  draw::largest(row, rows.columns, best, scratch);
  const double sum = draw::log_sum(row, rows.columns, best.value);
  rows.logprob[r] = draw::logprob(row[token], best.value, sum);
  const int64_t most = d.logprobs < kMostTopTokens ? d.logprobs : kMostTopTokens;
  draw::each_best(row, rows.columns, most, scratch, [&](int64_t i, int32_t id, float logit) {
    ids[i] = id;
    logprobs[i] = draw::logprob(logit, best.value, sum);
  });
}

// Workspace: a candidate for each column and thread.
void draw_tokens(const SampleArgs& a, const Launch& l) {
  const Rows rows{a.logits, a.edited, a.draws, a.token, a.logprob, a.top_tokens, a.top_logprobs, a.columns};
  auto* scratch = static_cast<draw::Candidate*>(l.workspace) + l.thread * rows.columns;
  const Range mine = l.share(l.size(a.rows));
  for (int64_t r = mine.begin; r < mine.end; ++r) sample_row(rows, r, scratch);
}

LogitEdit edit_of(const MaskLogitsArgs& a, int64_t row) {
  LogitEdit e;
  __builtin_memcpy(static_cast<void*>(&e), static_cast<const int32_t*>(a.edits) + row * kEditWords, sizeof e);
  return e;
}

// Of the rows, parts of so many columns are shared out: whole words of the mask.
constexpr int64_t kPart = 4096;

void mask_rows(const MaskLogitsArgs& a, const Launch& l) {
  const int64_t n = a.columns, parts = draw::blocks(n, kPart);
  const Range mine = l.share(l.size(a.rows) * parts);
  for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
    const int64_t row = unit / parts, begin = unit % parts * kPart, end = std::min(n, begin + kPart);
    const LogitEdit e = edit_of(a, row);
    const float* from = static_cast<const float*>(a.logits) + e.row * n;
    float* to = static_cast<float*>(a.out) + row * n;
    if (e.mask < 0) {
      __builtin_memcpy(to + begin, from + begin, static_cast<size_t>(end - begin) * sizeof(float));
      continue;
    }
    const uint32_t* mask = static_cast<const uint32_t*>(a.words) + e.mask;
    for (int64_t i = begin; i < end; i += 32) {
      const uint32_t word = mask[i / 32];
      for (int64_t k = 0; k < std::min<int64_t>(32, end - i); ++k)
        to[i + k] = (word >> k & 1) != 0 ? from[i + k] : edit::forbidden(from[i + k]);
    }
  }
}

void edit_rows(const MaskLogitsArgs& a, const Launch& l) {
  const Range mine = l.share(l.size(a.rows));
  for (int64_t r = mine.begin; r < mine.end; ++r)
    edit::apply_lists(static_cast<float*>(a.out) + r * a.columns, a.columns, edit_of(a, r), a.words);
}

}  // namespace

REPRISE_KERNEL(sample, draw_tokens)
REPRISE_KERNEL(mask_logits, mask_rows)
REPRISE_KERNEL(mask_logits_lists, edit_rows)

}  // namespace reprise::cpu::REPRISE_ISA
