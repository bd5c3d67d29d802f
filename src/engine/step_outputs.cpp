#include "engine/step_outputs.h"

#include "passes/shard_over_ranks.h"

namespace reprise::engine {

void StepOutputs::open(Device& device, Stream& stream) {
  device_ = &device;
  stream_ = &stream;
}

void StepOutputs::begin() {
  parts_.clear();
  in_parts_ = false;
  drawn_.clear();
}

std::vector<std::string> StepOutputs::names() const {
  std::vector<std::string> names;
  if (!parts_.empty())
    for (const auto& entry : parts_) names.push_back(entry.first);
  else if (program_)
    for (const GraphOutput& o : program_->graph().outputs())
      if (program_->computed(o.name)) names.push_back(o.name);
  return names;
}

Result<TensorView> StepOutputs::get(std::string_view name) const {
  ASSIGN_OR_RETURN(const TensorView v, ask(name));
  RETURN_IF_ERROR(arrived());
  return v;
}

Status StepOutputs::arrived() const { return in_place() ? Status::ok() : stream_->synchronize(); }

bool StepOutputs::in_place() const {
  const DeviceInfo& info = device_->info();
  return info.host_visible && !info.asynchronous;
}

Result<TensorView> StepOutputs::ask(std::string_view name) const {
  if (const TensorView drawn = drawn_.view(name); drawn.data) return drawn;
  if (!parts_.empty()) {
    auto it = parts_.find(name);
    if (it == parts_.end()) return error(Code::NotFound, "the step has no output \"{}\"", name);
    TensorView v = it->second.view;
    v.data = const_cast<uint8_t*>(it->second.bytes.data());
    return v;
  }
  if (!program_) return error(Code::Internal, "no step has run yet");
  return of_program(name);
}

Result<TensorView> StepOutputs::of_program(std::string_view name) const {
  ASSIGN_OR_RETURN(const TensorView v, program_->output(name));
  return fetch(name, v);
}

Result<TensorView> StepOutputs::of_program(const GraphOutput& output) const {
  return fetch(output.name, program_->view(output.value));
}

Result<TensorView> StepOutputs::fetch(std::string_view name, TensorView v) const {
  if (in_place()) return v;
  auto it = copies_.find(name);
  if (it == copies_.end()) it = copies_.emplace(name, HostCopy()).first;
  const size_t bytes = static_cast<size_t>(v.elements()) * size_of(v.dtype);
  ASSIGN_OR_RETURN(v.data, it->second.ask(*device_, *stream_, v.data, bytes));
  return v;
}

Status StepOutputs::add_part(StepOutput output) {
  const HeadMask heads = head_of(output);
  for (const GraphOutput& o : program_->graph().outputs()) {
    const std::string& name = o.name;
    if (name == kOwnLogits) continue;  // hosts have drawn from them
    const HeadMask of = program_->heads_of_output(name);
    if (name != "hidden" && (of == kAllHeads || (of & heads) == 0)) continue;
    ASSIGN_OR_RETURN(const TensorView part, of_program(name));
    RETURN_IF_ERROR(arrived());
    Parts& all = parts_[name];
    const int64_t before = all.bytes.empty() ? 0 : all.view.size[0];
    all.view = part;
    all.view.size[0] += before;
    const auto* begin = static_cast<const uint8_t*>(part.data);
    all.bytes.insert(all.bytes.end(), begin, begin + static_cast<size_t>(part.elements()) * size_of(part.dtype));
  }
  return Status::ok();
}

}  // namespace reprise::engine
