// SpanQueue and SpanExporter: spans that ended, on their way to a collector.
//
// The queue is bounded: what does not fit is dropped and counted, and so is what the collector does not take. The
// exporter sends batches from a thread of its own, so that a collector that is slow or away holds up no request. Where
// the bytes go is a function that it is given; that function alone does I/O. add(), dropped() and sent() are for any
// thread; the code that owns the exporter calls the others.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/trace_span.h"

namespace reprise::server {

// No lock and no clock: one thread at a time, and times are given.
class SpanQueue {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    size_t batch = 512;
    std::chrono::milliseconds every{5000};  // after the oldest came, a batch that is not full goes
    size_t most = 8192;                     // that wait
  };
  explicit SpanQueue(Options options) : options_(options) {}

  // All of them or none: a trace with holes tells wrong things. False: they were dropped.
  bool add(std::vector<TraceSpan> spans, Clock::time_point now);
  // When the next batch goes; nullopt: nothing waits.
  std::optional<Clock::time_point> due() const;
  // The next batch where it is due or `now` does not count; else nothing.
  std::vector<TraceSpan> take(Clock::time_point now, bool all = false);
  size_t size() const { return waiting_.size(); }

 private:
  struct Waiting {
    TraceSpan span;
    Clock::time_point since;
  };
  Options options_;
  std::deque<Waiting> waiting_;
};

// How long the header Retry-After asks to wait: seconds, or a date (RFC 9110, 10.2.3); nullopt where it is neither.
std::optional<std::chrono::milliseconds> retry_after_of(const std::string& header,
                                                        std::chrono::system_clock::time_point now);

class SpanExporter {
 public:
  using Clock = SpanQueue::Clock;
  struct Answer {
    int status = 0;       // of HTTP; 0: none came, and
    std::string problem;  // why
    std::string body;
    std::optional<std::chrono::milliseconds> wait = {};  // it asks for, before the next sending
  };
  // Sends a body and waits for the answer, no longer than that. On the exporter's thread.
  using Post = std::function<Answer(const std::string& body, std::chrono::milliseconds limit)>;
  struct Options {
    SpanQueue::Options queue;
    std::chrono::milliseconds limit{2000};           // of one sending
    int tries = 4;                                   // where the collector is away or busy
    std::chrono::milliseconds first_wait{1000};      // between two; then twice as long
    std::chrono::milliseconds longest_wait{300000};  // however long a collector asks for
  };
  // `resource` has attributes of this server.
  SpanExporter(OrderedJson resource, Options options);
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Where spans go from now on; an empty function: nowhere. `place` names it in messages.
  void point_to(std::string place, Post post);
  bool on() const { return on_; }
  void add(std::vector<TraceSpan> spans);
  // Sends what waits, and ends. What is not sent within the time is dropped; one sending may still end by its limit.
  void finish(std::chrono::milliseconds time);

  uint64_t sent() const { return sent_; }
  uint64_t dropped() const { return dropped_; }

 private:
  void work();
  void send(const std::vector<TraceSpan>& batch, const Post& post, const std::string& place);
  void record_sent(const Answer& answer, size_t spans, const std::string& place);
  void drop(size_t spans, const std::string& place, const std::string& why);
  std::chrono::milliseconds limit();     // of the next sending; 0: there is no time left
  bool wait(std::chrono::milliseconds);  // false: the end came

  const OrderedJson resource_;
  const Options options_;
  std::atomic<bool> on_{false};
  std::atomic<uint64_t> sent_{0}, dropped_{0};
  bool told_ = false;  // that spans are lost; the exporter's thread

  std::mutex mutex_;
  std::condition_variable changed_;
  SpanQueue queue_;
  Post post_;
  std::string place_;
  bool slow_ = false, told_slow_ = false;   // spans did not fit into the queue
  std::optional<Clock::time_point> until_;  // the end
  std::thread thread_;
};

}  // namespace reprise::server
