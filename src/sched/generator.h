// Generator: runs lists of requests to their ends, on the calling thread: a scheduler whose answers are collected.
//
// What ends an answer, who is admitted and which pages it gets is the scheduler's business alone. A generator may run
// several lists one after the other; what they share as a prefix is computed once. One thread at a time; the executor
// outlives it.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sched/scheduler.h"

namespace reprise::sched {

struct GenerationRequest {
  std::vector<int32_t> prompt;
  engine::SamplingParams sampling;
  std::vector<engine::SequenceImage> images = {};  // of the prompt
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
  int64_t cached_tokens = 0;  // of the prompt, known from an earlier request
  double ttft_s = 0;          // from run() to the first token
};

// A step with tokens of a prompt counts as prefill, also where other sequences decode in it.
struct GenerationTimes {
  double prefill_s = 0, decode_s = 0;
  int64_t prefill_tokens = 0, decode_tokens = 0;
  int64_t prefill_steps = 0, decode_steps = 0;
};

struct GeneratorOptions {
  std::vector<int32_t> eos_tokens = {};
  bool prefix_cache = true;
  spec::SpecOptions speculation = {};
  AdapterPtr adapter = nullptr;  // of all requests; null: the model alone
};

// Called for every token; answer false to end that request (a stop string was seen): it then finishes with Stop.
using TokenSink = std::function<bool(const TokenEvent&)>;

class Generator {
 public:
  explicit Generator(engine::Executor& executor, GeneratorOptions options = {});
  // Results in the order of the requests. An empty prompt, one that fills the context, an id outside the vocabulary, or
  // an answer that the KV pool cannot hold is an error before anything runs. max_new_tokens is cut at the context's end
  // (finish: Length).
  Result<std::vector<GenerationResult>> run(std::span<const GenerationRequest> requests, const TokenSink& sink = {});
  const GenerationTimes& times() const { return steps_.times; }  // of the last run()
  SpeculationStats speculation() const { return scheduler_.stats().speculation; }

 private:
  struct StepTimes final : Observer {
    void stepped(const StepRecord& step) override;
    GenerationTimes times;
  };
  Status check(const Request& request) const;

  engine::Executor& executor_;
  const AdapterPtr adapter_;
  StepTimes steps_;
  Scheduler scheduler_;
};

}  // namespace reprise::sched
