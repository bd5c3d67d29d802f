// Communicator: NCCL's handle of the ranks that hold a model together, and the calls on it.
//
// Made once per device, when all ranks have come; its kernels' entries keep it alive. A model that drafts on the device
// of another one meets the other ranks by the same one (of()): the two never have a step under way at once. NCCL moves
// bytes and adds integers alone: its sums of floats follow the size of what is added, so those are made by a kernel, in
// the order of ranks (kernels/ranks.h). Its calls return at once (blocking = 0) and are then asked after until they are
// enqueued. A thread of its own looks for the end of the world and for errors of the links, and then aborts what is
// under way, so that no launch waits for a rank that is gone.
//
// A lock covers each call and the mark of an abort: behind the mark no thread but the watcher's uses the handle, which
// ncclCommAbort frees. The lock is not held while NCCL aborts. One call may hold it for long, that of a launch that
// waits for room in a stream whose kernels wait for a lost rank; after five seconds the watcher aborts beside it, since
// nothing else ends those kernels, and the process ends with its world.
//
// ncclCommDestroy and ncclCommAbort return when every graph that has recorded calls of the communicator is destroyed
// (init.cc of NCCL, commDestroySync). So graphs go first: no graph is left when the communicator ends.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "backends/cuda/exchange.h"
#include "backends/cuda/nccl.h"
#include "ranks/member.h"

namespace reprise::cuda {

class Communicator final : public Exchange {
 public:
  // At 400 GB/s a meeting of 10 us is 4 MB. Both are assumed.
  static constexpr int64_t kWorthAMeeting = int64_t{4} << 20;
  // The thread that calls it uses this rank's device.
  static Result<std::shared_ptr<Communicator>> make(std::shared_ptr<const Nccl> nccl,
                                                    std::shared_ptr<ranks::Member> member,
                                                    int64_t worth_a_meeting = kWorthAMeeting);
  // The one that was made last for this rank; null where it is gone, or none was made. Any thread.
  static std::shared_ptr<Communicator> of(const ranks::Member& member);
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ranks::Member& member() const { return *member_; }
  int size() const { return member_->world().size; }
  int rank() const override { return member_->world().rank; }
  int64_t worth_a_meeting() const override { return worth_a_meeting_; }

  const char* all_gather(const void* from, void* to, int64_t bytes, CUstream_st* stream) override;
  const char* deal(const void* from, void* to, int64_t bytes, int64_t share, CUstream_st* stream) override;
  const char* merge(void* data, int64_t bytes, CUstream_st* stream) override;

 private:
  Communicator(std::shared_ptr<const Nccl> nccl, std::shared_ptr<ranks::Member> member, NcclComm comm,
               int64_t worth_a_meeting);
  // Runs int(), which calls NCCL, and waits until what it calls for is enqueued; what went wrong, or null.
  template <class F>
  const char* enqueue(const char* what, const F& call);
  const char* failed(int code, const char* what);
  void watch();

  std::shared_ptr<const Nccl> nccl_;
  std::shared_ptr<ranks::Member> member_;
  NcclComm comm_;
  int64_t worth_a_meeting_;
  std::atomic<bool> ended_{false}, aborted_{false};  // aborted: the handle is the watcher's alone
  std::mutex mutex_;                                 // of calls of NCCL, and of words_
  std::string words_;                                // of the first failure
  std::thread watcher_;
};

}  // namespace reprise::cuda
