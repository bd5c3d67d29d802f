// Metrics: what the scheduler, the engine and the HTTP server did, under the names that dashboards know: vLLM's,
// SGLang's core ones, and our own about graphs.
//
// It is the scheduler's observer, and has one of its own for each of several replicas; text() may be called by any
// thread.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/expert_use.h"
#include "sched/observer.h"
#include "sched/replicas.h"
#include "server/http_server.h"
#include "server/metric_text.h"

namespace reprise::server {

// How the steps of one phase (decode, prefill) ran. Taken between steps, on the scheduler's thread.
struct GraphPhase {
  std::string phase, mode;
  std::map<int64_t, uint64_t> replays;        // by size
  std::map<std::string, uint64_t> fallbacks;  // by reason
  uint64_t padding_tokens = 0;
};

struct GraphNumbers {
  std::vector<GraphPhase> phases;
  double capture_s = 0, load_s = 0, compile_s = 0;
  uint64_t planned_bytes = 0, verified = 0, verify_failures = 0, steps = 0, logits_gathered = 0;
  double host_s = 0;
  uint64_t weight_bytes = 0, kv_bytes = 0;
  // By rank, where there are several: collectives, and the seconds that it waited in them for the others.
  struct Rank {
    uint64_t collectives = 0;
    double waited_s = 0;
  };
  std::vector<Rank> ranks;
  std::vector<uint64_t> idle_steps;  // by part of ranks that share out requests (`enable_dp_attention`)
};

class Metrics final : public sched::Observer {
 public:
  // `experts` may be null; else it outlives this.
  explicit Metrics(std::string model_name, std::function<GraphNumbers()> graph,
                   const engine::ExpertUse* experts = nullptr);

  // Several replicas have one `graph` each, which is called on its thread; `experts` is empty or has one each.
  Metrics(std::string model_name, std::vector<std::function<GraphNumbers()>> graphs,
          std::vector<const engine::ExpertUse*> experts);

  // What the scheduler of a replica tells. This itself is the first one's.
  sched::Observer& of(size_t replica) { return replica == 0 ? static_cast<sched::Observer&>(*this) : seats_[replica]; }
  void stepped(const sched::StepRecord& step) override { stepped(0, step); }
  void finished(const sched::Request& request, const sched::RequestResult& result) override;

  // The exposition; the numbers of the engine are those of the last step. `active`: HTTP requests whose answer is not
  // complete.
  std::string text(const std::vector<sched::SchedulerStats>& replicas, const HttpCounters& http, int64_t active) const;
  // Those of the last step of a replica; where several share an engine, of that.
  GraphNumbers numbers(size_t replica) const;
  void answered(int status);  // one HTTP response
  void called(int64_t n);     // a generating call, with so many answers to each prompt

 private:
  struct Seat final : sched::Observer {
    void stepped(const sched::StepRecord& step) override { all->stepped(replica, step); }
    void finished(const sched::Request& request, const sched::RequestResult& result) override {
      all->finished(request, result);
    }
    Metrics* all = nullptr;
    size_t replica = 0;
  };
  void stepped(size_t replica, const sched::StepRecord& step);
  void add_replicas(const std::vector<sched::SchedulerStats>& replicas, MetricText& t) const;
  std::string vllm_text(const sched::SchedulerStats& s) const;
  std::string sglang_text(const sched::SchedulerStats& s, const HttpCounters& http, int64_t active) const;
  std::string own_text(const sched::SchedulerStats& s, const HttpCounters& http) const;
  void add_times(std::string_view server, MetricText& t) const;
  void add_answers(std::string_view name, std::string_view status_label, MetricText& t) const;
  uint64_t ended_as(const char* reason) const;

  std::string model_;
  std::vector<std::function<GraphNumbers()>> graphs_;
  std::vector<const engine::ExpertUse*> experts_;
  std::vector<Seat> seats_;
  mutable std::mutex mutex_;
  std::vector<GraphNumbers> each_;  // by replica
  GraphNumbers numbers_;            // of all of them
  Histogram ttft_, itl_, tpot_, e2e_, queue_, prefill_, decode_, inference_, prompt_tokens_, generation_tokens_,
      max_tokens_, iteration_tokens_, computed_tokens_, answers_, host_gap_, step_s_;
  std::map<std::string, uint64_t> success_;
  std::map<int, uint64_t> statuses_;
  sched::Clock::time_point rate_since_{};
  uint64_t rate_tokens_ = 0;
  double throughput_ = 0;  // generated tokens a second, over the last second or so
};

}  // namespace reprise::server
