#include "engine/step_runner.h"

#include <algorithm>

#include "base/log.h"
#include "engine/graph_sizes.h"

namespace reprise::engine {

Result<GraphPolicy> parse_graph_policy(std::string_view name) {
  if (name == "auto") return GraphPolicy::Auto;
  if (name == "off") return GraphPolicy::Off;
  if (name == "required") return GraphPolicy::Required;
  return invalid("`graph` \"{}\" is not known; allowed: auto, off, required", name);
}

Result<GraphMode> parse_phase_mode(std::string_view flag, std::string_view name) {
  if (name == "whole") return GraphMode::Whole;
  if (name == "piecewise") return GraphMode::Piecewise;
  if (name == "off") return GraphMode::Eager;
  return invalid("{} \"{}\" is not known; allowed: whole, piecewise, off", flag, name);
}

StepRunner::StepRunner(StepRunnerParts parts)
    : parts_(std::move(parts)), costs_(parts_.largest), traffic_(parts_.largest) {
  CHECK(parts_.model, "{} has no program", parts_.phase);
  stats_.warmups = parts_.warmups;
  for (const int64_t size : parts_.sizes) stats_.replays_by_size[size] = 0;  // nothing is allocated in a step
  too_large_ = fmt::format("larger than the largest captured size {}", parts_.sizes.empty() ? 0 : parts_.sizes.back());
}

CompiledModel& StepRunner::model(int64_t rows) {
  return replaced_ ? *replaced_ : *(plain(rows) ? parts_.plain : parts_.model);
}

std::vector<const CompiledModel*> StepRunner::models() const {
  std::vector<const CompiledModel*> out;
  for (const auto* m : {&parts_.model, &parts_.plain})
    if (*m) out.push_back(m->get());
  return out;
}

uint64_t StepRunner::captures() const {
  uint64_t n = 0;
  for (const CompiledModel* m : models()) n += m->counters().captures;
  return n;
}

size_t StepRunner::graph_bytes() const {
  size_t n = 0;
  for (const CompiledModel* m : models()) n += m->graph_stats().bytes;
  return n;
}

size_t StepRunner::planned_bytes() const {
  size_t n = 0;
  for (const CompiledModel* m : models()) n = std::max(n, m->plan().arena_bytes);
  return n;
}

int64_t StepRunner::size_of(int64_t n, std::string_view& reason) const {
  if (replaced_) return reason = replaced_reason_, 0;
  if (!parts_.reason.empty()) return reason = parts_.reason, 0;
  const auto chosen = choose_size(parts_.sizes, n);
  if (!chosen) return reason = too_large_, 0;
  if (!parts_.padding && *chosen != n) return reason = "padding is off and the size is not captured", 0;
  if (auto it = quarantined_.find(*chosen); it != quarantined_.end()) return reason = it->second, 0;
  return *chosen;
}

// Known times decide, with a margin so that noise does not. What is not known is not tried: the next size is never bad.
void StepRunner::cheapest(int64_t n, StepPlan& plan) const {
  constexpr double kMargin = 0.9;
  const bool fits = plan.kind == StepPlan::Kind::Replay;
  // A replay at live sizes has no padding. On one stream it runs the kernels of the eager step and nothing else: a
  // measured difference is noise. With several, branches of it run side by side, which an eager step never does;
  // whether a capture has them was decided when it was made (`graph_streams`).
  if (fits && parts_.live_sizes) return;
  std::optional<double> best;
  if (fits) {
    best = costs_.known(StepKind::Replay, plan.size);
    if (!best) return;
  }
  if (auto eager = costs_.estimate(StepKind::Eager, n)) {
    if (!fits) {
      best = eager;
    } else if (parts_.policy != GraphPolicy::Required && *eager < kMargin * *best) {
      best = eager;
      plan = {StepPlan::Kind::Eager, 0, 0, "eager measured faster than the captured size"};
    }
  }
  if (!best) return;
  for (const int64_t first : parts_.sizes) {
    if (first >= n) break;
    std::string_view reason;
    const int64_t second = size_of(n - first, reason);
    if (!second || quarantined_.contains(first)) continue;
    const auto a = costs_.known(StepKind::Replay, first);
    const auto b = costs_.known(StepKind::Replay, parts_.live_sizes ? n - first : second);
    if (!a || !b || *a + *b >= kMargin * *best) continue;
    best = *a + *b;
    plan = {StepPlan::Kind::Split, 0, first, {}};
  }
}

Result<StepPlan> StepRunner::plan(int64_t n) const {
  StepPlan plan;
  plan.size = size_of(n, plan.reason);
  if (plan.size) plan.kind = StepPlan::Kind::Replay;
  if (parts_.reason.empty() && parts_.choose_by_cost) cheapest(n, plan);
  if (plan.kind == StepPlan::Kind::Eager && parts_.policy == GraphPolicy::Required)
    return invalid("`graph` required: a {} step of {} cannot run captured: {}", parts_.phase, n, plan.reason);
  return plan;
}

RowsCost StepRunner::cost(int64_t n) const {
  const auto planned = plan(n);
  if (!planned.is_ok() || planned->kind == StepPlan::Kind::Split) return {};
  const bool nothing_captured = replaced_ || !parts_.reason.empty();
  if (planned->kind == StepPlan::Kind::Eager) return {nothing_captured, costs_.estimate(StepKind::Eager, n)};
  return {true, costs_.estimate(StepKind::Replay, parts_.live_sizes ? n : planned->size)};
}

void StepRunner::count_fallback(std::string_view reason) {
  auto it = stats_.fallbacks.find(reason);
  if (it == stats_.fallbacks.end()) it = stats_.fallbacks.emplace(reason, 0).first;
  ++it->second;
}

// One serves all sizes where graphs read live ones, unless their streams were measured.
int64_t StepRunner::capture_key(const CompiledModel& m, int64_t size, int64_t n) const {
  if (!parts_.live_sizes) return size;
  const CompiledModel::StreamTimes* measured = m.stream_times_of(n);
  return measured ? measured->size : parts_.largest;
}

Status StepRunner::launch(const StepPlan& plan, int64_t n, const LiveSizes& live, Stream& stream, StepOutput output) {
  // What a size was captured from decides; an eager step goes by its own rows.
  CompiledModel& m = model(plan.kind == StepPlan::Kind::Replay ? plan.size : n);
  last_ = &m;
  ++stats_.steps;
  traffic_.add(n);
  if (plan.kind == StepPlan::Kind::Replay) return m.replay(capture_key(m, plan.size, n), live, stream, head_of(output));
  count_fallback(plan.reason);
  return m.launch(live, stream, head_of(output));
}

void StepRunner::finished(const StepPlan& plan, int64_t n, std::optional<double> us) {
  if (plan.kind != StepPlan::Kind::Replay) {
    if (us) costs_.record(StepKind::Eager, n, *us);
    return;
  }
  ++stats_.replays;
  ++stats_.replays_by_size[plan.size];
  stats_.padded_rows += static_cast<uint64_t>(plan.size - n);
  if (us) costs_.record(StepKind::Replay, parts_.live_sizes ? n : plan.size, *us);
}

Status StepRunner::fall_back(const StepPlan& plan, const LiveSizes& live, Stream& stream, StepOutput output,
                             const Status& failed) {
  if (plan.kind != StepPlan::Kind::Replay) return failed;
  // A device may tell a failed replay when the stream is synchronized, which knows neither program nor size.
  const Status placed = failed.at(fmt::format("{}, size {}", parts_.phase, plan.size));
  if (failed.code() == Code::DeviceLost) return placed;
  quarantine(plan.size, fmt::format("a replay of size {} failed: {}", plan.size, failed.message()));
  if (parts_.policy == GraphPolicy::Required) return placed;
  count_fallback(quarantined_[plan.size]);
  CompiledModel& m = model(plan.size);
  last_ = &m;
  return m.run(live, stream, head_of(output));
}

Status StepRunner::run(const StepPlan& plan, int64_t n, const LiveSizes& live, Stream& stream, StepOutput output) {
  const Device& device = model().device();
  const double begin = now_us(device);
  Status done = launch(plan, n, live, stream, output);
  // What was launched before the failure ends before anything else begins.
  if (Status synchronized = stream.synchronize(); done.is_ok()) done = std::move(synchronized);
  if (!done.is_ok()) return fall_back(plan, live, stream, output, done);
  const double us = now_us(device) - begin;
  finished(plan, n, clock_ == StepClock::Host ? std::optional(us) : std::nullopt);
  return Status::ok();
}

void StepRunner::quarantine(int64_t size, std::string reason) {
  log::warning("{} size {} is out of service from now on and runs eagerly: {}", parts_.phase, size, reason);
  quarantined_[size] = std::move(reason);
}

void StepRunner::replace(CompiledModel& program, std::string reason) {
  replaced_ = &program;
  replaced_reason_ = std::move(reason);
}

Status StepRunner::rebind(const std::unordered_map<std::string, void*>& external, const LiveSizes& now) {
  for (const auto* m : {&parts_.model, &parts_.plain})
    if (*m) RETURN_IF_ERROR((*m)->rebind(external, now));
  return Status::ok();
}

Result<TensorView> StepRunner::output(std::string_view name) const {
  if (!last_) return error(Code::Internal, "no {} step has run yet", parts_.phase);
  return last_->output(name);
}

}  // namespace reprise::engine
