// SpanTrace: what the scheduler did, step by step and request by request, while it was asked to record; written as one
// JSON file in the form that Chrome and Perfetto read.
//
// It is an observer of the scheduler and costs one look at a flag while it does not record. What it keeps is bounded:
// the oldest spans go first, and their number is told. start(), take() and recording() may be called by any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sched/observer.h"
#include "server/metrics.h"

namespace reprise::server {

class SpanTrace final : public sched::Observer {
 public:
  struct Limits {
    size_t spans = 1 << 17;     // of steps, and of requests in steps
    size_t requests = 1 << 14;  // that ended
  };
  // `graph` tells what graphs did so far; it is called on the scheduler's thread, while recording.
  explicit SpanTrace(std::function<GraphNumbers()> graph) : SpanTrace(std::move(graph), Limits()) {}
  SpanTrace(std::function<GraphNumbers()> graph, Limits limits) : graph_(std::move(graph)), limits_(limits) {}

  // Forgets what was recorded and begins. After `steps` steps (0: never) it ends by itself and calls `full`, on the
  // scheduler's thread.
  void start(int64_t steps, std::function<void()> full);
  bool recording() const { return recording_.load(); }
  // Ends recording; the file's text. A step whose requests are hearing of its results belongs to it: a client that has
  // its whole answer finds every token of it in the file.
  std::string take();

  void completing() override;
  void stepped(const sched::StepRecord& step) override;
  void finished(const sched::Request& request, const sched::RequestResult& result) override;

 private:
  using Time = sched::Clock::time_point;
  struct Span {
    Time begin, end;
    sched::RequestId request = 0;  // 0: the step itself
    int64_t decode_tokens = 0, prefill_tokens = 0, sequences = 0;
    double forming_s = 0, overlap_s = 0;
    uint32_t graph = 0;  // in graphs_
  };
  struct Ended {
    std::string name;
    sched::RequestResult result;
  };

  void add(const Span& span);
  uint32_t name_of_graphs(const GraphNumbers& before, const GraphNumbers& now);

  std::function<GraphNumbers()> graph_;
  Limits limits_;
  std::atomic<bool> recording_{false};

  std::mutex mutex_;
  int completing_ = 0;  // schedulers between the two
  std::condition_variable completed_;
  Time zero_{};
  int64_t steps_left_ = 0;
  std::function<void()> full_;
  std::optional<GraphNumbers> before_;  // numbers of the step before
  std::vector<std::string> graphs_;     // "decode whole 8": the ways that steps ran
  std::deque<Span> spans_;
  std::deque<Ended> ended_;
  uint64_t dropped_ = 0;
};

}  // namespace reprise::server
