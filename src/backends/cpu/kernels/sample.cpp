#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/sample_row.h"
#include "ops/args/elements.h"
#include "ops/logit_edit.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

void sample_row_of(const SampleArgs& a, int64_t r, draw::Candidate* scratch) {
  const float *logits = a.logits, *edited = a.edited;
  const Draw d = draw::of_row(a.draws, r);
  const float* row = logits + r * a.columns;
  int32_t *token = a.token, *ids = a.top_tokens;
  float *logprob = a.logprob, *logprobs = a.top_logprobs;
  sample_row(row, d.edited > 0 ? edited + (d.edited - 1) * a.columns : row, a.columns, d, scratch,
             {token[r], logprob[r], ids + r * kMostTopTokens, logprobs + r * kMostTopTokens});
}

// Workspace: a candidate for each column and thread.
void draw_tokens(const SampleArgs& a, const Launch& l) {
  auto* scratch = static_cast<draw::Candidate*>(l.workspace) + l.thread * a.columns;
  const Range mine = l.share(l.size(a.rows));
  for (int64_t r = mine.begin; r < mine.end; ++r) sample_row_of(a, r, scratch);
}

// Columns of a row that are shared out at a time: whole words of the mask.
constexpr int64_t kPart = 4096;

void mask_rows(const MaskLogitsArgs& a, const Launch& l) {
  const int64_t n = a.columns, parts = draw::blocks(n, kPart);
  const Range mine = l.share(l.size(a.rows) * parts);
  for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
    const int64_t row = unit / parts, begin = unit % parts * kPart, end = std::min(n, begin + kPart);
    const LogitEdit e = edit::of_row(a.edits, row);
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
    edit::apply_lists(static_cast<float*>(a.out) + r * a.columns, 0, a.columns, edit::of_row(a.edits, r), a.words);
}

}  // namespace

REPRISE_KERNEL(sample, draw_tokens)
REPRISE_KERNEL(mask_logits, mask_rows)
REPRISE_KERNEL(mask_logits_lists, edit_rows)

}  // namespace reprise::cpu::REPRISE_ISA
