// The exposition, family by family: vLLM's, SGLang's, our own. docs/serve.md says what of theirs is left out.
#include "server/metrics.h"

namespace reprise::server {
namespace {

constexpr double kBytesOfGib = 1 << 30;
constexpr auto kPage = kv::kPageTokens;
constexpr auto label = &MetricText::label;

template <typename V>
double d(V v) {
  return static_cast<double>(v);
}

// The share of KV pages that running requests hold.
double used_share(const sched::SchedulerStats& s) {
  return s.pages > 0 ? 1 - d(s.free_pages + s.evictable_pages) / d(s.pages) : 0;
}

void add_ranks(const GraphNumbers& numbers, MetricText& r) {
  if (numbers.ranks.empty()) return;
  const auto by_rank = [&](const char* name, const char* help, auto value) {
    r.family(name, "counter", help);
    for (size_t rank = 0; rank < numbers.ranks.size(); ++rank)
      r.sample(value(numbers.ranks[rank]), label("rank", std::to_string(rank)));
  };
  using Rank = GraphNumbers::Rank;
  by_rank("reprise:collectives_total", "Collectives of a rank.", [](const Rank& n) { return d(n.collectives); });
  by_rank("reprise:rank_wait_seconds_total",
          "Time that a rank waited in collectives for the others; the slowest waits least.",
          [](const Rank& n) { return n.waited_s; });
  r.single("reprise:logits_gathered_total", "counter", d(numbers.logits_gathered),
           "Rows whose logits came whole to every rank; other rows are drawn without.");
}

void add_runs(const sched::SchedulerStats& s, MetricText& r) {
  r.single("reprise:decode_runs_total", "counter", d(s.decode_runs),
           "Runs of decode steps that were submitted at once.");
  r.single("reprise:decode_run_steps_total", "counter", d(s.decode_run_steps), "Their steps.");
  r.family("reprise:decode_run_stops_total", "counter", "Runs of decode steps that were cut, by reason.");
  for (size_t i = 1; i < s.run_stops.size(); ++i)
    r.sample(d(s.run_stops[i]), label("reason", sched::run_stop_name(static_cast<sched::RunStop>(i))));
  r.single("reprise:rows_for_nothing_total", "counter", d(s.rows_for_nothing),
           "Rows that were computed for answers which had ended.");
}

void add_drafts(const sched::SpeculationStats& spec, MetricText& r) {
  if (!spec.on) return;
  r.family("reprise:spec_rows_total", "counter", "Rows of steps that verified drafts.");
  r.sample(d(spec.rows), label("kind", reprise::spec::algorithm_name(spec.algorithm)));
  r.family("reprise:spec_off_total", "counter", "Decoding steps without drafts, by reason.");
  for (size_t i = 1; i < spec.off.size(); ++i)
    r.sample(d(spec.off[i]), label("reason", sched::spec_off_name(static_cast<sched::SpecOff>(i))));
  r.single("reprise:spec_draft_seconds", "counter", spec.drafting_s, "Time that guessing took.");
}

}  // namespace

std::string Metrics::text(const std::vector<sched::SchedulerStats>& replicas, const HttpCounters& http,
                          int64_t active) const {
  const sched::SchedulerStats s = sched::added_up(replicas);
  MetricText by_replica(label("model_name", model_));
  if (replicas.size() > 1) add_replicas(replicas, by_replica);
  std::lock_guard lock(mutex_);
  return vllm_text(s) + sglang_text(s, http, active) + own_text(s, http) + by_replica.take();
}

void Metrics::add_replicas(const std::vector<sched::SchedulerStats>& replicas, MetricText& t) const {
  const auto add = [&](const char* name, const char* kind, const char* help, auto value) {
    t.family(name, kind, help);
    for (size_t r = 0; r < replicas.size(); ++r) t.sample(d(value(replicas[r])), label("dp_rank", std::to_string(r)));
  };
  using Stats = sched::SchedulerStats;
  add("reprise:dp_requests_running", "gauge", "Requests in the batch of a replica.",
      [](const Stats& s) { return s.running; });
  add("reprise:dp_requests_waiting", "gauge", "Requests that wait for a replica.",
      [](const Stats& s) { return s.waiting; });
  add("reprise:dp_requests_total", "counter", "Requests that a replica was given.",
      [](const Stats& s) { return s.requests; });
  add("reprise:dp_steps_total", "counter", "Steps of a replica.", [](const Stats& s) { return s.steps; });
  add("reprise:dp_generated_tokens_total", "counter", "Tokens that a replica generated.",
      [](const Stats& s) { return s.generated_tokens; });
  add("reprise:dp_prompt_tokens_cached_total", "counter", "Prompt tokens that a replica found in its prefix cache.",
      [](const Stats& s) { return s.cached_tokens; });
  add("reprise:dp_kv_pages_free", "gauge", "KV pages of a replica that no request holds.",
      [](const Stats& s) { return s.free_pages; });
}

uint64_t Metrics::ended_as(const char* reason) const {
  const auto it = success_.find(reason);
  return it == success_.end() ? 0 : it->second;
}

// Metrics that both servers have, under the same names.
void Metrics::add_times(std::string_view server, MetricText& t) const {
  const auto add = [&](const char* name, const Histogram& h, const char* help) {
    t.histogram(fmt::format("{}:{}_seconds", server, name), h, help);
  };
  add("time_to_first_token", ttft_, "From arrival to the first token.");
  add("inter_token_latency", itl_, "Time of a decoding step, once for each of its tokens.");
  add("e2e_request_latency", e2e_, "From arrival to the end.");
}

void Metrics::add_answers(std::string_view name, std::string_view status_label, MetricText& t) const {
  t.family(name, "counter", "HTTP responses by status.");
  for (const auto& [status, n] : statuses_) t.sample(d(n), label(status_label, std::to_string(status)));
}

std::string Metrics::vllm_text(const sched::SchedulerStats& s) const {
  MetricText v(label("model_name", model_) + "," + label("engine", "0"));
  v.single("vllm:num_requests_running", "gauge", d(s.running), "Requests in the batch.");
  v.single("vllm:num_requests_waiting", "gauge", d(s.waiting), "Requests that wait for a place in the batch.");
  v.family("vllm:num_requests_waiting_by_reason", "gauge", "Requests that wait, by what for.");
  v.sample(d(s.waiting), label("reason", "capacity"));
  v.single("vllm:kv_cache_usage_perc", "gauge", used_share(s),
           "Share of the KV pages that running requests hold (1 = all).");
  v.single("vllm:prompt_tokens_total", "counter", d(s.prompt_tokens), "Prompt tokens of admitted requests.");
  v.family("vllm:prompt_tokens_by_source_total", "counter", "Prompt tokens, by where their keys and values came from.");
  v.sample(d(s.prompt_tokens - s.cached_tokens), label("source", "local_compute"));
  v.sample(d(s.cached_tokens), label("source", "local_cache_hit"));
  v.single("vllm:prompt_tokens_cached_total", "counter", d(s.cached_tokens), "Of those, found in the prefix cache.");
  v.single("vllm:generation_tokens_total", "counter", d(s.generated_tokens), "Tokens generated.");
  v.single("vllm:prefix_cache_queries_total", "counter", d(s.prompt_tokens), "Tokens looked up in the prefix cache.");
  v.single("vllm:prefix_cache_hits_total", "counter", d(s.cached_tokens), "Tokens found there.");
  v.single("vllm:num_preemptions_total", "counter", d(s.preemptions), "Requests that had to start over.");
  v.family("vllm:request_success_total", "counter", "Requests that ended, by reason.");
  for (const char* reason : {"stop", "length", "abort"})
    v.sample(d(ended_as(reason)), label("finished_reason", reason));
  add_times("vllm", v);
  v.histogram("vllm:request_time_per_output_token_seconds", tpot_, "Mean time of a request's tokens after the first.");
  v.histogram("vllm:request_queue_time_seconds", queue_, "From arrival to a place in the batch.");
  v.histogram("vllm:request_inference_time_seconds", inference_, "From a place in the batch to the end.");
  v.histogram("vllm:request_prefill_time_seconds", prefill_, "From a place in the batch to the first token.");
  v.histogram("vllm:request_decode_time_seconds", decode_, "From the first token to the end.");
  v.histogram("vllm:request_prompt_tokens", prompt_tokens_, "Tokens of a prompt.");
  v.histogram("vllm:request_generation_tokens", generation_tokens_, "Tokens of an answer.");
  v.histogram("vllm:request_params_max_tokens", max_tokens_, "What max_tokens asked for.");
  v.histogram("vllm:iteration_tokens_total", iteration_tokens_, "Tokens of a step.");
  v.histogram("vllm:request_prefill_kv_computed_tokens", computed_tokens_, "Prompt tokens that were computed.");
  v.histogram("vllm:request_max_num_generation_tokens", generation_tokens_,
              "The same: answers are counted one by one.");
  v.histogram("vllm:request_params_n", answers_, "Answers to each prompt that a call asked for.");
  if (const sched::SpeculationStats& spec = s.speculation; spec.on) {
    v.single("vllm:spec_decode_num_drafts_total", "counter", d(spec.drafts),
             "Steps of a sequence that verified drafts.");
    v.single("vllm:spec_decode_num_draft_tokens_total", "counter", d(spec.draft_tokens), "Tokens that were guessed.");
    v.single("vllm:spec_decode_num_accepted_tokens_total", "counter", d(spec.accepted_tokens), "Those that came true.");
    v.family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", "The same, by place in a step.");
    const std::vector<int64_t>& accepted = spec.places.accepted;
    if (accepted.empty()) v.sample(0, label("position", "0"));
    for (size_t i = 0; i < accepted.size() && (i == 0 || accepted[i] > 0); ++i)
      v.sample(d(accepted[i]), label("position", std::to_string(i)));
  }
  v.family("vllm:cache_config_info", "gauge", "The KV cache.");
  v.sample(
      1, label("block_size", std::to_string(kv::kPageTokens)) + "," + label("num_gpu_blocks", std::to_string(s.pages)));
  return v.take();
}

std::string Metrics::sglang_text(const sched::SchedulerStats& s, const HttpCounters& http, int64_t active) const {
  MetricText g(label("model_name", model_));
  g.single("sglang:num_running_reqs", "gauge", d(s.running), "Requests in the batch.");
  g.single("sglang:num_queue_reqs", "gauge", d(s.waiting), "Requests that wait.");
  g.single("sglang:num_used_tokens", "gauge", used_share(s) * d(s.pages * kPage),
           "KV places held by running requests.");
  g.single("sglang:max_total_num_tokens", "gauge", d(s.pages * kPage), "KV places in all.");
  g.single("sglang:token_usage", "gauge", used_share(s), "Share of the KV places held by running requests.");
  g.single("sglang:cache_hit_rate", "gauge", s.prompt_tokens ? d(s.cached_tokens) / d(s.prompt_tokens) : 0,
           "Share of all prompt tokens found in the prefix cache.");
  g.single("sglang:gen_throughput", "gauge", s.running > 0 ? throughput_ : 0, "Generated tokens a second.");
  g.single("sglang:num_retracted_reqs", "gauge", d(s.preemptions), "Requests that had to start over.");
  g.single("sglang:prompt_tokens_total", "counter", d(s.prompt_tokens), "Prompt tokens.");
  g.single("sglang:generation_tokens_total", "counter", d(s.generated_tokens), "Tokens generated.");
  g.single("sglang:cached_tokens_total", "counter", d(s.cached_tokens), "Prompt tokens found in the prefix cache.");
  g.single("sglang:num_requests_total", "counter", d(s.requests), "Requests accepted.");
  g.single("sglang:num_aborted_requests_total", "counter", d(ended_as("abort")), "Requests that were cut short.");
  g.single("sglang:kv_available_tokens", "gauge", d(s.free_pages * kPage), "KV places that no request holds.");
  g.single("sglang:kv_evictable_tokens", "gauge", d(s.evictable_pages * kPage),
           "KV places that the prefix cache holds and no running request uses.");
  g.single("sglang:kv_used_tokens", "gauge", used_share(s) * d(s.pages * kPage), "KV places held by running requests.");
  g.single("sglang:evicted_tokens_total", "counter", d(s.evicted_pages * kPage), "KV places that the cache gave up.");
  g.single("sglang:weight_load_duration_seconds", "gauge", numbers_.load_s, "Time that loading the weights took.");
  g.single("sglang:weight_memory_usage_gb", "gauge", d(numbers_.weight_bytes) / kBytesOfGib, "Memory of the weights.");
  g.single("sglang:kv_cache_memory_usage_gb", "gauge", d(numbers_.kv_bytes) / kBytesOfGib, "Memory of the KV pages.");
  g.single("sglang:graph_memory_usage_gb", "gauge", d(numbers_.planned_bytes) / kBytesOfGib,
           "Planned memory of all graphs.");
  g.single("sglang:startup_time_seconds", "gauge", numbers_.load_s + numbers_.compile_s + numbers_.capture_s,
           "Loading, compiling and capturing.");
  if (const sched::SpeculationStats& spec = s.speculation; spec.on) {
    g.single("sglang:spec_accept_length", "gauge", s.answer_steps ? d(s.generated_tokens) / d(s.answer_steps) : 0,
             "Tokens that a step gives a sequence.");
    g.single("sglang:spec_accept_rate", "gauge", spec.draft_tokens ? d(spec.accepted_tokens) / d(spec.draft_tokens) : 0,
             "Share of the drafts that came true.");
  }
  g.single("sglang:http_requests_total", "counter", d(http.requests), "HTTP requests.");
  g.single("sglang:http_requests_active", "gauge", d(active), "HTTP requests whose answer is not complete.");
  add_answers("sglang:http_responses_total", "status_code", g);
  add_times("sglang", g);
  g.histogram("sglang:queue_time_seconds", queue_, "From arrival to a place in the batch.");

  g.family("sglang:cuda_graph_passes_total", "counter", "Steps of each phase, by how they ran.");
  bool replayed = false, eager = false;
  for (const GraphPhase& p : numbers_.phases) {
    uint64_t graph = 0, none = 0;
    for (const auto& [size, n] : p.replays) graph += n;
    for (const auto& [reason, n] : p.fallbacks) none += n;
    g.sample(d(graph), label("mode", p.phase + "_cuda_graph"));
    g.sample(d(none), label("mode", p.phase + "_none"));
    replayed |= graph > 0;
    eager |= none > 0;
  }
  g.single("sglang:is_cuda_graph", "gauge", replayed && !eager, "1 when every step so far was a graph replay.");
  g.single("sglang:startup_cuda_graph_time_seconds", "gauge", numbers_.capture_s, "Time that capture took.");
  return g.take();
}

std::string Metrics::own_text(const sched::SchedulerStats& s, const HttpCounters& http) const {
  MetricText r(label("model_name", model_));
  r.family("reprise:graph_replays_total", "counter", "Graph replays by phase, mode and captured size.");
  for (const GraphPhase& p : numbers_.phases)
    for (const auto& [size, n] : p.replays)
      r.sample(d(n), label("phase", p.phase) + "," + label("mode", p.mode) + "," + label("size", std::to_string(size)));
  r.family("reprise:graph_fallback_total", "counter", "Steps that ran without a graph, by reason.");
  for (const GraphPhase& p : numbers_.phases)
    for (const auto& [reason, n] : p.fallbacks) r.sample(d(n), label("phase", p.phase) + "," + label("reason", reason));
  r.family("reprise:graph_padding_tokens_total", "counter", "Rows of captured sizes that held no token.");
  for (const GraphPhase& p : numbers_.phases) r.sample(d(p.padding_tokens), label("phase", p.phase));
  if (!numbers_.idle_steps.empty()) {
    r.family("reprise:dp_idle_steps_total", "counter", "Steps in which a part of the ranks had no rows.");
    for (size_t part = 0; part < numbers_.idle_steps.size(); ++part)
      r.sample(d(numbers_.idle_steps[part]), label("dp_rank", std::to_string(part)));
    uint64_t padded = 0;
    for (const GraphPhase& p : numbers_.phases) padded += p.padding_tokens;
    r.single("reprise:dp_padded_rows_total", "counter", d(padded), "Rows between all parts' and the captured sizes.");
  }
  r.single("reprise:graph_compile_seconds", "gauge", numbers_.compile_s, "Time that passes and planning took.");
  r.single("reprise:graph_capture_seconds", "gauge", numbers_.capture_s, "Time that capture took.");
  r.single("reprise:graph_memory_bytes", "gauge", d(numbers_.planned_bytes), "Planned memory of all graphs.");
  r.single("reprise:graph_verified_total", "counter", d(numbers_.verified), "Replays run again by --verify-replay.");
  r.single("reprise:graph_verify_failures_total", "counter", d(numbers_.verify_failures),
           "Replays that differed from eager.");
  r.single("reprise:weight_bytes", "gauge", d(numbers_.weight_bytes), "Memory of the weights.");
  r.single("reprise:kv_cache_bytes", "gauge", d(numbers_.kv_bytes), "Memory of the KV pages.");
  r.single("reprise:kv_pages", "gauge", d(s.pages), "KV pages in all.");
  r.single("reprise:kv_pages_free", "gauge", d(s.free_pages), "KV pages that no request holds.");
  r.single("reprise:kv_pages_evictable", "gauge", d(s.evictable_pages),
           "KV pages that the prefix cache holds and no running request uses.");
  r.single("reprise:kv_pages_cached", "gauge", d(s.cached_pages), "KV pages that the prefix cache holds.");
  r.single("reprise:kv_pages_evicted_total", "counter", d(s.evicted_pages), "KV pages that the prefix cache gave up.");
  r.single("reprise:failed_steps_total", "counter", d(s.failed_steps), "Steps that ended with an error.");
  r.single("reprise:device_draws_total", "counter", d(s.device_draws), "Tokens that the device chose.");
  r.family("reprise:host_draws_total", "counter", "Tokens that the host drew from logits, by reason.");
  for (size_t i = 1; i < s.host_draws.size(); ++i)
    r.sample(d(s.host_draws[i]), label("reason", engine::host_draw_name(static_cast<engine::HostDraw>(i))));
  r.family("reprise:overlap_stops_total", "counter", "Steps whose successor had to wait for them, by reason.");
  for (size_t i = 1; i < s.overlap_stops.size(); ++i)
    r.sample(d(s.overlap_stops[i]), label("reason", sched::overlap_stop_name(static_cast<sched::OverlapStop>(i))));
  add_runs(s, r);
  add_drafts(s.speculation, r);
  r.histogram("reprise:host_gap_seconds", host_gap_, "Time between two steps in which the device had nothing to do.");
  r.histogram("reprise:step_seconds", step_s_, "Time of a step.");
  add_ranks(numbers_, r);
  if (!experts_.empty()) {
    const engine::ExpertUse& first = *experts_.front();
    r.family("reprise:expert_rows_total", "counter", "Rows that went to each expert of each layer.");
    for (size_t l = 0; l < first.layers(); ++l) {
      const std::string layer = label("layer", first.layer_name(l)) + ",";
      for (int64_t e = 0; e < first.experts(l); ++e) {
        uint64_t rows = 0;
        for (const engine::ExpertUse* use : experts_) rows += use->rows(l, e);
        r.sample(d(rows), layer + label("expert", std::to_string(e)));
      }
    }
    if (first.parts() > 1) {
      r.family("reprise:ep_imbalance", "gauge", "Most rows of a rank's experts over the mean of all ranks.");
      for (size_t l = 0; l < first.layers(); ++l) r.sample(first.imbalance(l), label("layer", first.layer_name(l)));
    }
  }
  r.single("reprise:http_connections", "gauge", d(http.open), "Open connections.");
  r.single("reprise:http_requests_total", "counter", d(http.requests), "HTTP requests.");
  r.single("reprise:http_dropped_total", "counter", d(http.dropped), "Clients dropped because they did not read.");
  add_answers("reprise:http_responses_total", "status", r);
  return r.take();
}

}  // namespace reprise::server
