#include "engine/generator.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/elapsed.h"

namespace reprise::engine {
namespace {

using Clock = std::chrono::steady_clock;

// What one request may still do, known before anything runs.
struct Limits {
  int64_t new_tokens = 0;
  // Tokens that ever need a place in the cache: the last generated one is never fed.
  int64_t cached_tokens = 0;
};

Result<Limits> check_request(const Engine& engine, const GenerationRequest& request) {
  const int64_t vocab = engine.config().vocab_size;
  const int64_t size = static_cast<int64_t>(request.prompt.size());
  if (size == 0) return invalid("the prompt is empty; at least one token is needed");
  for (int32_t id : request.prompt)
    if (id < 0 || id >= vocab)
      return invalid("the prompt holds token {}, which is not in the vocabulary (0 to {})", id, vocab - 1);
  if (size >= engine.context_length())
    return invalid("the prompt is {} tokens long and the context {}: there is no room for an answer", size,
                   engine.context_length());
  RETURN_IF_ERROR(request.sampling.check(vocab));
  Limits limits;
  limits.new_tokens = std::min(request.sampling.max_new_tokens, engine.context_length() - size);
  limits.cached_tokens = size + limits.new_tokens - 1;
  const int64_t pages = kv::pages_for(limits.cached_tokens), have = engine.memory().kv_pages;
  if (pages > have)
    return error(Code::OutOfMemory,
                 "{} prompt tokens and {} new ones need {} KV pages of {} tokens, but the pool has {}; ask for fewer "
                 "new tokens or give the pool more (max_total_tokens, mem_fraction_static)",
                 size, limits.new_tokens, pages, kv::kPageTokens, have);
  return limits;
}

// One admitted request. Its pages go back to the pool when it goes.
struct Running {
  Running(Engine& e, size_t i, const GenerationRequest& request, const Limits& limits, std::span<const int32_t> eos)
      : engine(e),
        index(i),
        request(request),
        limits(limits),
        eos(eos),
        sequence(request.prompt),
        sampler(request.sampling, request.prompt, eos) {}
  ~Running() { engine.release(sequence); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  bool ends_with(int32_t token) const {
    const auto& stop = request.sampling.stop_token_ids;
    if (std::find(stop.begin(), stop.end(), token) != stop.end()) return true;
    return !request.sampling.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end();
  }

  Engine& engine;
  size_t index;
  const GenerationRequest& request;
  Limits limits;
  std::span<const int32_t> eos;
  Sequence sequence;
  Sampler sampler;
  GenerationResult result;
};

// The state of one Generator::run.
class Run {
 public:
  Run(Engine& engine, std::span<const GenerationRequest> requests, const TokenSink& sink, GenerationTimes& times)
      : engine_(engine), requests_(requests), sink_(sink), times_(times), results_(requests.size()) {
    for (int64_t id : engine.config().eos_token_ids) eos_.push_back(static_cast<int32_t>(id));
  }

  Status check() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      auto limits = check_request(engine_, requests_[i]);
      if (!limits) return requests_.size() == 1 ? limits.status() : limits.status().at(fmt::format("request {}", i));
      limits_.push_back(*limits);
    }
    return Status::ok();
  }

  Status to_the_end() {
    while (next_ < requests_.size() || !running_.empty()) {
      RETURN_IF_ERROR(admit());
      RETURN_IF_ERROR(step());
    }
    return Status::ok();
  }

  std::vector<GenerationResult> take_results() { return std::move(results_); }

 private:
  // In order: a request that must wait for pages holds back those behind it, so none can starve.
  Status admit() {
    const size_t most = static_cast<size_t>(std::min(engine_.max_step_rows(), engine_.max_step_tokens()));
    while (next_ < requests_.size() && running_.size() < most) {
      auto candidate = std::make_unique<Running>(engine_, next_, requests_[next_], limits_[next_], eos_);
      const Status reserved = engine_.reserve(candidate->sequence, candidate->limits.cached_tokens);
      if (reserved.code() == Code::OutOfMemory && !running_.empty()) return Status::ok();
      RETURN_IF_ERROR(reserved);
      running_.push_back(std::move(candidate));
      ++next_;
    }
    return Status::ok();
  }

