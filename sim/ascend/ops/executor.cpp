// Phase 2, and what may be done to an executor between the phases.
#include "ascend/ops/executor.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "ascend/ops/executors.h"

namespace ascend_sim {

namespace {

constexpr uint64_t kViewAlignment = 512;

struct Executors {
  std::mutex mutex;
  uintptr_t next = 0x1000;
  std::unordered_map<uintptr_t, std::shared_ptr<Plan>> alive;
};

Executors& executors() {
  static Executors all;
  return all;
}

// The plan, or null with the reason noted.
std::shared_ptr<Plan> find(aclOpExecutor* executor, const std::string& what, int& code) {
  if (executor == nullptr) {
    code = fail(kNullPointer, what + ": the executor is null");
    return nullptr;
  }
  const auto number = reinterpret_cast<uintptr_t>(executor);
  const std::lock_guard lock(executors().mutex);
  const auto found = executors().alive.find(number);
  if (found != executors().alive.end()) return found->second;
  const bool was = number >= 0x1000 && number < executors().next && number % 16 == 0;
  code = fail(kInvalid, what + (was ? ": the executor was used by phase 2 or destroyed already"
                                    : ": this is no executor that a phase 1 answered"));
  return nullptr;
}

void forget(aclOpExecutor* executor) {
  const std::lock_guard lock(executors().mutex);
  executors().alive.erase(reinterpret_cast<uintptr_t>(executor));
}

enum class Count : uint8_t { Inputs, Outputs, All };

aclnnStatus set_address(aclOpExecutor* executor, size_t index, size_t member, const aclTensor* tensor, void* address,
                        Count count, const char* what) {
  int code = 0;
  const auto plan = find(executor, what, code);
  if (!plan) return code;
  if (tensor == nullptr || address == nullptr)
    return fail(kNullPointer, std::string(what) + ": tensor or address is null");
  if (!live(tensor)) return fail(kInvalid, std::string(what) + ": the tensor was destroyed or never created");
  if (!plan->repeatable) {
    return fail(kInvalid, std::string(what) + ": the executor of " + plan->name + " is not repeatable");
  }
  for (Operand& operand : plan->operands) {
    if (operand.role == Role::Output && count == Count::Inputs) continue;
    if (operand.role == Role::Input && count == Count::Outputs) continue;
    const size_t place = count == Count::Inputs    ? operand.input
                         : count == Count::Outputs ? operand.output
                                                   : operand.parameter;
    if (place != index || operand.member != member || !operand.view.given) continue;
    if (tensor->view.shape != operand.view.shape || tensor->view.dtype != operand.view.dtype) {
      return fail(kInvalid, std::string(what) + ": " + operand.name + " of " + plan->name + " was " +
                                text_of(operand.view.shape) + " of " + name_of(operand.view.dtype) + " in phase 1");
    }
    operand.view.address = address;
    return 0;
  }
  return fail(kInvalid, std::string(what) + ": " + plan->name + " has no tensor " + std::to_string(index));
}

aclnnStatus set_member(aclOpExecutor* executor, size_t index, size_t member, const aclTensorList* tensors,
                       void* address, Count count, const char* what) {
  if (tensors == nullptr) return fail(kNullPointer, std::string(what) + ": the list is null");
  if (!live(tensors) || member >= tensors->tensors.size()) {
    return fail(kInvalid, std::string(what) + ": the list has no member " + std::to_string(member));
  }
  return set_address(executor, index, member, tensors->tensors[member], address, count, what);
}

View packed_copy(const View& view, char* at) {
  View copy = view;
  copy.address = at;
  copy.offset = 0;
  copy.strides = packed_strides(copy.shape);
  copy.storage = copy.shape;
  return copy;
}

Kernel copy_kernel(const std::string& name, const View& from, const View& to) {
  Kernel kernel{name + "/contiguous", Unit::Vector, {0, 2 * from.bytes()}, {from.touch(false), to.touch(true)}, {}};
  kernel.compute = [from, to] { copy_elements(from, to); };
  return kernel;
}

std::vector<Kernel> kernels_of(const Plan& plan, void* workspace) {
  std::vector<Kernel> kernels, after;
  auto operands = std::make_shared<Operands>();
  Kernel main{plan.name, plan.unit, plan.work, {}, {}};
  char* next = static_cast<char*>(workspace);
  for (const Operand& operand : plan.operands) {
    View view = operand.view;
    if (view.given && operand.walk == Walk::Packed && !view.packed()) {
      const View copy = packed_copy(view, next);
      next += (static_cast<uint64_t>(view.bytes()) + kViewAlignment - 1) / kViewAlignment * kViewAlignment;
      if (operand.role != Role::Output) kernels.push_back(copy_kernel(plan.name, view, copy));
      if (operand.role != Role::Input) after.push_back(copy_kernel(plan.name, copy, view));
      view = copy;
    }
    const Touch touch = view.touch(operand.role != Role::Input);
    if (touch.bytes > 0) main.touches.push_back(touch);
    operands->views.push_back(std::move(view));
  }
  if (plan.scratch > 0) main.touches.push_back({next, static_cast<size_t>(plan.scratch), true});
  if (plan.exchange) {
    auto exchange = std::make_shared<Exchange>(*plan.exchange);
    exchange->give = [operands, give = plan.give] { return give(*operands); };
    exchange->take = [operands, take = plan.take](const auto& all) { return take(*operands, all); };
    main.exchange = std::move(exchange);
  } else {
    main.compute = [operands, compute = plan.compute] { compute(*operands); };
  }
  const Kernel pad{plan.name + "/pad", Unit::Vector, {0, plan.work.bytes / 2}, {}, [] {}};
  kernels.insert(kernels.end(), static_cast<size_t>(plan.before), pad);
  kernels.push_back(std::move(main));
  kernels.insert(kernels.end(), static_cast<size_t>(plan.behind), pad);
  for (Kernel& kernel : after) kernels.push_back(std::move(kernel));
  return kernels;
}

template <typename Word>
void copy_words(const View& from, const View& to) {
  const auto* source = at<const Word>(from);
  auto* target = at<Word>(to);
  const int64_t width = from.rank() ? from.shape.back() : 1;
  const int64_t source_step = from.rank() ? from.strides.back() : 1, target_step = to.rank() ? to.strides.back() : 1;
  std::vector<int64_t> rows;
  for_rows(from.shape, from.strides, [&](int64_t offset, int64_t) { rows.push_back(offset); });
  for_rows(to.shape, to.strides, [&](int64_t offset, int64_t row) {
    const Word* line = source + rows[static_cast<size_t>(row)];
    for (int64_t i = 0; i < width; ++i) target[offset + i * target_step] = line[i * source_step];
  });
}

}  // namespace

void copy_elements(const View& from, const View& to) {
  if (from.count() == 0) return;
  switch (from.element()) {
    case 1: return copy_words<uint8_t>(from, to);
    case 2: return copy_words<uint16_t>(from, to);
    case 4: return copy_words<uint32_t>(from, to);
    default: return copy_words<uint64_t>(from, to);
  }
}

aclOpExecutor* keep(Plan plan) {
  const std::lock_guard lock(executors().mutex);
  const uintptr_t number = executors().next;
  executors().next += 16;
  executors().alive.emplace(number, std::make_shared<Plan>(std::move(plan)));
  return reinterpret_cast<aclOpExecutor*>(number);
}

std::map<std::string, int64_t> live_executors() {
  const std::lock_guard lock(executors().mutex);
  std::map<std::string, int64_t> counts;
  for (const auto& entry : executors().alive) ++counts["executor of " + entry.second->name];
  return counts;
}

aclnnStatus enqueue(const char* name, void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream) {
  int code = 0;
  const auto plan = find(executor, name, code);
  if (!plan) return code;
  if (plan->name != name) return fail(kInvalid, std::string(name) + ": the executor is one of " + plan->name);
  if (plan->only_bound) {
    return fail(kInvalid, plan->name + ": an executor of GetMaxWorkspaceSize can only be destroyed");
  }
  const uint64_t needed = plan->copies + plan->scratch;
  if (needed > 0 && workspace == nullptr) {
    return fail(kNullPointer, plan->name + ": needs " + std::to_string(needed) + " bytes of workspace, got none");
  }
  if (size < needed) {
    const std::string found = "needs " + std::to_string(needed) + " bytes of workspace, got " + std::to_string(size);
    return fail(kInvalid, plan->name + ": " + (plan->varies ? refusal(Rule::AttentionWorkspace, found) : found));
  }
  if (reinterpret_cast<uintptr_t>(workspace) % 64 != 0) {
    return fail(kInvalid, plan->name + ": the workspace must start at a multiple of 64 bytes");
  }
  // A repeatable executor holds pointers into the caller's tensors and asks each for its address at every run
  // (hicann/opbase @ aa3cd74b, op_executor.cpp:165 and 215-217, common_types.cpp:385-394).
  if (plan->repeatable)
    for (const Operand& operand : plan->operands)
      if (operand.tensor && !live(operand.tensor, operand.serial))
        return fail(kInvalid, plan->name + ": " +
                                  refusal(Rule::TensorsOutliveExecutor, operand.name + " was destroyed meanwhile"));
  std::vector<Kernel> kernels = kernels_of(*plan, workspace);
  spend_host(PhaseCosts::kLaunch * static_cast<double>(kernels.size()));
  if (!plan->repeatable) forget(executor);
  // The runtime has noted its own code and text; an operator of the real library answers just this one.
  return launch(stream, std::move(kernels)) == 0 ? 0 : kRuntimeError;
}

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  int code = 0;
  const auto plan = find(executor, "aclSetAclOpExecutorRepeatable", code);
  if (!plan) return code;
  if (plan->unkept || !plan->once.empty()) {
    return fail(kInvalid, "aclSetAclOpExecutorRepeatable: " + plan->name +
                              " cannot be repeated: " + (plan->unkept ? refusal(*plan->unkept, "") : plan->once));
  }
  plan->repeatable = true;
  return 0;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  int code = 0;
  if (!find(executor, "aclDestroyAclOpExecutor", code)) return code;
  forget(executor);
  return 0;
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return set_address(executor, index, 0, tensor, addr, Count::Inputs, "aclSetInputTensorAddr");
}
aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return set_address(executor, index, 0, tensor, addr, Count::Outputs, "aclSetOutputTensorAddr");
}
aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return set_address(executor, index, 0, tensor, addr, Count::All, "aclSetTensorAddr");
}
aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                         aclTensorList* tensors, void* addr) {
  return set_member(executor, irIndex, relativeIndex, tensors, addr, Count::Inputs, "aclSetDynamicInputTensorAddr");
}
aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                          aclTensorList* tensors, void* addr) {
  return set_member(executor, irIndex, relativeIndex, tensors, addr, Count::Outputs, "aclSetDynamicOutputTensorAddr");
}
aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                    aclTensorList* tensors, void* addr) {
  return set_member(executor, irIndex, relativeIndex, tensors, addr, Count::All, "aclSetDynamicTensorAddr");
}

}  // extern "C"
