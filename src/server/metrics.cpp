#include "server/metrics.h"

namespace reprise::server {
namespace {

using sched::FinishReason;

std::vector<double> short_times() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}
std::vector<double> token_times() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
          0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
}
std::vector<double> long_times() {
  return {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}
std::vector<double> tokens() {
  return {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
}
std::vector<double> step_tokens() {
  std::vector<double> out;
  for (double n = 1; n <= 16384; n *= 2) out.push_back(n);
  return out;
}

double between(sched::Clock::time_point a, sched::Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

Metrics::Metrics(std::string model_name, std::function<GraphNumbers()> graph)
    : model_(std::move(model_name)),
      graph_(std::move(graph)),
      numbers_(graph_()),
      ttft_(short_times()),
      itl_(token_times()),
      tpot_(token_times()),
      e2e_(long_times()),
      queue_(long_times()),
      prefill_(long_times()),
      decode_(long_times()),
      inference_(long_times()),
      prompt_tokens_(tokens()),
      generation_tokens_(tokens()),
      max_tokens_(tokens()),
      iteration_tokens_(step_tokens()),
      host_gap_({1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2}),
      step_s_(token_times()) {}

void Metrics::stepped(const sched::StepRecord& step) {
  GraphNumbers now = graph_();
  std::lock_guard lock(mutex_);
  const double took = between(step.begin, step.end);
  iteration_tokens_.add(static_cast<double>(step.decode_tokens + step.prefill_tokens));
  step_s_.add(took);
  if (step.decode_tokens > 0) itl_.add(took, static_cast<uint64_t>(step.decode_tokens));
  if (now.steps > numbers_.steps)
    host_gap_.add(step.forming_s + (now.host_s - numbers_.host_s) / static_cast<double>(now.steps - numbers_.steps));
  numbers_ = std::move(now);
  rate_tokens_ += static_cast<uint64_t>(step.decode_tokens);
  if (rate_since_ == sched::Clock::time_point{}) rate_since_ = step.begin;
  const double window = between(rate_since_, step.end);
  if (window >= 1) {
    throughput_ = static_cast<double>(rate_tokens_) / window;
    rate_tokens_ = 0;
    rate_since_ = step.end;
  }
}

void Metrics::finished(const sched::Request& request, const sched::RequestResult& r) {
  std::lock_guard lock(mutex_);
  const char* reason = r.finish == FinishReason::Stop ? "stop" : r.finish == FinishReason::Length ? "length" : "abort";
  ++success_[reason];
  const double all = between(r.arrived, r.finished);
  e2e_.add(all);
  prompt_tokens_.add(static_cast<double>(r.prompt_tokens));
  generation_tokens_.add(static_cast<double>(r.completion_tokens));
  max_tokens_.add(static_cast<double>(request.sampling.max_new_tokens));
  if (r.admitted) {
    queue_.add(between(r.arrived, *r.admitted));
    inference_.add(between(*r.admitted, r.finished));
  }
  if (!r.first_token) return;
  ttft_.add(between(r.arrived, *r.first_token));
  if (r.admitted) prefill_.add(between(*r.admitted, *r.first_token));
  decode_.add(between(*r.first_token, r.finished));
  if (r.completion_tokens > 1)
    tpot_.add(between(*r.first_token, r.finished) / static_cast<double>(r.completion_tokens - 1));
}

void Metrics::answered(int status) {
  std::lock_guard lock(mutex_);
  ++statuses_[status];
}

std::string Metrics::text(const sched::SchedulerStats& s, const HttpCounters& http) const {
  std::lock_guard lock(mutex_);
  const auto d = [](auto v) { return static_cast<double>(v); };
  const double used = s.pages > 0 ? 1 - d(s.free_pages + s.evictable_pages) / d(s.pages) : 0;
  const auto label = MetricText::label;

  MetricText v(label("model_name", model_) + "," + label("engine", "0"));
  v.single("vllm:num_requests_running", "gauge", d(s.running), "Requests in the batch.");
  v.single("vllm:num_requests_waiting", "gauge", d(s.waiting), "Requests that wait for a place in the batch.");
  v.single("vllm:kv_cache_usage_perc", "gauge", used, "Share of the KV pages that running requests hold (1 = all).");
  v.single("vllm:prompt_tokens_total", "counter", d(s.prompt_tokens), "Prompt tokens of admitted requests.");
  v.single("vllm:prompt_tokens_cached_total", "counter", d(s.cached_tokens), "Of those, found in the prefix cache.");
  v.single("vllm:generation_tokens_total", "counter", d(s.generated_tokens), "Tokens generated.");
  v.single("vllm:prefix_cache_queries_total", "counter", d(s.prompt_tokens), "Tokens looked up in the prefix cache.");
  v.single("vllm:prefix_cache_hits_total", "counter", d(s.cached_tokens), "Tokens found there.");
  v.single("vllm:num_preemptions_total", "counter", d(s.preemptions), "Requests that had to start over.");
  v.family("vllm:request_success_total", "counter", "Requests that ended, by reason.");
  for (const char* reason : {"stop", "length", "abort"}) {
    const auto it = success_.find(reason);
    v.sample("vllm:request_success_total", it == success_.end() ? 0 : d(it->second), label("finished_reason", reason));
  }
  v.histogram("vllm:time_to_first_token_seconds", ttft_, "From arrival to the first token.");
  v.histogram("vllm:inter_token_latency_seconds", itl_, "Time of a decoding step, once for each of its tokens.");
  v.histogram("vllm:request_time_per_output_token_seconds", tpot_, "Mean time of a request's tokens after the first.");
  v.histogram("vllm:e2e_request_latency_seconds", e2e_, "From arrival to the end.");
  v.histogram("vllm:request_queue_time_seconds", queue_, "From arrival to a place in the batch.");
  v.histogram("vllm:request_inference_time_seconds", inference_, "From a place in the batch to the end.");
  v.histogram("vllm:request_prefill_time_seconds", prefill_, "From a place in the batch to the first token.");
  v.histogram("vllm:request_decode_time_seconds", decode_, "From the first token to the end.");
  v.histogram("vllm:request_prompt_tokens", prompt_tokens_, "Tokens of a prompt.");
  v.histogram("vllm:request_generation_tokens", generation_tokens_, "Tokens of an answer.");
  v.histogram("vllm:request_params_max_tokens", max_tokens_, "What max_tokens asked for.");
  v.histogram("vllm:iteration_tokens_total", iteration_tokens_, "Tokens of a step.");

  MetricText g(label("model_name", model_));
  g.single("sglang:num_running_reqs", "gauge", d(s.running), "Requests in the batch.");
  g.single("sglang:num_queue_reqs", "gauge", d(s.waiting), "Requests that wait.");
  g.single("sglang:num_used_tokens", "gauge", used * d(s.pages * kv::kPageTokens),
           "KV places held by running requests.");
  g.single("sglang:max_total_num_tokens", "gauge", d(s.pages * kv::kPageTokens), "KV places in all.");
  g.single("sglang:token_usage", "gauge", used, "Share of the KV places held by running requests.");
  g.single("sglang:cache_hit_rate", "gauge", s.prompt_tokens ? d(s.cached_tokens) / d(s.prompt_tokens) : 0,
           "Share of all prompt tokens found in the prefix cache.");
  g.single("sglang:gen_throughput", "gauge", s.running > 0 ? throughput_ : 0, "Generated tokens a second.");
  g.single("sglang:num_retracted_reqs", "gauge", d(s.preemptions), "Requests that had to start over.");
  g.single("sglang:prompt_tokens_total", "counter", d(s.prompt_tokens), "Prompt tokens.");
  g.single("sglang:generation_tokens_total", "counter", d(s.generated_tokens), "Tokens generated.");
  g.single("sglang:cached_tokens_total", "counter", d(s.cached_tokens), "Prompt tokens found in the prefix cache.");
  g.single("sglang:num_requests_total", "counter", d(s.requests), "Requests accepted.");
  g.histogram("sglang:time_to_first_token_seconds", ttft_, "From arrival to the first token.");
  g.histogram("sglang:inter_token_latency_seconds", itl_, "Time of a decoding step, once for each of its tokens.");
  g.histogram("sglang:e2e_request_latency_seconds", e2e_, "From arrival to the end.");
  g.histogram("sglang:queue_time_seconds", queue_, "From arrival to a place in the batch.");

  uint64_t replayed = 0, eager = 0;
  for (const GraphPhase& p : numbers_.phases) {
    for (const auto& [size, n] : p.replays) replayed += n;
    for (const auto& [reason, n] : p.fallbacks) eager += n;
  }
  g.single("sglang:is_cuda_graph", "gauge", replayed > 0 && eager == 0, "1 when every step so far was a graph replay.");
  g.family("sglang:cuda_graph_passes_total", "counter", "Steps, by how they ran.");
  g.sample("sglang:cuda_graph_passes_total", d(replayed), label("mode", "graph"));
  g.sample("sglang:cuda_graph_passes_total", d(eager), label("mode", "none"));
  g.single("sglang:startup_cuda_graph_time_seconds", "gauge", numbers_.capture_s, "Time that capture took.");

  MetricText r(label("model_name", model_));
  r.family("reprise:graph_replays_total", "counter", "Graph replays by phase, mode and captured size.");
  for (const GraphPhase& p : numbers_.phases)
    for (const auto& [size, n] : p.replays)
      r.sample("reprise:graph_replays_total", d(n),
               label("phase", p.phase) + "," + label("mode", p.mode) + "," + label("size", std::to_string(size)));
  r.family("reprise:graph_fallback_total", "counter", "Steps that ran without a graph, by reason.");
  for (const GraphPhase& p : numbers_.phases)
    for (const auto& [reason, n] : p.fallbacks)
      r.sample("reprise:graph_fallback_total", d(n), label("phase", p.phase) + "," + label("reason", reason));
  r.family("reprise:graph_padding_tokens_total", "counter", "Rows of captured sizes that held no token.");
  for (const GraphPhase& p : numbers_.phases)
    r.sample("reprise:graph_padding_tokens_total", d(p.padding_tokens), label("phase", p.phase));
  r.single("reprise:graph_capture_seconds", "gauge", numbers_.capture_s, "Time that capture took.");
  r.single("reprise:graph_memory_bytes", "gauge", d(numbers_.planned_bytes), "Planned memory of all graphs.");
  r.single("reprise:graph_verified_total", "counter", d(numbers_.verified), "Replays run again by --verify-replay.");
  r.single("reprise:graph_verify_failures_total", "counter", d(numbers_.verify_failures),
           "Replays that differed from eager.");
  r.single("reprise:weight_bytes", "gauge", d(numbers_.weight_bytes), "Memory of the weights.");
  r.single("reprise:kv_cache_bytes", "gauge", d(numbers_.kv_bytes), "Memory of the KV pages.");
  r.single("reprise:kv_pages", "gauge", d(s.pages), "KV pages in all.");
  r.single("reprise:kv_pages_free", "gauge", d(s.free_pages), "KV pages that nobody holds.");
  r.single("reprise:kv_pages_evictable", "gauge", d(s.evictable_pages),
           "KV pages that the prefix cache holds for nobody who runs.");
  r.single("reprise:kv_pages_cached", "gauge", d(s.cached_pages), "KV pages that the prefix cache holds.");
  r.single("reprise:kv_pages_evicted_total", "counter", d(s.evicted_pages), "KV pages that the prefix cache gave up.");
  r.single("reprise:failed_steps_total", "counter", d(s.failed_steps), "Steps that ended with an error.");
  r.histogram("reprise:host_gap_seconds", host_gap_, "Work of a step outside the device.");
  r.histogram("reprise:step_seconds", step_s_, "Time of a step.");
  r.single("reprise:http_connections", "gauge", d(http.open), "Open connections.");
  r.single("reprise:http_requests_total", "counter", d(http.requests), "HTTP requests.");
  r.single("reprise:http_dropped_total", "counter", d(http.dropped), "Clients dropped because they did not read.");
  r.family("reprise:http_responses_total", "counter", "HTTP responses by status.");
  for (const auto& [status, n] : statuses_)
    r.sample("reprise:http_responses_total", d(n), label("status", std::to_string(status)));
  return v.take() + g.take() + r.take();
}

}  // namespace reprise::server
