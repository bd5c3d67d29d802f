// AscendStream: one queue of the NPU, and AscendEvent: a point in it. Never the default stream, which cannot be
// captured. Each shares the context of its device. One thread at a time drives a stream; the update worker may call
// fail() beside it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/ascend/context.h"
#include "backends/ascend/executor_cache.h"
#include "device/stream.h"

namespace reprise::ascend {

// Re-recording moves the mark. Timed ones can be compared by aclrtEventElapsedTime.
class AscendEvent final : public Event {
 public:
  static Result<std::unique_ptr<AscendEvent>> make(std::shared_ptr<Context> context, bool timed = false);
  ~AscendEvent() override;
  aclrtEvent native() const { return event_; }

 private:
  AscendEvent(std::shared_ptr<Context> context, aclrtEvent event) : context_(std::move(context)), event_(event) {}

  std::shared_ptr<Context> context_;
  aclrtEvent event_;
};

class AscendStream final : public Stream {
 public:
  static Result<std::unique_ptr<AscendStream>> make(std::shared_ptr<Context> context);
  ~AscendStream() override;

  void set_live_sizes(const LiveSizes& live) override { live_ = live; }
  Status launch(const Thunk& thunk) override;
  Status copy(void* dst, const void* src, size_t bytes, Copy kind) override;
  Status record(Event& event) override;
  Status wait(const Event& event) override;
  // Also where an update that failed during a replay is told. An error that loses the device is the answer to
  // everything that follows.
  Status synchronize() override;
  Status synchronize(const Event& event) override;
  StreamStats stats() const override { return stats_; }

  const LiveSizes& live_sizes() const { return live_; }
  aclrtStream native() const { return stream_; }
  SpareWorkspace& spare() { return spare_; }
  void count_replay() { ++stats_.replays; }
  // Library::check for a call on this stream; a lost device is remembered.
  Status check(int code, std::string_view what);
  // An error of work done for this stream on another thread.
  void fail(Status status);

 private:
  AscendStream(std::shared_ptr<Context> context, aclrtStream stream)
      : context_(std::move(context)), stream_(stream), spare_(context_->library()), executors_(context_->library()) {}

  // Ok when the device is there to be called.
  Status ready() const;
  Status noted(Status status);    // the same; a lost device is remembered
  Status or_failed(Status done);  // or else what failed on another thread
  // Waits by `call`, which takes milliseconds. Where there are other ranks, their end ends it.
  Status wait_for(const std::function<int(int32_t)>& call);

  std::shared_ptr<Context> context_;
  aclrtStream stream_;
  SpareWorkspace spare_;  // outlives the executors, which name it
  ExecutorCache executors_;
  LiveSizes live_;
  StreamStats stats_;
  Status lost_ = Status::ok();
  std::mutex mutex_;  // of what follows
  Status failed_ = Status::ok();
};

}  // namespace reprise::ascend
