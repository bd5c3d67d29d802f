// Tokens drawn from rows of logits whose columns ranks share out (ops/draws.h).
#include "ops/draw_parts.h"
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/sample_row.h"
#include "ops/args/draws.h"
#include "ops/logit_edit.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Columns of a row that are shared out at a time: whole words of the mask.
constexpr int64_t kOwnPart = 4096;

void mask_own_rows(const MaskOwnLogitsArgs& a, const Launch& l) {
  const int64_t n = a.columns, parts = draw::blocks(n, kOwnPart);
  const Range mine = l.share(l.size(a.rows) * parts);
  for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
    const int64_t row = unit / parts, begin = unit % parts * kOwnPart, end = std::min(n, begin + kOwnPart);
    const LogitEdit e = edit::of_row(a.edits, row);
    const float* from = static_cast<const float*>(a.logits) + e.row * n;
    edit::mask_part(e, a.words, from + begin, static_cast<float*>(a.out) + row * n + begin, a.first + begin,
                    end - begin);
  }
}

void edit_own_rows(const MaskOwnLogitsArgs& a, const Launch& l) {
  const Range mine = l.share(l.size(a.rows));
  for (int64_t r = mine.begin; r < mine.end; ++r)
    edit::apply_lists(static_cast<float*>(a.out) + r * a.columns, a.first, a.columns, edit::of_row(a.edits, r),
                      a.words);
}

// The row that the Draw of row r is about.
const float* drawn_row(const Draw& d, int64_t r, const float* logits, const float* edited, int64_t columns) {
  return d.edited > 0 ? edited + (d.edited - 1) * columns : logits + r * columns;
}

// Workspace: a candidate for each peak of the columns and thread.
void find_tops(const DrawTopsArgs& a, const Launch& l) {
  auto* scratch = static_cast<draw::Candidate*>(l.workspace) + l.thread * draw::blocks(a.columns, draw::kPeakBlock);
  const Range mine = l.share(l.size(a.rows));
  float* out = a.out;
  for (int64_t r = mine.begin; r < mine.end; ++r)
    out[r] = draw::own_top(drawn_row(draw::of_row(a.draws, r), r, a.logits, a.edited, a.columns), a.columns, scratch);
}

void sum_blocks(const DrawSumsArgs& a, const Launch& l) {
  const int64_t count = draw::blocks(a.columns, draw::kBlock);
  const Range mine = l.share(l.size(a.rows) * count);
  const float* tops = a.tops;
  float* out = a.out;
  for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
    const int64_t r = unit / count, b = unit % count;
    const Draw d = draw::of_row(a.draws, r);
    const draw::Need need = draw::need_of(d, a.of);
    float top = 0;
    const bool wanted =
        (need == draw::Need::Sums || need == draw::Need::Share) && draw::top_of(tops + r * a.ranks, a.ranks, top);
    out[unit] = !wanted ? 0.0f
                        : draw::block_weight(drawn_row(d, r, a.logits, a.edited, a.columns), b * draw::kBlock,
                                             a.columns, top, d.scale, need == draw::Need::Sums ? d.min_p : 0.0f);
  }
}

// Workspace: a candidate for each column and thread.
void find_best(const DrawBestArgs& a, const Launch& l) {
  auto* scratch = static_cast<draw::Candidate*>(l.workspace) + l.thread * a.columns;
  const int64_t words = 2 + 2 * a.most, count = draw::blocks(a.of, draw::kBlock);
  const Range mine = l.share(l.size(a.rows));
  const float *tops = a.tops, *sums = a.sums;
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    const Draw d = draw::of_row(a.draws, r);
    int32_t* out = static_cast<int32_t*>(a.out) + r * words;
    draw::Sent sent;
    float top = 0;
    if (draw::top_of(tops + r * a.ranks, a.ranks, top))
      sent = draw::send({drawn_row(d, r, a.logits, a.edited, a.columns), a.columns, a.first, a.of}, d, top,
                        sums + r * count, a.most, scratch, reinterpret_cast<draw::Candidate*>(out + 2));
    out[0] = sent.count;
    out[1] = sent.more;
    __builtin_memset(out + 2 + 2 * sent.count, 0, static_cast<size_t>(2 * (a.most - sent.count)) * sizeof(int32_t));
  }
}

// Workspace: a candidate for all that is sent of a row and thread.
void merge_rows(const MergeDrawsArgs& a, const Launch& l) {
  auto* scratch = static_cast<draw::Candidate*>(l.workspace) + l.thread * a.ranks * a.most;
  const int64_t words = a.ranks * (2 + 2 * a.most), count = draw::blocks(a.of, draw::kBlock);
  const Range mine = l.share(l.size(a.rows));
  const float *tops = a.tops, *sums = a.sums;
  int32_t* out = a.out;
  for (int64_t r = mine.begin; r < mine.end; ++r)
    out[r] = draw::merged_token(draw::of_row(a.draws, r), a.of, tops + r * a.ranks, sums + r * count,
                                {static_cast<const int32_t*>(a.best) + r * words, a.ranks, a.most}, scratch);
}

// Row r of whole logits with what its Draw changes in it.
const float* changed_row(const SampleUndecidedArgs& a, const Draw& d, const float* row, float* to) {
  if (d.edited <= 0) return row;
  const LogitEdit e = edit::of_row(a.edits, d.edited - 1);
  edit::mask_part(e, a.words, row, to, 0, a.columns);
  edit::apply_lists(to, 0, a.columns, e, a.words);
  return to;
}

// Workspace: a candidate and a number for each column and thread.
void sample_rest(const SampleUndecidedArgs& a, const Launch& l) {
  auto* scratch = static_cast<draw::Candidate*>(l.workspace) + l.thread * a.columns;
  float* changed = reinterpret_cast<float*>(static_cast<draw::Candidate*>(l.workspace) + l.threads * a.columns) +
                   l.thread * a.columns;
  const int32_t* tokens = a.tokens;
  int32_t *token = a.token, *ids = a.top_tokens;
  float *logprob = a.logprob, *logprobs = a.top_logprobs;
  const Range mine = l.share(l.size(a.rows));
  int64_t place = 0;  // of the next gathered row
  for (int64_t r = 0; r < mine.end; ++r) {
    const bool gathered = tokens[r] == kUndecidedToken;
    const int64_t at = place;
    place += gathered ? 1 : 0;
    if (r < mine.begin) continue;
    const SampledRow out{token[r], logprob[r], ids + r * kMostTopTokens, logprobs + r * kMostTopTokens};
    if (!gathered) {
      clear_row(out);
      out.token = tokens[r];
      continue;
    }
    const Draw d = draw::of_row(a.draws, r);
    const float* row = static_cast<const float*>(a.logits) + at * a.columns;
    sample_row(row, changed_row(a, d, row, changed), a.columns, d, scratch, out);
  }
}

}  // namespace

REPRISE_KERNEL(mask_own_logits, mask_own_rows)
REPRISE_KERNEL(mask_own_logits_lists, edit_own_rows)
REPRISE_KERNEL(draw_tops, find_tops)
REPRISE_KERNEL(draw_sums, sum_blocks)
REPRISE_KERNEL(draw_best, find_best)
REPRISE_KERNEL(merge_draws, merge_rows)
REPRISE_KERNEL(sample_undecided, sample_rest)

}  // namespace reprise::cpu::REPRISE_ISA
