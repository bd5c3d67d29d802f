// Checks of replays (--verify-replay), on one rank or several, and what follows from a difference.
//
// The front drives a check: it tells all ranks which program runs with what is staged, and each rank keeps what came of
// it, then compares its own replay with that. Ranks show each other what they found, and all take the same program out
// of service.
#include "base/log.h"
#include "engine/engine.h"
#include "engine/replay_case.h"

namespace reprise::engine {

using ranks::StepMessage;

namespace {

// What is needed to see the difference again.
OrderedJson report_of(const ReplayDifference& d, const CheckRun& replayed, std::span<const StepItem> items,
                      const EngineOptions& options, const DeviceInfo& info, GraphMode mode) {
  OrderedJson report;
  report["what"] = d.what;
  report["max_abs_diff"] = d.max_abs_diff;
  report["elements"] = d.elements;
  report["op"] = d.op;
  report["node"] = d.node;
  if (options.member) report["rank"] = d.rank;
  report["phase"] = kPhases[replayed.phase].name;
  report["size"] = replayed.size;
  report["model"] = options.model_path;
  report["dtype"] = dtype_name(*options.dtype);
  report["device"] = {
      {"kind", device_kind_name(info.kind)}, {"isa", info.isa}, {"order", info.order}, {"ranks", info.threads}};
  report["graph"] = {{"mode", graph_mode_name(mode)},
                     {"passes", fmt::format("{}", fmt::join(options.graph.pipeline.passes.enable, ","))}};
  report["sequences"] = items_json(items);
  return report;
}

}  // namespace

Status Engine::check_here(const CheckRun& run, const LiveSizes& live, StepPlaces places) {
  CompiledModel& model = run.unfused ? check_->shadow(run.phase) : runners_[run.phase]->model(run.size);
  RETURN_IF_ERROR(model.run(live, *stream_, head_of(run.output)));
  outputs_.ran(&model);
  return check_->keep(run.keep, model, run.output, std::move(places), caches_of_step(), *stream_);
}

Status Engine::check_on_all(const CheckRun& run, const LiveSizes& live, std::span<const StepItem> items) {
  if (!options_.member) return check_here(run, live, places_of(items));
  ranks::Member& member = *options_.member;
  staging_.show();
  RETURN_IF_ERROR(publish({.kind = StepMessage::Kind::Check,
                           .phase = static_cast<uint8_t>(run.phase),
                           .output = static_cast<uint8_t>(run.output),
                           .size = run.size,
                           .unfused = run.unfused,
                           .keep = static_cast<uint8_t>(run.keep),
                           .live = live},
                          staging_.shared()));
  if (Status ran = check_here(run, live, places_of(items)); !ran.is_ok()) {
    member.abort(fmt::format("rank 0: {}", ran.message()));
    return member.lost();
  }
  return member.await_followers();
}

// What every rank found, by rank; empty where nothing differs.
Result<std::vector<std::string>> Engine::compare_here() {
  ASSIGN_OR_RETURN(const auto difference, check_->compare(*outputs_.program(), caches_of_step(), *stream_));
  const std::string mine = difference ? difference->text() : std::string();
  if (!options_.member) return std::vector<std::string>{mine};
  return options_.member->show(mine);
}

// The difference of the first rank that has one.
Result<std::optional<ReplayDifference>> Engine::compare_on_all(size_t phase, StepOutput output) {
  if (options_.member)
    RETURN_IF_ERROR(publish({.kind = StepMessage::Kind::Compare,
                             .phase = static_cast<uint8_t>(phase),
                             .output = static_cast<uint8_t>(output)}));
  const auto found = compare_here();
  if (!found.is_ok()) {
    if (options_.member) options_.member->abort(fmt::format("rank 0: {}", found.status().message()));
    return options_.member ? options_.member->lost() : found.status();
  }
  if (options_.member) RETURN_IF_ERROR(options_.member->await_followers());
  return ReplayDifference::first_of(*found);
}

void Engine::retire_here(size_t phase, int64_t size, bool fusion, const std::string& reason) {
  if (!fusion) return runners_[phase]->quarantine(size, reason);
  for (size_t p = 0; p < phases().size(); ++p) runners_[p]->replace(check_->shadow(p), reason);
}

Status Engine::retire_on_all(size_t phase, int64_t size, bool fusion, const std::string& reason) {
  retire_here(phase, size, fusion, reason);
  if (!options_.member) return Status::ok();
  return tell_followers(
      {.kind = StepMessage::Kind::Retire, .phase = static_cast<uint8_t>(phase), .size = size, .unfused = fusion});
}

Status Engine::follow_check(const StepMessage& m) {
  if (m.phase >= phases().size() || m.output > static_cast<uint8_t>(StepOutput::Drawn) ||
      m.keep > static_cast<uint8_t>(CheckRun::Keep::Unfused))
    return error(Code::Internal, "a check of phase {} with output {}, of which {} is kept", m.phase, m.output, m.keep);
  if (m.kind == StepMessage::Kind::Retire && m.unfused == 0) {
    retire_here(m.phase, m.size, false, "as the front says");
    return Status::ok();
  }
  if (!check_) return error(Code::Internal, "a check of a rank that makes none");
  if (m.kind == StepMessage::Kind::Retire) {
    retire_here(m.phase, m.size, true, "as the front says");
    return Status::ok();
  }
  if (m.kind == StepMessage::Kind::Compare)
    return outputs_.program() ? compare_here().status() : error(Code::Internal, "no step to compare");
  RETURN_IF_ERROR(rebind_if_moved());
  staging_.take();
  stage().see_part(options_.graph.pipeline.ranks.part(), pool_sizes());
  const CheckRun run{m.phase, m.size, m.unfused != 0, static_cast<StepOutput>(m.output),
                     static_cast<CheckRun::Keep>(m.keep)};
  ASSIGN_OR_RETURN(StepPlaces places, staged_places(stage(), m.live, pool_sizes()));
  RETURN_IF_ERROR(check_here(run, m.live, std::move(places)));
  return stream_->synchronize();
}

Status Engine::begin_check(const StepPlan& plan, size_t phase, std::span<const StepItem> items, StepOutput output) {
  ++counters_.checked;
  return check_->begin({.phase = phase, .size = plan.size, .output = output}, items, pool_sizes(), stage(),
                       [&](const CheckRun& run, const LiveSizes& live) { return check_on_all(run, live, items); });
}

Status Engine::end_check(const StepPlan& plan, size_t phase, std::span<const StepItem> items, StepOutput output) {
  ASSIGN_OR_RETURN(const auto difference, compare_on_all(phase, output));
  if (!difference) return Status::ok();
  return recover_mismatch(*difference, {.phase = phase, .size = plan.size, .output = output}, items);
}

// A replay differed: the caches are made right, what was wrong goes out of service, and what happened is written down.
// Where the same program is wrong without a replay too, that is all programs which the passes have made.
Status Engine::recover_mismatch(const ReplayDifference& d, const CheckRun& replayed, std::span<const StepItem> items) {
  ++counters_.differences;
  OrderedJson report =
      report_of(d, replayed, items, options_, platform_.device->info(), runners_[replayed.phase]->mode());
  report["step"] = counters_.steps + 1;
  const auto launch = [&](const CheckRun& run, const LiveSizes& live) { return check_on_all(run, live, items); };
  // Where the unfused run is only near, what was right before the step was right by the fused one's bits.
  CheckRun right = replayed;
  right.unfused = check_->bound().exact() || d.fusion;
  const auto recover = [&] {
    return ReplayCheck::recover(right, items, pool_sizes(), max_step_tokens(), stage(), launch);
  };
  RETURN_IF_ERROR(recover());
  bool fusion = d.fusion;
  if (check_->bound().exact()) {
    // Whether the program launched one by one is wrong as well: then the fault lies in what the passes made.
    ASSIGN_OR_RETURN(const LiveSizes live, stage().fill(items, pool_sizes()));
    RETURN_IF_ERROR(launch(replayed, live));
    ASSIGN_OR_RETURN(const auto again, compare_on_all(replayed.phase, replayed.output));
    fusion = again.has_value();
    if (fusion) RETURN_IF_ERROR(recover());
  }
  report["fusion"] = fusion;
  auto written = write_replay_report(options_.graph.report_dir, static_cast<int64_t>(counters_.steps) + 1, report);
  counters_.last_report = written.is_ok() ? *written : "";
  const std::string where = options_.member ? fmt::format(" on rank {}", d.rank) : std::string();
  const std::string by = d.op.empty() ? std::string() : fmt::format(" (written by {}, node {})", d.op, d.node);
  const std::string reason =
      fmt::format("{} in step {}{}: {}{}", fusion ? "fusions differed" : "replay differed from eager",
                  counters_.steps + 1, where, d.what, by);
  RETURN_IF_ERROR(retire_on_all(replayed.phase, replayed.size, fusion, reason));
  if (fusion)
    log::warning(
        "{}; every step runs eagerly and unfused from now on; earlier answers may be wrong, and so may what is cached "
        "of them: restart with `passes` none, or without the pass at fault (docs/debugging.md finds it)",
        reason);
  if (written.is_ok())
    log::warning("report: {}; to reproduce: reprise graph verify --model-path {} --case {}", *written,
                 options_.model_path, *written);
  else
    log::warning("the report could not be written: {}", written.status().message());
  return Status::ok();
}

}  // namespace reprise::engine
