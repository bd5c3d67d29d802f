// Communicator: HCCL's handle of the ranks that hold a model together, and the calls on it.
//
// Made once per device, when all ranks have come; its kernels' entries keep it alive through the Context. Calls enqueue
// on a stream and may be captured; all ranks make the same ones in the same order. Sums are asked for of integers
// alone, whose order does not matter.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backends/ascend/collectives.h"
#include "base/dtype.h"
#include "ranks/member.h"

namespace reprise::ascend {

class Communicator {
 public:
  static Result<std::unique_ptr<Communicator>> make(std::shared_ptr<const Library> library,
                                                    std::shared_ptr<ranks::Member> member, bool for_experts = false);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ranks::Member& member() const { return *member_; }
  int size() const { return member_->world().size; }

  // The name of a second communicator, which the operators that send rows to experts have for themselves (OT-2608
  // aclnnMoeDistributeDispatchV2.md:716); empty: none was asked for.
  const std::string& experts() const { return experts_name_; }

  // `bytes` of every rank, one after the other.
  Status all_gather(const void* from, void* to, int64_t bytes, aclrtStream stream) const;
  // From every rank the block of `bytes` that is this one's: the first of its blocks for rank 0, and so on.
  Status all_to_all(const void* from, void* to, int64_t bytes, aclrtStream stream) const;
  // Parts of the `ways` ranks in order that this one is of, `bytes` of each of them, one behind the other; the other
  // ranks do the same among themselves.
  Status gather_among(const void* from, void* to, std::span<const int64_t> bytes, aclrtStream stream) const;
  Status can_gather_among() const;
  // Bits of all ranks put together: elsewhere than in its own part a rank has zeros. In place.
  Status merge(void* data, int64_t count, DType type, aclrtStream stream) const;

 private:
  Communicator(std::shared_ptr<const Library> library, std::shared_ptr<ranks::Member> member)
      : library_(std::move(library)), member_(std::move(member)) {}
  Status check(int32_t code, std::string_view what) const;
  Result<HcclComm> meet() const;

  std::shared_ptr<const Library> library_;
  std::shared_ptr<ranks::Member> member_;
  HcclComm comm_ = nullptr, experts_ = nullptr;
  std::string experts_name_;
};

}  // namespace reprise::ascend
