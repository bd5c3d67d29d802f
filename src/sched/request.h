// Request: what a client asks of the scheduler; RequestSink: where its tokens go.
//
// A Request is made by any thread and belongs to the scheduler from Scheduler::add() on. Its sink is called on the
// scheduler's thread alone, and holds it up, so it must be quick: post what it gets and return.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/image.h"
#include "engine/sampling.h"
#include "engine/token_constraint.h"
#include "sched/adapter_table.h"

namespace reprise::sched {

using Clock = std::chrono::steady_clock;
using RequestId = uint64_t;
using engine::SampledToken;

enum class FinishReason : uint8_t { None, Stop, Length, Cancelled };
std::string_view finish_reason_name(FinishReason reason);  // "stop", "length", "cancelled"

// Drafts by their place among those of a step: how many were verified there, and how many came true.
struct DraftPlaces {
  std::vector<int64_t> drafted = {}, accepted = {};  // one as long as the other

  void verify(size_t drafts);  // one more in each of so many places
  void came_true(size_t place) { ++accepted[place]; }
  DraftPlaces& operator+=(const DraftPlaces& other);
};

// What became of a request's drafts (speculative decoding).
struct DraftCounts {
  int64_t steps = 0;  // that verified drafts of it
  int64_t drafted = 0, accepted = 0;
  int64_t predicted = 0, predicted_accepted = 0;  // of these, drafts from the client's prediction
  DraftPlaces places = {};

  DraftCounts& operator+=(const DraftCounts& other);
};

// What became of a request; times are points of the steady clock, absent where it did not get that far.
struct RequestResult {
  RequestId id = 0;
  FinishReason finish = FinishReason::None;  // Stop, Length or Cancelled
  Status status;                             // why it was cut short, when it was
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  int64_t completion_tokens = 0;
  int64_t preemptions = 0;
  int64_t decode_steps = 0;  // that gave tokens of the answer
  DraftCounts drafts = {};
  std::optional<int32_t> stop_token;  // the end token that finished it
  bool late = false;                  // its deadline passed
  Clock::time_point arrived, finished;
  std::optional<Clock::time_point> admitted, first_token;
};

class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // It waits no longer; so many tokens of its prompt were in the prefix cache. Once, before anything else but the end.
  virtual void admitted(int64_t cached_tokens) {}
  // It waits again, and gets its turn later; resumed() follows, or the end.
  virtual void preempted() {}
  virtual void resumed() {}
  // Log-probability of every prompt token but the first, and the best at its place; before the first token, when
  // Request::prompt_logprobs asks for it. The first element has neither.
  virtual void prompt(std::vector<SampledToken> tokens) {}
  // Log-probabilities of the next of the tokens that Request::score_from asks for, in nats. They come in pieces, in the
  // order of the tokens, each once; only the end follows the last piece.
  virtual void scored(std::span<const double> log_p) {}
  // One token; `finish` says when it is the last (Stop: it is an end token). False ends the request here: a stop string
  // was seen. The request then finishes with Stop.
  virtual bool token(const SampledToken& token, FinishReason finish) = 0;
  // What a model gives that does not generate: the only thing but admission and the end. The row lives during the call.
  virtual void pooled(std::span<const float> row) {}
  // Exactly once, and nothing after it.
  virtual void finished(const RequestResult& result) = 0;
};

struct Request {
  std::string name = {};  // what its client calls it, for traces
  std::vector<int32_t> prompt;
  int64_t second_kind = INT64_MAX;                 // of a pair of texts, the first token of the second kind
  std::vector<engine::SequenceImage> images = {};  // in the places of placeholders of the prompt, in their order
  engine::SamplingParams sampling;  // max_new_tokens is cut where the context or the KV pool ends (finish: Length)
  int64_t priority = 0;             // larger goes first
  uint64_t call = 0;  // requests of one call share one turn when others wait; 0: the request is a call of its own
  std::optional<Clock::time_point> deadline;            // Cancelled and late when it passes
  AdapterPtr adapter = nullptr;                         // LoRA adapter; null: the model alone
  std::string cache_salt;                               // prefixes are shared within one salt only
  bool prompt_logprobs = false;                         // sampling.logprobs says how many
  std::optional<int64_t> score_from = {};               // score the prompt from this token on, and answer nothing
  std::vector<int32_t> prediction = {};                 // what its client expects as the answer, for drafts
  std::optional<int64_t> draft_tokens = {};             // rows of it in one step at most, where fewer than the server's
  bool several = false;                                 // others with the same prompt come with it (n > 1)
  std::unique_ptr<engine::TokenConstraint> constraint;  // what the text may be; null: anything
  std::unique_ptr<RequestSink> sink;
};

}  // namespace reprise::sched
