// What a client asks a server to generate, and what it got: the requests of /v1/completions, /v1/chat/completions and
// /generate, and GenerationReader, which reads their streams and takes the times that benchmarks report.
//
// Times, as vLLM's and SGLang's clients take them, in seconds:
//   ttft     from sending the request to the first event with text (or token ids)
//   itl      from one such event to the next; on /generate shared among the new tokens of the event, since it tells
//   them latency  from sending the request to the last event of an answer tpot     (latency - ttft) / (output tokens -
//   1); answers of one token have none
// Plain values and a plain reader; one thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "client/event_reader.h"
#include "client/http_calls.h"

namespace reprise::client {

enum class Endpoint : uint8_t { Completions, Chat, Generate };
Result<Endpoint> parse_endpoint(std::string_view name);  // "completions", "chat", "generate"

using PromptIds = std::vector<int32_t>;
struct GenerationCall {
  std::variant<std::string, PromptIds, OrderedJson> prompt;  // the last: the content of a chat's message
  int64_t prompt_tokens = 0;  // when known; the server's count is taken where it says one
  int64_t max_tokens = 16;
};

// What all calls of a run have in common.
struct GenerationStyle {
  Endpoint endpoint = Endpoint::Completions;
  std::string model;  // "": the server's own
  double temperature = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  OrderedJson extra = OrderedJson::object();  // laid over the body
};

HttpCall http_call(const GenerationCall& call, const GenerationStyle& style);

struct GenerationRecord {
  bool ok = false;
  std::string problem;  // why not
  std::string text, finish_reason;
  double begin_s = 0;  // since the run began
  double ttft_s = 0, latency_s = 0;
  std::vector<double> itl_s;
  int64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
  bool usage_told = false;  // else the tokens are counted by events

  std::optional<double> tpot_s() const {
    if (output_tokens <= 1) return std::nullopt;
    return (latency_s - ttft_s) / static_cast<double>(output_tokens - 1);
  }
};

class GenerationReader {
 public:
  using Clock = std::chrono::steady_clock;
  GenerationReader(Endpoint endpoint, const GenerationCall& call, Clock::time_point sent);

  void began(int status) { status_ = status; }
  void push(std::string_view bytes, Clock::time_point now);
  // The record; `status` is how the transfer ended.
  GenerationRecord end(const Status& status);

 private:
  void take_event(const std::string& data, Clock::time_point now);
  void take_openai(const Json& event, Clock::time_point now);
  void take_native(const Json& event, Clock::time_point now);
  void take_usage(const Json& usage);
  void heard(int64_t tokens, Clock::time_point now);
  void fail(std::string why);

  Endpoint endpoint_;
  Clock::time_point sent_, last_;
  int status_ = 0;
  EventReader events_;
  std::string body_;  // of an answer that is not 200
  GenerationRecord record_;
  bool done_ = false, heard_ = false, begun_ = false;
  int64_t counted_ = 0, native_tokens_ = 0;
};

}  // namespace reprise::client
