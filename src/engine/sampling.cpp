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
  const float top = logits[static_cast<size_t>(best)];
  const double sum = draw::log_sum(logits.data(), static_cast<int64_t>(logits.size()), top);
  const auto logprob = [&](int32_t id) { return draw::logprob(logits[static_cast<size_t>(id)], top, sum); };
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

std::string_view host_draw_name(HostDraw why) {
  constexpr std::string_view kNames[] = {"",          "no_kernel",  "logprobs",   "grammar",
                                         "penalties", "logit_bias", "min_tokens", "no_room"};
  static_assert(std::size(kNames) == static_cast<size_t>(HostDraw::kCount));
  return kNames[static_cast<size_t>(why)];
}

Sampler::Sampler(SamplingParams params, std::span<const int32_t> prompt, std::span<const int32_t> eos_tokens,
                 TokenConstraint* constraint)
    : params_(std::move(params)), constraint_(constraint), position_(static_cast<int64_t>(prompt.size())) {
  const auto bias_of = [](std::vector<TokenBias>& list, int32_t id) -> float& {
    const auto known = std::find_if(list.begin(), list.end(), [&](const TokenBias& b) { return b.token == id; });
    return (known != list.end() ? *known : list.emplace_back(TokenBias{id, 0})).value;
  };
  for (const auto& [id, bias] : params_.logit_bias) bias_of(biases_, id) += bias;
  if (params_.min_new_tokens > 0 && !constraint_) {
    biases_without_ends_ = biases_;
    for (const auto& ids : {eos_tokens, std::span<const int32_t>(params_.stop_token_ids)})
      for (const int32_t id : ids) bias_of(biases_without_ends_, id) = kMasked;
  }
  if (params_.repetition_penalty != 1)
    for (const int32_t id : prompt) count(id, 0);
}

void Sampler::count(int32_t token, int32_t times) {
  const auto [place, is_new] = place_in_counts_.try_emplace(token, counts_.size());
  if (is_new) counts_.push_back({token, 0});
  counts_[place->second].count += times;
}

Result<RowEdits> Sampler::edits(int64_t ahead) const {
  RowEdits e;
  if (constraint_) {
    ASSIGN_OR_RETURN(e.allowed, constraint_->allowed());
  }
  e.biases = lacks_tokens(ahead) ? biases_without_ends_ : biases_;
  if (penalises()) {
    e.counts = counts_;
    e.repetition = static_cast<float>(params_.repetition_penalty);
    e.frequency = static_cast<float>(params_.frequency_penalty);
    e.presence = static_cast<float>(params_.presence_penalty);
  }
  return e;
}

HostDraw Sampler::edited_by(int64_t ahead) const {
  if (constraint_) return HostDraw::Grammar;
  if (penalises()) return HostDraw::Penalties;
  if (!biases_.empty()) return HostDraw::LogitBias;
  return lacks_tokens(ahead) ? HostDraw::MinTokens : HostDraw::None;
}

bool Sampler::takes_argmax(int64_t ahead) const {
  return (params_.temperature == 0 || params_.top_k == 1) && params_.logprobs < 0 && edited_by(ahead) == HostDraw::None;
}

std::optional<Draw> Sampler::device_draw(int64_t ahead) const {
  if (params_.logprobs > kMostTopTokens) return std::nullopt;
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

Status Sampler::observe_token(int32_t token) {
  if (constraint_) RETURN_IF_ERROR(constraint_->accept(token));
  if (penalises()) count(token, 1);
  ++position_;
  ++generated_;
  return Status::ok();
}

Result<SampledToken> Sampler::sample(std::span<float> logits) {
  ASSIGN_OR_RETURN(int32_t best, largest(logits));
  // From the distribution as the model gave it.
  std::vector<float> unmodified;
  if (params_.logprobs >= 0) unmodified.assign(logits.begin(), logits.end());

  ASSIGN_OR_RETURN(const RowEdits changes, edits());
  if (changes.any()) {
    changes.apply(logits);
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
  RETURN_IF_ERROR(observe_token(token));
  return out;
}

}  // namespace reprise::engine
