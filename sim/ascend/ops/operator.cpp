// Phase 1: noting and checking operands, and the executor at its end.
#include <atomic>
#include <cstdlib>
#include <unordered_set>
#include <utility>

#include "ascend/ops/executor.h"
#include "ascend/ops/executors.h"

namespace ascend_sim {

namespace {

constexpr uint64_t kCopyAlignment = 512;

uint64_t aligned(uint64_t bytes) { return (bytes + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment; }

// What this thread has tiled already. The real cache forgets the least used entry; forgetting all is as honest.
std::unordered_set<std::string>& known() {
  thread_local std::unordered_set<std::string> keys;
  return keys;
}

size_t cache_limit() {
  const char* text = std::getenv("ACLNN_CACHE_LIMIT");
  const long limit = text ? std::strtol(text, nullptr, 10) : 10000;
  return limit < 0 ? 0 : static_cast<size_t>(limit);
}

std::atomic<int64_t>& calls_to_refuse() {
  static std::atomic<int64_t> calls = 0;
  return calls;
}

}  // namespace

void restart_refusals() { calls_to_refuse() = 0; }

void forget_phase1() { known().clear(); }

Operator::Operator(const char* name, uint64_t* workspace, aclOpExecutor** executor, Since since)
    : workspace_(workspace), executor_(executor) {
  plan_.name = name;
  key_ = name;
  key_.push_back('\0');
  if (workspace == nullptr || executor == nullptr)
    expect(false, kNullPointer, "workspaceSize and executor must be given");
  if (since == Since::Cann85) obeys(Rule::SymbolOf85, false, plan_.name);
  if (since == Since::Cann91) obeys(Rule::SymbolOf91, false, plan_.name);
  // 561112: no kernel in the installed packages.
  expect(machine().has_kernels, 561112, "no kernel of this operator is installed (ASCEND_SIM_FAULT=no_kernels)");
  if (machine().refuses == name && ++calls_to_refuse() == machine().refuses_at)
    tiled(false, "fault on demand (ASCEND_SIM_FAULT)");
}

bool Operator::obeys(Rule rule, bool kept, const std::string& found) {
  if (kept || !rules(rule) || code_ != 0) return code_ == 0;
  return expect(false, text_of(rule).code, refusal(rule, found));
}

bool Operator::expect(bool holds, int code, const std::string& text) {
  if (!holds && code_ == 0) code_ = fail(code, plan_.name + ": " + text);
  return holds && code_ == 0;
}

Slot Operator::add(const char* name, Tensor tensor, Role role, Walk walk, bool needed) {
  const Slot slot = place(name, tensor, role, walk, needed, 0);
  ++parameters_;
  inputs_ += role != Role::Output;
  outputs_ += role != Role::Input;
  return slot;
}

Slot Operator::place(const char* name, Tensor tensor, Role role, Walk walk, bool needed, size_t member) {
  Operand operand{name, role, walk, {}, parameters_, inputs_, outputs_, member};
  if (tensor == nullptr) {
    if (needed) expect(false, kNullPointer, std::string(name) + " is null");
  } else if (!live(tensor)) {
    valid(false, std::string(name) + " is a tensor that was destroyed or never created");
  } else {
    operand.view = tensor->view;
    operand.tensor = tensor;
    operand.serial = tensor->serial;
    const View& view = operand.view;
    valid(view.element() > 0, std::string(name) + " is " + name_of(view.dtype) + ", which no kernel here has");
    valid(view.rank() <= 8,
          std::string(name) + " has " + std::to_string(view.rank()) + " dimensions; at most 8 may be");
    valid(view.address != nullptr || view.count() == 0, std::string(name) + " has no device address");
    const int64_t head[] = {view.rank(), view.dtype, view.format};
    note(head, sizeof(head));
    note(view.shape.data(), view.shape.size() * sizeof(int64_t));
    note(view.strides.data(), view.strides.size() * sizeof(int64_t));
  }
  key_.push_back(tensor ? 'T' : '-');
  plan_.operands.push_back(std::move(operand));
  return {plan_.operands.size() - 1};
}

std::vector<Slot> Operator::list(const char* name, Tensors tensors, Walk walk, bool needed, Role role) {
  std::vector<Slot> slots;
  if (tensors == nullptr) {
    if (needed) expect(false, kNullPointer, std::string(name) + " is null");
  } else if (!live(tensors)) {
    valid(false, std::string(name) + " is a list that was destroyed or never created");
  } else {
    for (size_t i = 0; i < tensors->tensors.size(); ++i) {
      const std::string member = std::string(name) + "[" + std::to_string(i) + "]";
      slots.push_back(place(member.c_str(), tensors->tensors[i], role, walk, true, i));
    }
  }
  ++parameters_;
  inputs_ += role != Role::Output;
  outputs_ += role != Role::Input;
  return slots;
}

double Operator::number(const char* name, Scalar scalar) {
  if (scalar == nullptr) return expect(false, kNullPointer, std::string(name) + " is null"), 0;
  if (!valid(live(scalar), std::string(name) + " is a scalar that was destroyed or never created")) return 0;
  attribute(scalar->number);
  return scalar->number;
}

Dims Operator::ints(const char* name, Ints values, bool needed) {
  if (values == nullptr) {
    if (needed) expect(false, kNullPointer, std::string(name) + " is null");
    key_.push_back('-');
    return {};
  }
  if (!valid(live(values), std::string(name) + " is an array that was destroyed or never created")) return {};
  note(values->values.data(), values->values.size() * sizeof(int64_t));
  key_.push_back('A');
  return values->values;
}

std::string Operator::text(const char* value) {
  const std::string copy = value ? value : "";
  key_ += copy;
  key_.push_back('\0');
  return copy;
}

void Operator::attributes(std::initializer_list<int64_t> values) {
  note(values.begin(), values.size() * sizeof(int64_t));
}

void Operator::attribute(double value) { note(&value, sizeof(value)); }

bool Operator::absent(const char* name, const void* handle) {
  return tiled(handle == nullptr, std::string(name) + " must be null: what it asks for is not simulated");
}

bool Operator::dtype(Slot slot, std::initializer_list<aclDataType> allowed) {
  const Operand& operand = plan_.operands[slot.index];
  if (!operand.view.given) return true;
  std::string names;
  for (const aclDataType type : allowed) {
    if (operand.view.dtype == type) return true;
    names += (names.empty() ? "" : ", ") + name_of(type);
  }
  return valid(false, operand.name + " is " + name_of(operand.view.dtype) + "; it may be " + names);
}

bool Operator::same_dtype(Slot slot, Slot as) {
  const Operand &operand = plan_.operands[slot.index], &other = plan_.operands[as.index];
  if (!operand.view.given || !other.view.given) return true;
  return valid(operand.view.dtype == other.view.dtype, operand.name + " is " + name_of(operand.view.dtype) + " but " +
                                                           other.name + " is " + name_of(other.view.dtype));
}

bool Operator::rank(Slot slot, int64_t from, int64_t to) {
  const Operand& operand = plan_.operands[slot.index];
  if (!operand.view.given) return true;
  return valid(operand.view.rank() >= from && operand.view.rank() <= to,
               operand.name + " has shape " + text_of(operand.view.shape) + "; it needs " + std::to_string(from) +
                   (from == to ? "" : " to " + std::to_string(to)) + " dimensions");
}

bool Operator::shape(Slot slot, const Dims& expected) {
  const Operand& operand = plan_.operands[slot.index];
  if (!operand.view.given) return true;
  return valid(operand.view.shape == expected,
               operand.name + " has shape " + text_of(operand.view.shape) + "; it needs " + text_of(expected));
}

double Operator::bytes_of_all() const {
  double bytes = 0;
  for (const Operand& operand : plan_.operands) {
    if (operand.view.given) bytes += operand.view.bytes() * (operand.role == Role::Ref ? 2 : 1);
  }
  return bytes;
}

int Operator::finish(Unit unit, double operations, Compute compute, double bytes, uint64_t scratch) {
  if (!ok()) {
    spend_host(PhaseCosts::kCached);
    return code_;
  }
  for (const Operand& operand : plan_.operands) {
    const View& view = operand.view;
    if (!view.given || operand.walk == Walk::Strides || view.packed()) continue;
    plan_.copies += aligned(static_cast<uint64_t>(view.bytes()));
    if (operand.role != Role::Input && plan_.once.empty()) plan_.once = operand.name + " has gaps and is copied back";
  }
  plan_.scratch = aligned(scratch);
  plan_.unit = unit;
  plan_.work = {operations, bytes < 0 ? bytes_of_all() : bytes};
  plan_.compute = std::move(compute);
  const uint64_t workspace = plan_.copies + plan_.scratch;
  if (known().size() >= cache_limit()) known().clear();
  const bool cold = plan_.unkept || known().insert(key_).second;
  spend_host(!cold ? PhaseCosts::kCached : updating() ? PhaseCosts::kRetiled : PhaseCosts::kCold);
  *workspace_ = workspace;
  *executor_ = keep(std::move(plan_));
  return 0;
}

int Operator::finish_together(Exchange exchange, Give give, Take take) {
  plan_.exchange = std::move(exchange);
  plan_.give = std::move(give);
  plan_.take = std::move(take);
  return finish(Unit::Mixed, 0, {});
}

}  // namespace ascend_sim
