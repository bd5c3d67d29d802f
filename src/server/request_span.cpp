#include "server/request_span.h"

#include <algorithm>
#include <cmath>

#include "base/elapsed.h"
#include "server/api_error.h"

namespace reprise::server {
namespace {

int64_t ns_since_1970() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool was_cancelled(const sched::RequestResult& r) { return r.status.code() == Code::Cancelled && !r.late; }

const char* finish_of(const Answer& a) {
  const sched::RequestResult& r = *a.result;
  if (r.late) return "timeout";
  return r.status.is_ok() || was_cancelled(r) ? reason_of(r, !a.calls.empty()) : "error";
}

}  // namespace

RequestSpan::RequestSpan(SpanExporter& to, const std::optional<TraceParent>& parent, std::string operation,
                         const std::string& method, const std::string& route)
    : to_(to), operation_(std::move(operation)), begin_ns_(ns_since_1970()) {
  span_.trace = parent ? parent->trace : new_trace_id();
  span_.id = new_span_id();
  if (parent) span_.parent = parent->span;
  span_.remote_parent = parent.has_value();
  span_.name = operation_;
  span_.kind = SpanKind::Server;
  span_.begin_ns = begin_ns_;
  span_.attributes = {{"gen_ai.operation.name", operation_},
                      {"gen_ai.provider.name", "reprise"},
                      {"http.request.method", method},
                      {"http.route", route}};
}

void RequestSpan::model(const std::string& name) {
  span_.name = operation_ + " " + name;
  set("gen_ai.request.model", name);
}

void RequestSpan::answered(const GenerateCall& call, const std::vector<Answer>& answers, int64_t context_length) {
  const engine::SamplingParams& p = call.sampling;
  size_t longest = 0;
  for (const auto& prompt : call.prompts) longest = std::max(longest, prompt.size());
  // Where a request leaves it to the model, the bound is what the context has room for.
  const int64_t room = std::max<int64_t>(0, context_length - static_cast<int64_t>(longest));
  set("gen_ai.request.max_tokens", call.no_answer ? 0 : std::min(p.max_new_tokens, room));
  set("gen_ai.request.temperature", p.temperature);
  set("gen_ai.request.top_p", p.top_p);
  set("gen_ai.request.stream", call.stream);
  if (answers.size() > 1) set("gen_ai.request.choice.count", answers.size());
  set("gen_ai.response.id", call.id);
  set("gen_ai.response.model", span_.attributes.value("gen_ai.request.model", ""));
  OrderedJson reasons = OrderedJson::array();
  std::vector<sched::RequestResult> results;
  int64_t thoughts = 0;
  for (const Answer& a : answers) {
    if (reasons.size() < kMostAnswers) reasons.push_back(finish_of(a));
    results.push_back(*a.result);
    thoughts += a.reasoning_tokens;
  }
  set("gen_ai.response.finish_reasons", std::move(reasons));
  const Usage usage = usage_of(call, answers);
  set("gen_ai.usage.input_tokens", usage.prompt_tokens);
  set("gen_ai.usage.output_tokens", usage.completion_tokens);
  set("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens);
  if (thoughts > 0) set("gen_ai.usage.reasoning.output_tokens", thoughts);
  times(results);
}

void RequestSpan::times(const std::vector<sched::RequestResult>& results) {
  double queued = 0, total = 0;
  std::optional<double> first;
  int64_t preemptions = 0;
  bool admitted = false;
  for (size_t i = 0; i < results.size(); ++i) {
    const sched::RequestResult& r = results[i];
    total = std::max(total, seconds_of(r.finished - r.arrived));
    preemptions += r.preemptions;
    if (!r.status.is_ok() && !was_cancelled(r)) fail(r);
    if (r.admitted) {
      admitted = true;
      queued = std::max(queued, seconds_of(*r.admitted - r.arrived));
    }
    const bool writes = r.first_token && r.completion_tokens > 0;
    if (writes) first = std::min(first.value_or(HUGE_VAL), seconds_of(*r.first_token - r.arrived));
    if (i >= kMostAnswers) continue;
    const auto which = results.size() > 1 ? std::optional(i) : std::nullopt;
    add("queue", which, r.arrived, r.admitted.value_or(r.finished));
    if (r.admitted) add("prefill", which, *r.admitted, r.first_token.value_or(r.finished));
    if (writes) add("decode", which, *r.first_token, r.finished);
  }
  if (admitted) set("gen_ai.latency.time_in_queue", queued);
  if (first) set("gen_ai.latency.time_to_first_token", *first);
  set("gen_ai.latency.e2e", total);
  if (preemptions > 0) set("reprise.preemptions", preemptions);
}

void RequestSpan::fail(const sched::RequestResult& result) {
  span_.failed = true;
  set("error.type", result.late ? std::string("timeout") : std::to_string(ApiError::from(result.status).status));
}

void RequestSpan::end(int status) {
  if (status > 0) set("http.response.status_code", status);
  // A request that is wrong is no failure of the server that says so.
  span_.failed |= status >= 500;
  if (status >= 400 && !span_.attributes.contains("error.type")) set("error.type", std::to_string(status));
  span_.end_ns = ns(Clock::now());
  std::vector<TraceSpan> all = std::move(children_);
  all.insert(all.begin(), std::move(span_));
  to_.add(std::move(all));
}

int64_t RequestSpan::ns(Clock::time_point time) const {
  return begin_ns_ + std::chrono::duration_cast<std::chrono::nanoseconds>(time - begin_).count();
}

void RequestSpan::add(const char* name, std::optional<size_t> answer, Clock::time_point begin, Clock::time_point end) {
  TraceSpan s;
  s.trace = span_.trace;
  s.id = new_span_id();
  s.parent = span_.id;
  s.name = name;
  s.begin_ns = ns(begin);
  s.end_ns = ns(std::max(begin, end));
  if (answer) s.attributes["reprise.answer"] = *answer;
  children_.push_back(std::move(s));
}

}  // namespace reprise::server
