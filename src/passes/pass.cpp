#include "passes/pass.h"

namespace reprise {

Status PassContext::has_kernel(const OpSchema& op, std::span<const TensorType> in, const Attrs& attrs) const {
  if (!platform_) return Status::ok();
  Attrs complete = attrs;
  RETURN_IF_ERROR(check_attrs(op, complete));
  ASSIGN_OR_RETURN(const std::vector<TensorType> out, op.infer(OpCall{&op, in, {}, &complete, {}}));
  if (op.has(op_trait::kView)) return Status::ok();
  const OpCall call{&op, in, out, &complete, {}};
  auto entry = platform_->kernels->choose(platform_->device->info().kind, call);
  if (entry.is_ok()) return Status::ok();
  // Every entry's verdict, on one line.
  std::string why = entry.status().message();
  while (!why.empty() && why.back() == '\n') why.pop_back();
  for (size_t at; (at = why.find("\n")) != std::string::npos;) why.replace(at, 1, ";");
  return Status(entry.status().code(), std::move(why));
}

int PassContext::kernels_started(const Node& n) const {
  if (!platform_) return 1;
  const auto in = n.in_types(), out = n.out_types();
  const OpCall call{n.op, in, out, &n.attrs, {}};
  const auto entry = platform_->kernels->choose(platform_->device->info().kind, call);
  if (!entry.is_ok() || !(*entry)->starts) return 1;
  const Result<int> count = (*entry)->starts(call);
  return count.is_ok() ? *count : 1;
}

void PassContext::begin(std::string name, bool required, int64_t allowance) {
  report_ = {};
  report_.name = std::move(name);
  report_.required = required;
  allowance_ = required ? -1 : allowance;
  last_allowed_ = {};
}

std::vector<ParamPart> PassContext::take_parts(const std::string& param, const Shape& shape) {
  for (auto it = derived_.begin(); it != derived_.end(); ++it)
    if (it->name == param) {
      std::vector<ParamPart> parts = std::move(it->parts);
      derived_.erase(it);
      return parts;
    }
  return parts_of_name(param, shape);
}

bool PassContext::may_apply(const Node& at) {
  if (allowance_ == 0) {
    refuse(at, "the bisect limit is reached");
    return false;
  }
  if (allowance_ > 0 && --allowance_ == 0) last_allowed_ = {at.result()->id, at.op->name};
  ++report_.matched;
  return true;
}

void PassContext::applied(const Node& at, std::string what) {
  if (report_.applied.size() < kMaxRemarks) report_.applied.push_back({at.result()->id, std::move(what)});
}

void PassContext::refuse(const Node& at, std::string reason) { refuse(PassRemark{at.result()->id, std::move(reason)}); }

void PassContext::refuse(PassRemark remark) {
  ++report_.refusals;
  if (report_.refused.size() < kMaxRemarks) report_.refused.push_back(std::move(remark));
}

}  // namespace reprise
