// Launch: what a kernel of this backend talks to while it enqueues operators on a stream.
//
// An AscendKernel (the type behind Thunk::part) is a host function: it describes its operands as tensors and runs
// operators of the vendor's library through the two-phase protocol. Its body takes the struct of its op's launch
// arguments (ops/args) and the Launch, which knows the rest; kernel<body> makes the AscendKernel of it. The same
// function serves launching, capturing and task updates (what the stream does with its launches differs), and probing:
// only the first phase of each operator, to learn whether the chip takes these operands and how much workspace they
// need. One Launch is good for one thunk and one thread.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/ascend/library.h"
#include "base/dtype.h"
#include "device/thunk.h"

namespace reprise::ascend {

AclType acl_type(DType t);

// Both phases of one operator; the first one's arguments without the two results.
template <typename... A>
struct Operator {
  const char* name = nullptr;
  aclnnStatus (*plan)(A..., uint64_t* workspace, aclOpExecutor** executor) = nullptr;
  // The same, for the most workspace that operands of these shapes can need, for any content of the host arrays.
  // Attention has it since CANN 8.2; without it a plan at the longest lengths may ask for less than one at shorter
  // ones.
  aclnnStatus (*most)(A..., uint64_t* workspace, aclOpExecutor** executor) = nullptr;
  aclnnStatus (*run)(void* workspace, uint64_t bytes, aclOpExecutor* executor, aclrtStream stream) = nullptr;

  explicit operator bool() const { return plan && run; }
  void find(const Library& library) {
    plan = reinterpret_cast<decltype(plan)>(library.symbol(std::string(name) + "GetWorkspaceSize"));
    most = reinterpret_cast<decltype(most)>(library.symbol(std::string(name) + "GetMaxWorkspaceSize"));
    run = reinterpret_cast<decltype(run)>(library.symbol(name));
  }
};

// An operator whose first phase is over and may be repeated; ExecutorCache.
struct KeptOperator {
  const char* name = nullptr;
  aclnnStatus (*run)(void* workspace, uint64_t bytes, aclOpExecutor* executor, aclrtStream stream) = nullptr;
  aclOpExecutor* executor = nullptr;
  void* workspace = nullptr;
  uint64_t bytes = 0;
};

// What a launch describes its operands by. An operator that was enqueued once needs none of it any more; one that may
// be repeated reads its tensors' addresses at every run (opbase op_executor.cpp:165 and 215-217: the executor keeps
// pointers into the caller's tensors), so they go with it.
struct LaunchObjects {
  std::vector<aclTensor*> tensors;
  std::vector<aclTensorList*> lists;  // each took its tensors over
  std::vector<aclScalar*> scalars;
  std::vector<aclIntArray*> arrays;

  void destroy(const Library& library);
};

// Device memory for a launch whose operators ask for more than was planned. Belongs to a stream, whose launches run one
// after the other and may share it. Blocks live as long as the stream: queued and kept operators name them.
class SpareWorkspace {
 public:
  explicit SpareWorkspace(const Library& library) : library_(library) {}
  ~SpareWorkspace();
  SpareWorkspace(const SpareWorkspace&) = delete;
  SpareWorkspace& operator=(const SpareWorkspace&) = delete;

  // At least so many bytes; `why` is the operator's name, for the log.
  Result<void*> at_least(size_t bytes, const char* why);

 private:
  const Library& library_;
  std::vector<void*> blocks_;
  size_t size_ = 0;  // of the last one
};

struct Operators;  // operators.h

class Launch {
 public:
  // What a probe is asked about: whether operators take a call, or also how much workspace they need at most.
  enum class Probe : uint8_t { Call, Bounds };

  Launch(const Library& library, const Operators& operators, aclrtStream stream, void* workspace, size_t bytes)
      : library_(library), operators_(operators), stream_(stream), workspace_(workspace), bytes_(bytes) {}
  // Stands for memory that has no place yet, such as an operand of a probe.
  static void* nowhere() { return reinterpret_cast<void*>(kNowhere); }
  // Nothing is enqueued, addresses need not exist.
  Launch(const Library& library, const Operators& operators, Probe probe)
      : Launch(library, operators, nullptr, reinterpret_cast<void*>(kNowhere), SIZE_MAX / 2) {
    probing_ = true;
    bounds_ = probe == Probe::Bounds;
  }
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  // For the kernel that these arguments are of.
  void begin(const LaunchArgs& args, const LiveSizes& live) {
    args_ = &args;
    live_ = &live;
  }
  // Sizes are asked for here, so that it is known which ones a launch depends on.
  int64_t size(Dim d) {
    used_symbols_ |= 1U << d.symbol;
    return d.value(*live_);
  }
  uint32_t used_symbols() const { return used_symbols_; }
  const void* constant() const { return args_->constant; }
  int64_t way() const { return args_->way; }
  // Null while there are no lengths yet, in a probe.
  const int32_t* host(size_t i) const { return static_cast<const int32_t*>(args_->host[i]); }

  const Operators& ops() const { return operators_; }
  const Library& library() const { return library_; }
  bool probing() const { return probing_; }
  bool at_bounds() const { return bounds_; }
  // Where operators that want more than the planned workspace get it; without it that is an error.
  void set_spare(SpareWorkspace* spare) { spare_ = spare; }
  // A task group is rewritten launch by launch: its number of operators may not depend on what lies on the host. While
  // it is recorded that has not been staged yet.
  enum class Group : uint8_t { None, Record, Update };
  Group group() const { return group_; }
  void set_group(Group group) { group_ = group; }

