// What is counted; metrics_text.cpp writes it.
#include "server/metrics.h"

#include <algorithm>

#include "base/elapsed.h"

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

// Sums over replicas, which run the same graphs at once.
GraphNumbers added_up(const std::vector<GraphNumbers>& each) {
  GraphNumbers sum = each.front();
  for (size_t i = 1; i < each.size(); ++i) {
    const GraphNumbers& n = each[i];
    for (size_t p = 0; p < std::min(sum.phases.size(), n.phases.size()); ++p) {
      GraphPhase& phase = sum.phases[p];
      for (const auto& [size, count] : n.phases[p].replays) phase.replays[size] += count;
      for (const auto& [reason, count] : n.phases[p].fallbacks) phase.fallbacks[reason] += count;
      phase.padding_tokens += n.phases[p].padding_tokens;
    }
    for (auto member : {&GraphNumbers::capture_s, &GraphNumbers::load_s, &GraphNumbers::compile_s})
      sum.*member = std::max(sum.*member, n.*member);
    for (auto member :
         {&GraphNumbers::planned_bytes, &GraphNumbers::verified, &GraphNumbers::verify_failures,
          &GraphNumbers::logits_gathered, &GraphNumbers::steps, &GraphNumbers::weight_bytes, &GraphNumbers::kv_bytes})
      sum.*member += n.*member;
    sum.host_s += n.host_s;
    sum.ranks.insert(sum.ranks.end(), n.ranks.begin(), n.ranks.end());
  }
  return sum;
}

double between(sched::Clock::time_point a, sched::Clock::time_point b) { return seconds_of(b - a); }

}  // namespace

Metrics::Metrics(std::string model_name, std::function<GraphNumbers()> graph, const engine::ExpertUse* experts)
    : Metrics(std::move(model_name), std::vector{std::move(graph)},
              experts ? std::vector{experts} : std::vector<const engine::ExpertUse*>()) {}

Metrics::Metrics(std::string model_name, std::vector<std::function<GraphNumbers()>> graphs,
                 std::vector<const engine::ExpertUse*> experts)
    : model_(std::move(model_name)),
      graphs_(std::move(graphs)),
      experts_(std::move(experts)),
      seats_(graphs_.size()),
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
      computed_tokens_(tokens()),
      answers_({1, 2, 5, 10, 20}),
      host_gap_({1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2}),
      step_s_(token_times()) {
  for (size_t r = 0; r < seats_.size(); ++r) {
    seats_[r].all = this;
    seats_[r].replica = r;
    each_.push_back(graphs_[r]());
  }
  numbers_ = added_up(each_);
}

void Metrics::stepped(size_t replica, const sched::StepRecord& step) {
  GraphNumbers now = graphs_[replica]();
  std::lock_guard lock(mutex_);
  const double took = between(step.begin, step.end);
  iteration_tokens_.add(static_cast<double>(step.decode_tokens + step.prefill_tokens));
  step_s_.add(took);
  // Tokens of one step come together; each is counted with its part of the time.
  const int64_t answered = step.decode_tokens + step.accepted_tokens;
  if (step.decode_tokens > 0)
    itl_.add(took * static_cast<double>(step.decode_tokens) / static_cast<double>(answered),
             static_cast<uint64_t>(answered));
  if (step.gap_s)
    host_gap_.add(*step.gap_s);
  else if (const GraphNumbers& before = each_[replica]; now.steps > before.steps)
    host_gap_.add(step.forming_s + (now.host_s - before.host_s) / static_cast<double>(now.steps - before.steps));
  each_[replica] = std::move(now);
  numbers_ = added_up(each_);
  rate_tokens_ += static_cast<uint64_t>(answered);
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
  if (r.admitted) computed_tokens_.add(static_cast<double>(r.prompt_tokens - r.cached_tokens));
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

void Metrics::called(int64_t n) {
  std::lock_guard lock(mutex_);
  answers_.add(static_cast<double>(n));
}

GraphNumbers Metrics::numbers(size_t replica) const {
  std::lock_guard lock(mutex_);
  return each_[std::min(replica, each_.size() - 1)];
}

void Metrics::answered(int status) {
  std::lock_guard lock(mutex_);
  ++statuses_[status];
}

}  // namespace reprise::server
