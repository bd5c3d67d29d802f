// Operator: how an operator states what it takes, what it refuses and which kernels it runs; and the two phases behind.
//
// Phase 1 makes an Operator on the stack: it notes operands and attributes in the order of the prototype, checks them
// (the first failure stays) and finishes with its workspace and its kernels. That becomes an executor, a number that is
// never used twice, so that a consumed or destroyed one is recognised. Phase 2 is the same for all operators:
// enqueue(). Executors may be used by any thread, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ascend/kernel.h"
#include "ascend/ops/acl_op.h"
#include "ascend/ops/meta.h"
#include "ascend/ops/tensor.h"

namespace ascend_sim {

inline constexpr int kNullPointer = 161001;
inline constexpr int kInvalid = 161002;  // a dtype, a format, a dimension
inline constexpr int kRuntimeError = 361001;
inline constexpr int kTiling = 561002;   // a limit of the kernel
inline constexpr int kMissing = 561003;  // no such kernel on this SoC or in this version

using Tensor = const aclTensor*;
using TensorRef = aclTensor*;
using Scalar = const aclScalar*;
using Ints = const aclIntArray*;
using Tensors = const aclTensorList*;

struct Slot {
  size_t index = 0;
};

// What a kernel computes with: the views of phase 2, those that had gaps replaced by their copies without.
struct Operands {
  std::vector<View> views;
  const View& operator[](Slot slot) const { return views[slot.index]; }
};

using Compute = std::function<void(const Operands&)>;
using Give = std::function<std::vector<uint8_t>(const Operands&)>;
using Take = std::function<double(const Operands&, const std::vector<std::vector<uint8_t>>&)>;

// Whether the kernel walks the strides of an operand itself or wants it packed, at the price of a copy.
enum class Walk : uint8_t { Packed, Strides };
enum class Role : uint8_t { Input, Output, Ref };
enum class Since : uint8_t { Cann81, Cann85, Cann91 };

struct Operand {
  std::string name;
  Role role = Role::Input;
  Walk walk = Walk::Packed;
  View view;
  size_t parameter = 0, input = 0, output = 0, member = 0;  // its places in the prototype
  const aclTensor* tensor = nullptr;                        // the caller's, of this number
  uint64_t serial = 0;
};

struct Plan {
  std::string name;
  std::vector<Operand> operands;
  uint64_t copies = 0, scratch = 0;  // workspace: packed copies, then the kernel's own
  Unit unit = Unit::Vector;
  Work work;
  Compute compute;
  std::optional<Exchange> exchange;  // in place of compute
  Give give;
  Take take;
  std::string once;            // why it cannot be repeated, if so
  std::optional<Rule> unkept;  // likewise; nor does phase 1 remember it
  bool repeatable = false;
  bool only_bound = false;     // of a ...GetMaxWorkspaceSize
  bool varies = false;         // the workspace depends on more than shapes
  int before = 0, behind = 0;  // kernels that bring operands to the sizes of the main one, and its result back
};

class Operator {
 public:
  Operator(const char* name, uint64_t* workspace, aclOpExecutor** executor, Since since = Since::Cann81);

  // Operands, in the order of the prototype. Those not optional are refused when null.
  Slot in(const char* name, Tensor tensor, Walk walk = Walk::Packed) {
    return add(name, tensor, Role::Input, walk, true);
  }
  Slot maybe_in(const char* name, Tensor tensor, Walk walk = Walk::Packed) {
    return add(name, tensor, Role::Input, walk, false);
  }
  Slot out(const char* name, Tensor tensor, Walk walk = Walk::Packed) {
    return add(name, tensor, Role::Output, walk, true);
  }
  Slot maybe_out(const char* name, Tensor tensor) { return add(name, tensor, Role::Output, Walk::Packed, false); }
  Slot ref(const char* name, Tensor tensor, Walk walk = Walk::Packed) {
    return add(name, tensor, Role::Ref, walk, true);
  }
  std::vector<Slot> list(const char* name, Tensors tensors, Walk walk, bool needed, Role role = Role::Input);

  // Attributes: part of what a cached phase 1 is known by.
  double number(const char* name, Scalar scalar);
  Dims ints(const char* name, Ints values, bool needed);
  std::string text(const char* value);
  void attributes(std::initializer_list<int64_t> values);
  void attribute(double value);

  // The first of these that does not hold is what phase 1 answers.
  bool valid(bool holds, const std::string& text) { return expect(holds, kInvalid, text); }
  bool tiled(bool holds, const std::string& text) { return expect(holds, kTiling, text); }
  bool present(bool holds, const std::string& text) { return expect(holds, kMissing, text); }
  // The same by a rule of the table, where it holds for the simulated version.
  bool obeys(Rule rule, bool kept, const std::string& found);
  bool rules(Rule rule) const { return holds(rule, machine().cann); }
  bool absent(const char* name, const void* handle);  // an operand that is not modelled must be null
  bool dtype(Slot slot, std::initializer_list<aclDataType> allowed);
  bool same_dtype(Slot slot, Slot as);
  bool rank(Slot slot, int64_t from, int64_t to);
  bool shape(Slot slot, const Dims& expected);

  bool ok() const { return code_ == 0; }
  int status() const { return code_; }
  const View& operator[](Slot slot) const { return plan_.operands[slot.index].view; }
  bool given(Slot slot) const { return (*this)[slot].given; }
  double bytes_of_all() const;
  const std::string& name() const { return plan_.name; }

  // Where a kernel of the vector cores runs: on the AI CPU instead if those have none for its data types.
  Unit vector_or(bool on_core) const { return on_core || !rules(Rule::GroupAiCpu) ? Unit::Vector : Unit::AiCpu; }
  void once(std::string why) { plan_.once = std::move(why); }
  // Where the rule holds: the executor cannot be repeated, and phase 1 is as long every time.
  void never_kept(Rule rule) {
    if (rules(rule)) plan_.unkept = rule;
  }
  void reach(Slot slot, int64_t elements) { plan_.operands[slot.index].view.reach = elements; }
  void only_bound() { plan_.only_bound = true; }
  void varies() { plan_.varies = true; }
  void pads(int before, int behind) { plan_.before = before, plan_.behind = behind; }
  // Makes the executor. Without a count of bytes, every element of every operand moves once.
  int finish(Unit unit, double operations, Compute compute, double bytes = -1, uint64_t scratch = 0);
  // The same for a kernel that all ranks of a communicator run.
  int finish_together(Exchange exchange, Give give, Take take);

 private:
  Slot add(const char* name, Tensor tensor, Role role, Walk walk, bool needed);
  Slot place(const char* name, Tensor tensor, Role role, Walk walk, bool needed, size_t member);
  bool expect(bool holds, int code, const std::string& text);
  void note(const void* data, size_t size) { key_.append(static_cast<const char*>(data), size); }

  Plan plan_;
  std::string key_;
  size_t parameters_ = 0, inputs_ = 0, outputs_ = 0;
  int code_ = 0;
  uint64_t* workspace_;
  aclOpExecutor** executor_;
};

// Phase 2 of the operator of that name.
aclnnStatus enqueue(const char* name, void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream);

// From one view to another of the same shape and element size.
void copy_elements(const View& from, const View& to);

std::map<std::string, int64_t> live_executors();
// The calling thread's cache of phase 1 becomes cold.
void forget_phase1();

}  // namespace ascend_sim

#define ACLNN_PHASE2(name)                                                                                 \
  aclnnStatus name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) { \
    return ascend_sim::enqueue(#name, workspace, workspaceSize, executor, stream);                         \
  }                                                                                                        \
  static_assert(sizeof(#name) > 1)
