// One row of op `sample`: the token, and the log-probabilities that its Draw asks for. For kernels that draw.
#pragma once

#include "ops/draw_rule.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Results of one row.
struct SampledRow {
  int32_t& token;
  float& logprob;
  int32_t* ids;     // kMostTopTokens
  float* logprobs;  // likewise
};

inline void clear_row(const SampledRow& out) {
  for (int64_t i = 0; i < kMostTopTokens; ++i) out.ids[i] = -1, out.logprobs[i] = 0;
  out.logprob = 0;
}

// The token is drawn from `drawn`; log-probabilities are those of `row`. `scratch` holds n.
inline void sample_row(const float* row, const float* drawn, int64_t n, const Draw& d, draw::Candidate* scratch,
                       const SampledRow& out) {
  clear_row(out);
  out.token = draw::token(drawn, n, d, scratch);
  if (out.token < 0 || d.logprobs < 0) return;
  draw::Candidate best;
  draw::largest(row, n, best, scratch);
  const double sum = draw::log_sum(row, n, best.value);
  out.logprob = draw::logprob(row[out.token], best.value, sum);
  const int64_t most = d.logprobs < kMostTopTokens ? d.logprobs : kMostTopTokens;
  draw::each_best(row, n, most, scratch, [&](int64_t i, int32_t id, float logit) {
    out.ids[i] = id;
    out.logprobs[i] = draw::logprob(logit, best.value, sum);
  });
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
