// SamplingParams and Sampler: from a row of logits to the next token.
//
// Order of the steps (that of vLLM and SGLang): constraint, logit bias, penalties, minimum length, temperature, top-k,
// top-p, min-p, draw. Temperature 0 is greedy: the largest logit, the smaller id on a tie. Draws depend on (seed,
// position in the sequence) alone, so a request's text does not depend on the batch it rode in. The host draws by the
// rule of ops/draw_rule.h, as devices with a kernel for op `sample` do; device_draw() says what they can take over. One
// Sampler per sequence; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/token_constraint.h"
#include "ops/draw.h"

namespace reprise::engine {

struct SamplingParams {
  double temperature = 0;         // >= 0; 0 is greedy
  double top_p = 1;               // (0, 1]
  int64_t top_k = 0;              // 0 or -1: all
  double min_p = 0;               // [0, 1]
  double repetition_penalty = 1;  // > 0; over prompt and output
  double presence_penalty = 0;    // [-2, 2]; over output
  double frequency_penalty = 0;   // [-2, 2]; over output
  uint64_t seed = 0;
  int64_t max_new_tokens = 128;
  int64_t min_new_tokens = 0;  // before that, end-of-sequence tokens are not drawn
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the logits of these tokens; -100 to 100
  std::vector<std::string> stop;                      // strings; watched by the code that detokenises
  int logprobs = -1;                                  // -1: none; n: the drawn token's log-probability and the n best

  // Ranges; the error names the field and what is allowed.
  Status check(int64_t vocab_size) const;
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

struct SampledToken {
  int32_t token = 0;
  std::optional<float> logprob;   // of the unmodified distribution
  std::vector<TokenLogprob> top;  // best first
};

// How likely `token` is under softmax(logits), and the `n` most likely ones.
Result<SampledToken> score_token(std::span<const float> logits, int32_t token, int n);

class Sampler {
 public:
  // The constraint, if any, outlives the sampler and follows it.
  Sampler(SamplingParams params, std::span<const int32_t> prompt, std::span<const int32_t> eos_tokens,
          TokenConstraint* constraint = nullptr);

  // Draws the next token and remembers it for the penalties. `logits` is scratch afterwards. NaN logits are an error:
  // something upstream broke.
  Result<SampledToken> sample(std::span<float> logits);

  // The next token is the largest logit as it stands, and nothing else about the logits is asked: the argmax may then
  // be taken elsewhere, and told to observe_token().
  bool takes_argmax() const;
  // How a device may draw the token `ahead` places behind the next one, to be told to observe_token(); none where the
  // logits are changed first, or more log-probabilities are asked for than a device gives.
  std::optional<Draw> device_draw(int64_t ahead = 0) const;
  void observe_token(int32_t token);

  const SamplingParams& params() const { return params_; }

 private:
  bool penalises() const {
    return params_.repetition_penalty != 1 || params_.presence_penalty != 0 || params_.frequency_penalty != 0;
  }
  void apply_penalties(std::span<float> logits) const;
  Draw draw_at(int64_t position) const;
  // Nothing changes the logits before a token is drawn from them.
  bool takes_logits_as_they_are() const {
    return !penalises() && params_.logit_bias.empty() && !constraint_ && generated_ >= params_.min_new_tokens;
  }

  SamplingParams params_;
  std::vector<int32_t> eos_;
  TokenConstraint* constraint_;
  std::unordered_map<int32_t, int32_t> seen_in_prompt_, seen_in_output_;
  int64_t position_ = 0;  // in the sequence, prompt included
  int64_t generated_ = 0;
  std::vector<uint64_t> scratch_;  // kept to avoid allocating per token
};

}  // namespace reprise::engine