  // Prompts first, packed in order into the tokens of one step; when none is waiting, one token of everybody.
  Status step() {
    const auto begin = Clock::now();
    items_.clear();
    in_step_.clear();
    int64_t room = engine_.max_step_tokens(), tokens = 0;
    for (auto& r : running_) {
      if (!r->result.tokens.empty() || room == 0) continue;
      const int64_t count = std::min(room, r->sequence.uncached());
      items_.push_back({&r->sequence, count, count == r->sequence.uncached()});
      in_step_.push_back(r.get());
      room -= count;
    }
    const bool prefill = !items_.empty();
    if (!prefill) {
      for (auto& r : running_) {
        items_.push_back({&r->sequence, 1, true});
        in_step_.push_back(r.get());
      }
    }
    for (const StepItem& item : items_) tokens += item.count;
    if (all_plain_greedy()) {
      ASSIGN_OR_RETURN(std::span<const int32_t> next, engine_.step_greedy(items_));
      RETURN_IF_ERROR(take(next));
    } else {
      ASSIGN_OR_RETURN(std::span<float> logits, engine_.step(items_));
      RETURN_IF_ERROR(sample(logits));
    }
    (prefill ? times_.prefill_s : times_.decode_s) += seconds_since(begin);
    (prefill ? times_.prefill_tokens : times_.decode_tokens) += tokens;
    (prefill ? times_.prefill_steps : times_.decode_steps) += 1;
    for (auto& r : running_) {
      if (r->result.finish == FinishReason::None) continue;
      results_[r->index] = std::move(r->result);
      r.reset();
    }
    std::erase(running_, nullptr);
    return Status::ok();
  }

  // When nobody needs more than the largest logit, it is found where the logits are made, and they are never written.
  bool all_plain_greedy() const {
    if (!engine_.has_greedy_steps()) return false;
    for (size_t i = 0; i < items_.size(); ++i)
      if (items_[i].wants_logits && !in_step_[i]->sampler.takes_argmax()) return false;
    return true;
  }

  Status take(std::span<const int32_t> next) {
    size_t row = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!items_[i].wants_logits) continue;
      CHECK(row < next.size(), "a step returned {} tokens", next.size());
      Running& r = *in_step_[i];
      r.sampler.took(next[row]);
      accept(r, {next[row++], {}, {}});
    }
    return Status::ok();
  }

  Status sample(std::span<float> logits) {
    const size_t vocab = static_cast<size_t>(engine_.config().vocab_size);
    size_t row = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!items_[i].wants_logits) continue;
      CHECK((row + 1) * vocab <= logits.size(), "a step returned {} floats for row {}", logits.size(), row);
      Running& r = *in_step_[i];
      auto sampled = r.sampler.sample(logits.subspan(row++ * vocab, vocab));
      if (!sampled) return sampled.status().at(fmt::format("request {}, token {}", r.index, r.result.tokens.size()));
      accept(r, std::move(sampled).value());
    }
    return Status::ok();
  }

  void accept(Running& r, SampledToken token) {
    GenerationResult& result = r.result;
    if (result.tokens.empty()) result.ttft_s = seconds_since(begin_);
    result.tokens.push_back(token.token);
    r.sequence.append(token.token);
    if (r.ends_with(token.token)) {
      result.finish = FinishReason::Stop;
    } else if (static_cast<int64_t>(result.tokens.size()) >= r.limits.new_tokens) {
      result.finish = FinishReason::Length;
    }
    if (sink_ && !sink_({r.index, token, result.finish}) && result.finish != FinishReason::Stop)
      result.finish = FinishReason::Stop;
    if (r.request.sampling.logprobs >= 0) result.sampled.push_back(std::move(token));
  }

  Engine& engine_;
  std::span<const GenerationRequest> requests_;
  const TokenSink& sink_;
  GenerationTimes& times_;
  std::vector<GenerationResult> results_;
  std::vector<int32_t> eos_;
  std::vector<Limits> limits_;
  std::vector<std::unique_ptr<Running>> running_;
  size_t next_ = 0;
  std::vector<StepItem> items_;
  std::vector<Running*> in_step_;  // whose item it is
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::None: return "none";
    case FinishReason::Stop: return "stop";
    case FinishReason::Length: return "length";
    case FinishReason::Cancelled: return "cancelled";
  }
  return "none";
}

Result<std::vector<GenerationResult>> Generator::run(std::span<const GenerationRequest> requests,
                                                     const TokenSink& sink) {
  times_ = {};
  Run run(engine_, requests, sink, times_);
  RETURN_IF_ERROR(run.check());
  RETURN_IF_ERROR(run.to_the_end());
  return run.take_results();
}

}  // namespace reprise::engine
