#include "backends/cpu/kernels/define.h"
#include "ops/args/elements.h"
#include "ops/draw_rule.h"
#include "ops/logit_edit.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

void sample_row(const SampleArgs& a, int64_t r, draw::Candidate* scratch) {
  const float *logits = a.logits, *edited = a.edited;
  const int32_t* draws = a.draws;
  const int64_t n = a.columns;
  Draw d;
  __builtin_memcpy(static_cast<void*>(&d), draws + r * kDrawWords, sizeof d);
  const float* row = logits + r * n;
  int32_t *token = a.token, *ids = a.top_tokens;
  float *logprob = a.logprob, *logprobs = a.top_logprobs;
  ids += r * kMostTopTokens;
  logprobs += r * kMostTopTokens;
  for (int64_t i = 0; i < kMostTopTokens; ++i) ids[i] = -1, logprobs[i] = 0;
  logprob[r] = 0;
  token[r] = draw::token(d.edited > 0 ? edited + (d.edited - 1) * n : row, n, d, scratch);
  if (token[r] < 0 || d.logprobs < 0) return;
  draw::Candidate best;
  draw::largest(row, n, best, scratch);
  const double sum = draw::log_sum(row, n, best.value);
  logprob[r] = draw::logprob(row[token[r]], best.value, sum);
  const int64_t most = d.logprobs < kMostTopTokens ? d.logprobs : kMostTopTokens;
  draw::each_best(row, n, most, scratch, [&](int64_t i, int32_t id, float logit) {
    ids[i] = id;
    logprobs[i] = draw::logprob(logit, best.value, sum);
  });
}

// Workspace: a candidate for each column and thread.
void draw_tokens(const SampleArgs& a, const Launch& l) {
  auto* scratch = static_cast<draw::Candidate*>(l.workspace) + l.thread * a.columns;
  const Range mine = l.share(l.size(a.rows));
  for (int64_t r = mine.begin; r < mine.end; ++r) sample_row(a, r, scratch);
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
    edit::apply_lists(static_cast<float*>(a.out) + r * a.columns, a.columns, edit::of_row(a.edits, r), a.words);
}

}  // namespace

REPRISE_KERNEL(sample, draw_tokens)
REPRISE_KERNEL(mask_logits, mask_rows)
REPRISE_KERNEL(mask_logits_lists, edit_rows)

}  // namespace reprise::cpu::REPRISE_ISA
