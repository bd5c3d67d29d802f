#include "engine/step_runner.h"

#include <algorithm>

#include "engine/graph_sizes.h"

namespace reprise::engine {

Result<GraphPolicy> parse_graph_policy(std::string_view name) {
  if (name == "auto") return GraphPolicy::Auto;
  if (name == "off") return GraphPolicy::Off;
  if (name == "required") return GraphPolicy::Required;
  return invalid("--graph \"{}\" is not known; allowed: auto, off, required", name);
}

Result<GraphMode> parse_phase_mode(std::string_view flag, std::string_view name) {
  if (name == "whole") return GraphMode::Whole;
  if (name == "piecewise") return GraphMode::Piecewise;
  if (name == "off") return GraphMode::Eager;
  return invalid("{} \"{}\" is not known; allowed: whole, piecewise, off", flag, name);
}

StepRunner::StepRunner(std::string phase, std::vector<int64_t> sizes, std::vector<Program> programs, GraphPolicy policy,
                       bool padding, std::string reason)
    : phase_(std::move(phase)),
      sizes_(std::move(sizes)),
      programs_(std::move(programs)),
      policy_(policy),
      padding_(padding),
      reason_(std::move(reason)) {
  CHECK(!programs_.empty(), "{} has no program", phase_);
}

CompiledModel& StepRunner::program_for(int64_t size) {
  auto it = std::find_if(programs_.begin(), programs_.end(), [&](const Program& p) { return p.size >= size; });
  return it == programs_.end() ? *programs_.back().model : *it->model;
}

std::string StepRunner::choose(int64_t n, int64_t& size) const {
  size = n;
  if (!reason_.empty()) return reason_;
  const auto chosen = choose_size(sizes_, n);
  if (!chosen) return fmt::format("larger than the largest captured size {}", sizes_.empty() ? 0 : sizes_.back());
  if (!padding_ && *chosen != n) return "padding is off and the size is not captured";
  size = *chosen;
  return {};
}

Status StepRunner::run(int64_t n, const LiveSizes& live, Stream& stream) {
  int64_t size = n;
  const std::string reason = choose(n, size);
  if (!reason.empty() && policy_ == GraphPolicy::Required)
    return invalid("--graph required: a {} step of {} cannot run captured: {}", phase_, n, reason);
  last_ = &program_for(size);
  ++stats_.steps;
  if (reason.empty()) {
    ++stats_.replays;
    stats_.padded_rows += static_cast<uint64_t>(size - n);
  } else {
    ++stats_.fallbacks[reason];
  }
  return last_->run(live, stream, !reason.empty());
}

Result<TensorView> StepRunner::output(std::string_view name) const {
  if (!last_) return error(Code::Internal, "no {} step has run yet", phase_);
  return last_->output(name);
}

}  // namespace reprise::engine
