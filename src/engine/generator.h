// Generator: runs a list of requests to their ends on one engine, several at a time: prefill in chunks, then decode
// together. The simplest correct loop over Engine::step; the serving scheduler is a folder of its own.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/sampling.h"

namespace reprise::engine {

enum class FinishReason : uint8_t { None, Stop, Length, Cancelled };
std::string_view finish_reason_name(FinishReason reason);  // "stop", "length", "cancelled"

struct GenerationRequest {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
};

struct TokenEvent {
  size_t request = 0;  // index into the list given to run()
  SampledToken token;
  FinishReason finish = FinishReason::None;  // of the request, with this token (Stop: the token is an end token)
};

struct GenerationResult {
  std::vector<int32_t> tokens;        // generated, end token included
  std::vector<SampledToken> sampled;  // only when logprobs are asked for
  FinishReason finish = FinishReason::None;
  double ttft_s = 0;  // from run() to the first token
};

struct GenerationTimes {
  double prefill_s = 0, decode_s = 0;
  int64_t prefill_tokens = 0, decode_tokens = 0;
  int64_t prefill_steps = 0, decode_steps = 0;
};

// Called for every token; answer false to end that request (a stop string was seen): it then finishes with Stop.
using TokenSink = std::function<bool(const TokenEvent&)>;

class Generator {
 public:
  explicit Generator(Engine& engine) : engine_(engine) {}
  // Results in the order of the requests. An empty prompt, one that fills the context, or an id outside the vocabulary
  // is an error before anything runs. max_new_tokens is cut at the context's end (finish: Length).
  Result<std::vector<GenerationResult>> run(std::span<const GenerationRequest> requests, const TokenSink& sink = {});
  const GenerationTimes& times() const { return times_; }

 private:
  Engine& engine_;
  GenerationTimes times_;
};

}  // namespace reprise::engine
