#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/draw_rule.h"

namespace reprise::engine {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

static_assert(sizeof(draw::Candidate) == sizeof(uint64_t));

// As Draw has it: rounded once, and no temperature is so small that it overflows.
float scale_of(double temperature) {
  return temperature == 0 ? 0.0f : static_cast<float>(std::min(1 / temperature, 1e30));
}

using Candidate = std::pair<float, int32_t>;  // logit and id

// Larger logits first, smaller ids on a tie.
bool better(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// The index of the largest logit. NaN and +infinity would poison every sum below; no logit left means nothing to draw.
Result<int32_t> largest(std::span<const float> logits) {
  int32_t best = -1;
  float best_value = kMasked;
  bool finite = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float v = logits[i];
    finite &= v < std::numeric_limits<float>::infinity();  // false for NaN
    if (v > best_value) {
      best_value = v;
      best = static_cast<int32_t>(i);
    }
  }
  if (!finite) {
    for (size_t i = 0; i < logits.size(); ++i)
      if (!(logits[i] < std::numeric_limits<float>::infinity()))
        return error(Code::Internal, "the logit of token {} is {}; the weights or a kernel are broken", i, logits[i]);
  }
  if (best < 0) return error(Code::Internal, "no token can be drawn: all {} logits are -inf", logits.size());
  return best;
}

// log(sum(exp(logits))), with the largest of them given.
double log_sum_exp(std::span<const float> logits, float top) {
  double sum = 0;
  for (float v : logits) sum += std::exp(static_cast<double>(v) - top);
  return top + std::log(sum);
}

}  // namespace

Status SamplingParams::check(int64_t vocab_size) const {
  if (!(temperature >= 0 && std::isfinite(temperature)))
    return invalid("temperature is {}; allowed: 0 (greedy) or any larger number", temperature);
  if (!(top_p > 0 && top_p <= 1)) return invalid("top_p is {}; allowed: above 0, up to 1", top_p);
  if (top_k < -1) return invalid("top_k is {}; allowed: 1 or more, or 0 or -1 for all tokens", top_k);
  if (!(min_p >= 0 && min_p <= 1)) return invalid("min_p is {}; allowed: 0 to 1", min_p);
  if (!(repetition_penalty > 0 && std::isfinite(repetition_penalty)))
    return invalid("repetition_penalty is {}; allowed: any number above 0", repetition_penalty);
  if (!(presence_penalty >= -2 && presence_penalty <= 2))
    return invalid("presence_penalty is {}; allowed: -2 to 2", presence_penalty);
  if (!(frequency_penalty >= -2 && frequency_penalty <= 2))
    return invalid("frequency_penalty is {}; allowed: -2 to 2", frequency_penalty);
  if (max_new_tokens < 1) return invalid("max_new_tokens is {}; allowed: 1 or more", max_new_tokens);
  if (min_new_tokens < 0 || min_new_tokens > max_new_tokens)
    return invalid("min_new_tokens is {}; allowed: 0 to max_new_tokens, which is {}", min_new_tokens, max_new_tokens);
  for (int32_t id : stop_token_ids)
    if (id < 0 || id >= vocab_size)
      return invalid("stop_token_ids holds {}; allowed: 0 to {} (the vocabulary)", id, vocab_size - 1);
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= vocab_size)
      return invalid("logit_bias names token {}; allowed: 0 to {} (the vocabulary)", id, vocab_size - 1);
    if (!(bias >= -100 && bias <= 100)) return invalid("logit_bias of token {} is {}; allowed: -100 to 100", id, bias);
  }
  for (const std::string& s : stop)
    if (s.empty()) return invalid("stop holds an empty string; allowed: strings of one character or more");
  if (logprobs < -1 || logprobs > vocab_size)
    return invalid("logprobs is {}; allowed: 0 to {} (the vocabulary), or -1 for none", logprobs, vocab_size);
  return Status::ok();
}

Result<SampledToken> score_token(std::span<const float> logits, int32_t token, int n) {
  ASSIGN_OR_RETURN(const int32_t best, largest(logits));
  const double log_sum = log_sum_exp(logits, logits[static_cast<size_t>(best)]);
  const auto logprob = [&](int32_t id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum);
  };
  SampledToken out{token, logprob(token), {}};
  const size_t most = std::min(logits.size(), static_cast<size_t>(std::max(0, n)));
  if (most == 0) return out;
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(most), ids.end(), [&](int32_t a, int32_t b) {
    return better({logits[static_cast<size_t>(a)], a}, {logits[static_cast<size_t>(b)], b});
  });
  for (size_t i = 0; i < most; ++i) out.top.push_back({ids[i], logprob(ids[i])});
  return out;
}

