// RequestSpan: the trace of one request: a span of kind SERVER with names and attributes of OpenTelemetry's conventions
// for generative AI, and below it the times that each answer waited (queue), had its prompt read (prefill) and was
// written (decode). Names, numbers and times; no text of a client or of an answer. The handler of the request tells it
// what there is to know, and its reply when it is over. The HTTP thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sched/request.h"
#include "server/answer.h"
#include "server/span_exporter.h"
#include "server/trace_parent.h"

namespace reprise::server {

class RequestSpan {
 public:
  using Clock = sched::Clock;
  // Spans of the answers to one request; those of more are left out.
  static constexpr size_t kMostAnswers = 16;

  // Begins now. `operation` is a word of the conventions ("chat"); `to` outlives it.
  RequestSpan(SpanExporter& to, const std::optional<TraceParent>& parent, std::string operation,
              const std::string& method, const std::string& route);
  const std::string& trace() const { return span_.trace; }

  // The model that answers, by our own name of it.
  void model(const std::string& name);
  void set(const std::string& key, OrderedJson value) { span_.attributes[key] = std::move(value); }
  // What was asked for and what came of it, all answers having ended.
  void answered(const GenerateCall& call, const std::vector<Answer>& answers, int64_t context_length);
  // The times of the requests that it was made of.
  void times(const std::vector<sched::RequestResult>& results);
  void fail(const sched::RequestResult& result);
  // Once: the spans are on their way. `status` is the one of HTTP.
  void end(int status);

 private:
  int64_t ns(Clock::time_point time) const;
  void add(const char* name, std::optional<size_t> answer, Clock::time_point begin, Clock::time_point end);

  SpanExporter& to_;
  const std::string operation_;
  const Clock::time_point begin_ = Clock::now();
  const int64_t begin_ns_;
  TraceSpan span_;
  std::vector<TraceSpan> children_;
};

}  // namespace reprise::server
