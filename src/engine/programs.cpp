#include "engine/programs.h"

#include <algorithm>

#include "base/log.h"
#include "engine/graph_sizes.h"
#include "graph/text.h"

namespace reprise::engine {

std::string_view phase_name(Phase phase) { return phase == Phase::Decode ? "decode" : "prefill"; }

Status ProgramBuilder::prepare_phase(Phase phase, models::TraceOptions trace, int64_t bound) {
  trace.max_tokens = bound;
  if (phase == Phase::Decode) trace.max_sequences = bound;
  ASSIGN_OR_RETURN(Graph graph, models::trace_model(spec_, config_, trace, *platform_.ops));
  if (phase == Phase::Decode && graph_text_.empty()) graph_text_ = print(graph);
  ASSIGN_OR_RETURN(KernelSelection selection, select_kernels(graph, platform_));
  MemoryPlan plan = plan_memory(graph, selection.workspace);
  prepared_.push_back({phase, bound, std::move(graph), std::move(selection), std::move(plan)});
  return Status::ok();
}

Status ProgramBuilder::prepare(const models::TraceOptions& trace) {
  trace_ = trace;
  decode_sizes_ = options_.decode_sizes;
  if (decode_sizes_.empty())
    decode_sizes_ = decode_sizes(trace.max_sequences, options_.padding ? SizeRule::Padded : SizeRule::Exact);
  prefill_sizes_ = options_.prefill_sizes.empty() ? prefill_sizes(trace.max_tokens) : options_.prefill_sizes;
  // The largest bound comes first; it also serves whatever fits no size.
  RETURN_IF_ERROR(prepare_phase(Phase::Decode, trace, trace.max_sequences));
  RETURN_IF_ERROR(prepare_phase(Phase::Prefill, trace, trace.max_tokens));
  if (platform_.device->info().live_sizes) return Status::ok();
  // Elsewhere every size needs a program of its own, as sizes are frozen at capture.
  for (auto it = decode_sizes_.rbegin(); it != decode_sizes_.rend(); ++it)
    if (*it < trace.max_sequences) RETURN_IF_ERROR(prepare_phase(Phase::Decode, trace, *it));
  for (auto it = prefill_sizes_.rbegin(); it != prefill_sizes_.rend(); ++it)
    if (*it < trace.max_tokens) RETURN_IF_ERROR(prepare_phase(Phase::Prefill, trace, *it));
  return Status::ok();
}

size_t ProgramBuilder::arena_bytes() const {
  size_t bytes = 0;
  for (auto& p : prepared_) bytes = std::max(bytes, p.plan.arena_bytes);
  return bytes;
}

void ProgramBuilder::declare_inputs(Staging& staging, const std::unordered_map<std::string, void*>& external) const {
  for (auto& p : prepared_) staging.declare(p.graph, external);
}

Result<std::unique_ptr<CompiledModel>> ProgramBuilder::compile_degrading(Prepared prepared, GraphMode& mode,
                                                                         std::string& reason, const Bindings& b) {
  CompileRequest request{&platform_, b.params, b.staging, b.external, b.arena, mode, options_.split_ops};
  while (true) {
    request.mode = mode;
    auto model = CompiledModel::compile(std::move(prepared.graph), prepared.selection, prepared.plan, request);
    if (model.is_ok() || mode == GraphMode::Eager) return model;
    if (options_.policy == GraphPolicy::Required) return model.status().at("--graph required: capture failed");
    const GraphMode next = mode == GraphMode::Whole ? GraphMode::Piecewise : GraphMode::Eager;
    reason = fmt::format("{} capture failed: {}", graph_mode_name(mode), model.status().message());
    log::warning("{} size {}: {}; going on {} (--graph-{} {} asks for that at once)", phase_name(prepared.phase),
                 prepared.size, reason, graph_mode_name(next), phase_name(prepared.phase),
                 next == GraphMode::Eager ? "off" : "piecewise");
    mode = next;
    // The graph went with the failed program; trace it again.
    models::TraceOptions trace = trace_;
    trace.max_tokens = prepared.size;
    if (prepared.phase == Phase::Decode) trace.max_sequences = prepared.size;
    ASSIGN_OR_RETURN(prepared.graph, models::trace_model(spec_, config_, trace, *platform_.ops));
    ASSIGN_OR_RETURN(prepared.selection, select_kernels(prepared.graph, platform_));
    prepared.plan = plan_memory(prepared.graph, prepared.selection.workspace);
  }
}

Result<std::unique_ptr<StepRunner>> ProgramBuilder::build(Phase phase, const Bindings& bindings) {
  GraphMode mode = phase == Phase::Decode ? options_.decode : options_.prefill;
  std::string reason;
  if (mode == GraphMode::Eager) reason = fmt::format("--graph-{} off", phase_name(phase));
  if (options_.policy == GraphPolicy::Off) {
    mode = GraphMode::Eager;
    reason = "--graph off";
  }
  std::vector<StepRunner::Program> programs;
  for (Prepared& p : prepared_) {
    if (p.phase != phase) continue;
    const int64_t size = p.size;
    ASSIGN_OR_RETURN(auto model, compile_degrading(std::move(p), mode, reason, bindings));
    programs.push_back({size, std::move(model)});
  }
  std::erase_if(prepared_, [&](auto& p) { return p.phase == phase; });
  std::sort(programs.begin(), programs.end(), [](auto& a, auto& b) { return a.size < b.size; });
  if (mode == GraphMode::Eager) {
    // Nothing is captured, so there are no sizes.
    return std::make_unique<StepRunner>(std::string(phase_name(phase)), std::vector<int64_t>{}, std::move(programs),
                                        options_.policy, options_.padding, reason);
  }
  return std::make_unique<StepRunner>(std::string(phase_name(phase)),
                                      phase == Phase::Decode ? decode_sizes_ : prefill_sizes_, std::move(programs),
                                      options_.policy, options_.padding, std::string());
}

}  // namespace reprise::engine
