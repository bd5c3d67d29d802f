// PooledJob: one call for vectors or scores, from its parse to its answer.
//
// start() hands its texts to the scheduler as requests of one call. Their sinks keep the rows on the scheduler's
// thread; when the last one has ended the answer is written on the HTTP thread. A client that goes away cancels what is
// left. It lives as long as a sink needs it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "server/job.h"
#include "server/pooled_call.h"

namespace reprise::server {

class PooledJob : public std::enable_shared_from_this<PooledJob> {
 public:
  // On the HTTP thread, when the answer was sent; with the tokens that were computed.
  using Done = std::function<void(int64_t tokens)>;
  // On the HTTP thread.
  static void start(const JobContext& context, PooledCall call, std::optional<sched::Clock::time_point> deadline,
                    std::shared_ptr<Reply> reply, const Headers& headers, ErrorForm errors, Done done);

  // Use start(): this is for std::make_shared.
  PooledJob(const JobContext& context, PooledCall call, std::shared_ptr<Reply> reply, Headers headers, ErrorForm errors,
            Done done);

 private:
  class Sink;

  void submit(std::optional<sched::Clock::time_point> deadline);
  void ended(size_t text, const sched::RequestResult& result);  // any thread
  void fail(ApiError error);                                    // any thread; the first one counts
  void one_less();                                              // any thread
  void cancel();
  void answer();
  void trace();
  void note_text();
  std::string body() const;

  JobContext context_;
  PooledCall call_;
  std::shared_ptr<Reply> reply_;
  Headers headers_;
  ErrorForm errors_;
  Done done_;
  std::vector<sched::RequestId> ids_;
  sched::Clock::time_point started_ = sched::Clock::now();
  std::vector<std::vector<float>> rows_;       // by text, each written by its sink alone
  std::vector<sched::RequestResult> results_;  // likewise; of texts that were not taken, nothing
  std::atomic<size_t> left_{0};
  mutable std::mutex mutex_;
  std::optional<ApiError> error_;
};

}  // namespace reprise::server