Sampler::Sampler(SamplingParams params, std::span<const int32_t> prompt, std::span<const int32_t> eos_tokens,
                 TokenConstraint* constraint)
    : params_(std::move(params)),
      eos_(eos_tokens.begin(), eos_tokens.end()),
      constraint_(constraint),
      position_(static_cast<int64_t>(prompt.size())) {
  if (params_.repetition_penalty != 1)
    for (int32_t id : prompt) seen_in_prompt_[id] = 1;
}

void Sampler::apply_penalties(std::span<float> logits) const {
  const auto inside = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < logits.size(); };
  const float repetition = static_cast<float>(params_.repetition_penalty);
  const auto repeat = [&](int32_t id) {
    float& v = logits[static_cast<size_t>(id)];
    v = v > 0 ? v / repetition : v * repetition;
  };
  if (repetition != 1) {
    for (const auto& [id, count] : seen_in_prompt_)
      if (inside(id)) repeat(id);
    for (const auto& [id, count] : seen_in_output_)
      if (inside(id) && !seen_in_prompt_.contains(id)) repeat(id);
  }
  for (const auto& [id, count] : seen_in_output_) {
    if (!inside(id)) continue;
    float& v = logits[static_cast<size_t>(id)];
    v -= static_cast<float>(params_.frequency_penalty) * static_cast<float>(count);
    v -= static_cast<float>(params_.presence_penalty);
  }
}

bool Sampler::takes_argmax() const {
  return (params_.temperature == 0 || params_.top_k == 1) && params_.logprobs < 0 && takes_logits_as_they_are();
}

std::optional<Draw> Sampler::device_draw(int64_t ahead) const {
  if (params_.logprobs > kMostTopTokens || !takes_logits_as_they_are()) return std::nullopt;
  return draw_at(position_ + ahead);
}

Draw Sampler::draw_at(int64_t position) const {
  return {.scale = scale_of(params_.temperature),
          .top_p = static_cast<float>(params_.top_p),
          .min_p = static_cast<float>(params_.min_p),
          .top_k = static_cast<int32_t>(std::clamp<int64_t>(params_.top_k, 0, std::numeric_limits<int32_t>::max())),
          .seed = params_.seed,
          .position = position,
          .logprobs = params_.logprobs};
}

void Sampler::observe_token(int32_t) {
  ++position_;
  ++generated_;
}

Result<SampledToken> Sampler::sample(std::span<float> logits) {
  ASSIGN_OR_RETURN(int32_t best, largest(logits));
  // Of the distribution as the model gave it.
  std::vector<float> unmodified;
  if (params_.logprobs >= 0) unmodified.assign(logits.begin(), logits.end());

  const bool short_of_minimum = generated_ < params_.min_new_tokens;
  const bool penalties = penalises();
  if (constraint_) RETURN_IF_ERROR(constraint_->mask(logits));
  for (const auto& [id, bias] : params_.logit_bias) logits[static_cast<size_t>(id)] += bias;
  if (penalties) apply_penalties(logits);
  if (short_of_minimum && !constraint_) {
    for (const auto* ids : {&eos_, &params_.stop_token_ids})
      for (int32_t id : *ids)
        if (id >= 0 && static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] = kMasked;
  }
  if (constraint_ || !params_.logit_bias.empty() || penalties || short_of_minimum) {
    ASSIGN_OR_RETURN(best, largest(logits));
  }
  int32_t token = best;
  if (params_.temperature != 0 && params_.top_k != 1) {
    scratch_.resize(logits.size());
    token = draw::token(logits.data(), static_cast<int64_t>(logits.size()), draw_at(position_),
                        reinterpret_cast<draw::Candidate*>(scratch_.data()));
  }
  SampledToken out{token, {}, {}};
  if (params_.logprobs >= 0) {
    ASSIGN_OR_RETURN(out, score_token(unmodified, token, params_.logprobs));
  }
  if (constraint_) RETURN_IF_ERROR(constraint_->accept(token));
  if (penalties) ++seen_in_output_[token];
  ++position_;
  ++generated_;
  return out;
}

}  // namespace reprise::engine