  using Sizes = std::initializer_list<int64_t>;
  // A dense row-major tensor.
  aclTensor* tensor(const void* data, DType type, Sizes sizes) { return view(data, type, sizes, {}, 0, 0); }
  aclTensor* tensor(const void* data, AclType type, Sizes sizes) { return make(data, type, sizes, {}, 0, 0); }
  // Strides, `offset` and `storage` (of the whole block) in elements.
  aclTensor* view(const void* data, DType type, Sizes sizes, Sizes strides, int64_t offset, int64_t storage) {
    return make(data, acl_type(type), sizes, strides, offset, storage);
  }
  // A matrix, or a stack of them, that is stored in blocks of these sizes (FRACTAL_NZ). Some operators want the blocks
  // as the view, too: then `sizes` are those of `storage`.
  aclTensor* fractal(const void* data, DType type, Sizes sizes, Sizes storage);
  // Without dimensions, in view and storage: how some operators are told that an operand is not there. Its address must
  // be one all the same.
  aclTensor* none(const void* data, DType type);
  aclTensorList* list(aclTensor* only);  // takes it over
  aclScalar* number(float value);
  aclScalar* whole(int64_t value);  // beside a tensor of whole numbers, which stay whole
  aclIntArray* integers(std::span<const int64_t> values);
  // Bytes of the thunk's workspace for values between operators.
  void* scratch(size_t bytes);

  // Plans and enqueues. The error names the operator and carries the library's words.
  template <typename... A, typename... B>
  Status run(const Operator<A...>& op, B... arguments) {
    if (!op) return missing(op.name);
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    if (bounds_ && op.most && op.most(static_cast<A>(arguments)..., &bytes, &executor) == 0) {
      RETURN_IF_ERROR(room(op.name, bytes, executor));
      if (executor) RETURN_IF_ERROR(library_.check(library_.aclDestroyAclOpExecutor(executor), op.name));
      bytes = 0;
      executor = nullptr;
    }
    const aclnnStatus planned = op.plan(static_cast<A>(arguments)..., &bytes, &executor);
    if (planned != 0) return library_.check(planned, op.name);
    RETURN_IF_ERROR(room(op.name, bytes, executor));
    ++launched_;
    if (probing_) return library_.check(library_.aclDestroyAclOpExecutor(executor), op.name);
    void* workspace = bytes ? operator_workspace() : nullptr;
    if (kept_) keep({op.name, op.run, executor, workspace, bytes});
    return library_.check(op.run(workspace, bytes, executor, stream_), op.name);
  }

  // In a probe only: whether the library takes an operator that is not launched so. It starts nothing.
  template <typename... A, typename... B>
  Status ask(const Operator<A...>& op, B... arguments) {
    ++asked_;
    return run(op, arguments...);
  }

  // What is no operator, such as a collective: `call` takes the stream. Not called in a probe.
  template <typename Call>
  Status enqueue(const Call& call) {
    ++launched_;
    return probing_ ? Status::ok() : call(stream_);
  }

  // Operators that may be repeated go there instead of being used up; kept_all() tells whether all of them may.
  void keep(std::vector<KeptOperator>* to) { kept_ = to; }
  bool kept_all() const { return static_cast<int>(kept_->size()) == launched_; }
  // For the code that keeps the operators. Nothing can be launched afterwards.
  LaunchObjects take_objects() { return std::exchange(objects_, {}); }

  // Operators run so far.
  int launched() const { return launched_; }
  // Those of a probe that a launch runs, too.
  int started() const { return launched_ - asked_; }
  // Workspace that this launch needed.
  size_t used() const { return scratch_ + operators_bytes_; }

 private:
  static constexpr uintptr_t kNowhere = uintptr_t{1} << 32;

  // The library takes the addresses of what it only reads, too, as those of memory to write.
  void* address(const void* data) const { return const_cast<void*>(!data && probing_ ? nowhere() : data); }
  aclTensor* make(const void* data, AclType type, Sizes sizes, Sizes strides, int64_t offset, int64_t storage);
  static Status missing(const char* name);
  Status room(const char* name, size_t bytes, aclOpExecutor* executor);
  void keep(const KeptOperator& op);
  void* operator_workspace() const {
    return spared_ ? spared_ : static_cast<void*>(static_cast<uint8_t*>(workspace_) + scratch_);
  }

  const Library& library_;
  const Operators& operators_;
  const LaunchArgs* args_ = nullptr;
  const LiveSizes* live_ = nullptr;
  uint32_t used_symbols_ = 0;
  aclrtStream stream_;
  void* workspace_;
  size_t bytes_;
  size_t scratch_ = 0, operators_bytes_ = 0;
  int launched_ = 0, asked_ = 0;
  bool probing_ = false, bounds_ = false;
  SpareWorkspace* spare_ = nullptr;
  void* spared_ = nullptr;  // the operator's workspace where the planned one is too small
  Group group_ = Group::None;
  std::vector<KeptOperator>* kept_ = nullptr;
  LaunchObjects objects_;
};

// All that it reads are its arguments; it may not wait, allocate device memory or copy to the host.
using AscendKernel = Status (*)(const LaunchArgs& args, const LiveSizes& live, Launch& launch);

template <class A>
Status enter(Status (*body)(const A&, Launch&), const LaunchArgs& args, Launch& launch) {
  return body(args.as<A>(), launch);
}
// A body Status(const Args&, Launch&) as an AscendKernel.
template <auto kBody>
Status kernel(const LaunchArgs& args, const LiveSizes& live, Launch& launch) {
  launch.begin(args, live);
  return enter(kBody, args, launch);
}

inline OpaqueKernel opaque(AscendKernel kernel) { return reinterpret_cast<OpaqueKernel>(kernel); }

// The phases of a thunk in order.
Status run_thunk(const Thunk& thunk, const LiveSizes& live, Launch& launch);

}  // namespace reprise::ascend
