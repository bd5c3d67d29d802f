// UpdateWorker: the one thread that gives recorded launches new host arguments while their graph already runs.
//
// It owns the stream on which updates are issued. Jobs run in the order of submission; a job's launches are updated
// first to last, and after each the graph is let past the place where it waits for it. The device makes one, on the
// first graph that needs it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "backends/ascend/ascend_stream.h"

namespace reprise::ascend {

class UpdateWorker {
 public:
  static Result<std::unique_ptr<UpdateWorker>> make(const std::shared_ptr<Context>& context);
  ~UpdateWorker();

  // Runs on the worker's thread with the update stream. `host_us` is the submitter's modelled time.
  using Job = std::function<void(AscendStream& updates)>;
  void submit(Job job);
  // Returns when every job submitted so far has run on the host.
  void drain();
  AscendStream& stream() { return *stream_; }

 private:
  UpdateWorker(std::shared_ptr<Context> context, std::unique_ptr<AscendStream> stream);
  void work();

  struct Waiting {
    Job job;
    double host_us = 0;
  };
  std::shared_ptr<Context> context_;
  std::unique_ptr<AscendStream> stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> jobs_;
  bool busy_ = false, ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace reprise::ascend
