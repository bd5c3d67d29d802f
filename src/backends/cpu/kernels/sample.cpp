#include "backends/cpu/kernels/table.h"
#include "ops/args/elements.h"
#include "ops/draw_rule.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

struct Rows {
  const float* logits;
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
  const int32_t token = rows.token[r] = draw::token(row, rows.columns, d, scratch);
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
  const Rows rows{a.logits, a.draws, a.token, a.logprob, a.top_tokens, a.top_logprobs, a.columns};
  auto* scratch = static_cast<draw::Candidate*>(l.workspace) + l.thread * rows.columns;
  const Range mine = l.share(l.size(a.rows));
  for (int64_t r = mine.begin; r < mine.end; ++r) sample_row(rows, r, scratch);
}

}  // namespace

REPRISE_KERNEL(sample, draw_tokens)

}  // namespace reprise::cpu::REPRISE_ISA
