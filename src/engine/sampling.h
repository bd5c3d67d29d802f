// SamplingParams and Sampler: from a row of logits to the next token.
//
// Order of the steps (that of vLLM and SGLang): constraint, logit bias, penalties, minimum length, temperature, top-k,
// top-p, min-p, draw. Temperature 0 is greedy: the largest logit, the smaller id on a tie. Draws depend on (seed,
// position in the sequence) alone, so a request's text does not depend on the batch it rode in. The host draws by the
// rules of ops/logit_edit.h and ops/draw_rule.h, as devices with kernels for the ops `mask_logits` and `sample` do;
// edits() and device_draw() say what they can take over. One Sampler per sequence; one thread at a time.
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
#include "ops/row_edits.h"

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

// How likely `token` is under softmax(logits), and the `n` most likely ones: by the rule of devices that draw.
Result<SampledToken> score_token(std::span<const float> logits, int32_t token, int n);

// Why the host draws a token that a step's device might have drawn.
enum class HostDraw : uint8_t {
  None,
  NoKernel,  // the device draws no tokens
  Logprobs,  // more log-probabilities are asked for than a device gives
  Grammar,   // the device changes no logits, and this is what would change them
  Penalties,
  LogitBias,
  MinTokens,
  NoRoom,  // the step has no room left for the row's mask and lists
  kCount
};
std::string_view host_draw_name(HostDraw why);  // "no_kernel", ...

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
  bool takes_argmax(int64_t ahead = 0) const;
  // How a device may draw the token `ahead` places behind the next one, to be told to observe_token(); none where more
  // log-probabilities are asked for than a device gives.
  std::optional<Draw> device_draw(int64_t ahead = 0) const;
  // What changes the logits before that. Of a sampler that needs every token before the next one, for the next alone.
  Result<RowEdits> edits(int64_t ahead = 0) const;
  // The first of what would change them.
  HostDraw edited_by(int64_t ahead = 0) const;
  // What changes the logits depends on the token before.
  bool needs_every_token() const { return constraint_ || penalises(); }
  // The token that was drawn for the next place; an error where the constraint forbids it.
  Status observe_token(int32_t token);

  const SamplingParams& params() const { return params_; }

 private:
  bool penalises() const {
    return params_.repetition_penalty != 1 || params_.presence_penalty != 0 || params_.frequency_penalty != 0;
  }
  bool lacks_tokens(int64_t ahead) const { return generated_ + ahead < params_.min_new_tokens && !constraint_; }
  void count(int32_t token, int32_t times);
  Draw draw_at(int64_t position) const;

  SamplingParams params_;
  TokenConstraint* constraint_;
  std::vector<TokenBias> biases_, biases_without_ends_;  // the latter while the answer is too short
  std::vector<TokenCount> counts_;                       // in the order in which tokens came first
  std::unordered_map<int32_t, size_t> place_in_counts_;
  int64_t position_ = 0;  // in the sequence, prompt included
  int64_t generated_ = 0;
  std::vector<uint64_t> scratch_;  // kept to avoid allocating per token
};

}  // namespace reprise::engine
