// Communicator: NCCL's handle of the ranks that hold a model together, and the calls on it.
//
// Made once per device, when all ranks have come; its kernels' entries keep it alive. NCCL moves bytes and adds
// integers alone: its sums of floats follow the size of what is added, so those are made by a kernel, in the order of
// ranks (kernels/ranks.h). A thread of its own looks for the end of the world and for errors of the links, and then
// aborts what is under way, so that no launch waits for a rank that is gone.
#pragma once

#include <atomic>
#include <functional>
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
  // `use_device` makes the thread that calls it use this rank's device.
  static Result<std::shared_ptr<Communicator>> make(std::shared_ptr<const Nccl> nccl,
                                                    std::shared_ptr<ranks::Member> member,
                                                    std::function<Status()> use_device);
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ranks::Member& member() const { return *member_; }
  int size() const { return member_->world().size; }
  int rank() const override { return member_->world().rank; }

  const char* all_gather(const void* from, void* to, int64_t bytes, CUstream_st* stream) override;
  const char* deal(const void* from, void* to, int64_t bytes, int64_t share, CUstream_st* stream) override;
  const char* merge(void* data, int64_t bytes, CUstream_st* stream) override;

 private:
  Communicator(std::shared_ptr<const Nccl> nccl, std::shared_ptr<ranks::Member> member, NcclComm comm);
  const char* failed(int code, const char* what);
  void watch();

  std::shared_ptr<const Nccl> nccl_;
  std::shared_ptr<ranks::Member> member_;
  NcclComm comm_;
  std::atomic<bool> ended_{false}, aborted_{false};
  std::mutex mutex_;
  std::string words_;  // of the first failure
  std::thread watcher_;
};

}  // namespace reprise::cuda
