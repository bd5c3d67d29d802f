#include "engine/programs.h"

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "engine/graph_sizes.h"
#include "graph/text.h"
#include "passes/pass_file.h"

namespace reprise::engine {

std::string_view phase_name(Phase phase) { return phase == Phase::Decode ? "decode" : "prefill"; }

PipelineOptions ProgramBuilder::pipeline_for(Phase phase, int64_t bound) const {
  PipelineOptions o = options_.pipeline;
  if (phase != Phase::Decode || options_.fused_decode_max <= 0 || bound <= options_.fused_decode_max) return o;
  // Only the fusions go: packing decides how parameters are stored, and all programs share one set of them.
  const nn::FusedOps fused = nn::fused_ops();
  for (const nn::FusedOp& op : fused.all()) o.passes.leave_out.emplace_back(op.name());
  o.passes.leave_out_reason = fmt::format("decode sizes above {} run unfused", options_.fused_decode_max);
  if (auto text = read_file(o.pass_file); !o.pass_file.empty() && text.is_ok())  // errors come when the passes are made
    if (auto rewrites = parse_rewrites(*text, *platform_.ops); rewrites.is_ok())
      for (const Rewrite& r : *rewrites) o.passes.leave_out.emplace_back(r.name);
  return o;
}

Result<ProgramBuilder::Prepared> ProgramBuilder::prepare_phase(Phase phase, int64_t bound, PipelineReport* report) {
  models::TraceOptions trace = trace_;
  trace.max_tokens = bound;
  if (phase == Phase::Decode) trace.max_sequences = bound;
  // What the passes show is shown once per phase, and apart.
  PipelineOptions pipeline = pipeline_for(phase, bound);
  if (!pipeline.passes.dump_dir.empty()) pipeline.passes.dump_dir += fmt::format("/{}", phase_name(phase));
  if (!report) {
    pipeline.passes.dump_dir.clear();
    pipeline.passes.print_after.clear();
    pipeline.passes.keep_graphs = false;
  }
  ASSIGN_OR_RETURN(Program p, make_program(spec_, config_, trace, pipeline, platform_, plans_));
  if (report) *report = std::move(p.report);
  return Prepared{phase, bound, std::move(p.graph), std::move(p.selection), std::move(p.plan)};
}

Status ProgramBuilder::add(Phase phase, int64_t bound, PipelineReport* report) {
  ASSIGN_OR_RETURN(Prepared p, prepare_phase(phase, bound, report));
  if (!prepared_.empty()) {
    // All programs read one set of parameters.
    const auto& first = prepared_.front().selection.params;
    bool same = first.size() == p.selection.params.size();
    for (const ParamPlan& plan : p.selection.params) {
      auto it = prepared_.front().selection.param_index.find(plan.name);
      same = same && it != prepared_.front().selection.param_index.end() && first[it->second].layout == plan.layout;
    }
    if (!same)
      return error(Code::Internal, "the {} graph of size {} asks for other parameters than the decode graph",
                   phase_name(phase), bound);
  }
  prepared_.push_back(std::move(p));
  return Status::ok();
}

Status ProgramBuilder::prepare(const models::TraceOptions& trace) {
  RETURN_IF_ERROR(prepare_all(trace));
  if (plans_.enabled()) log::info("{}", plans_.summary());
  return Status::ok();
}

Status ProgramBuilder::prepare_all(const models::TraceOptions& trace) {
  trace_ = trace;
  for (const std::string& name : options_.split_ops)
    if (!platform_.ops->find(name)) {
      std::string known;
      for (const OpSchema* op : platform_.ops->all()) known += fmt::format("{}{}", known.empty() ? "" : ", ", op->name);
      return invalid("--split-ops: op \"{}\" is not known; known: {}", name, known);
    }
  decode_sizes_ = options_.decode_sizes;
  if (decode_sizes_.empty())
    decode_sizes_ = decode_sizes(trace.max_sequences, options_.padding ? SizeRule::Padded : SizeRule::Exact);
  prefill_sizes_ = options_.prefill_sizes.empty() ? prefill_sizes(trace.max_tokens) : options_.prefill_sizes;
  // The largest bound comes first; it also serves whatever fits no size.
  RETURN_IF_ERROR(add(Phase::Decode, trace.max_sequences, &decode_report_));
  RETURN_IF_ERROR(add(Phase::Prefill, trace.max_tokens, &prefill_report_));
  packed_ = decode_report_.packed;
  graph_text_ = print(prepared_.front().graph);
  if (platform_.device->info().live_sizes) {
    const int64_t fused = options_.fused_decode_max;
    if (fused > 0 && fused < trace.max_sequences) return add(Phase::Decode, fused, nullptr);
    return Status::ok();
  }
  // Elsewhere every size needs a program of its own, as sizes are frozen at capture.
  for (auto it = decode_sizes_.rbegin(); it != decode_sizes_.rend(); ++it)
    if (*it < trace.max_sequences) RETURN_IF_ERROR(add(Phase::Decode, *it, nullptr));
  for (auto it = prefill_sizes_.rbegin(); it != prefill_sizes_.rend(); ++it)
    if (*it < trace.max_tokens) RETURN_IF_ERROR(add(Phase::Prefill, *it, nullptr));
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
  request.warmups = options_.warmups >= 0 ? options_.warmups : platform_.device->info().live_sizes ? 0 : 2;
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
    // The graph went with the failed program; make it again.
    ASSIGN_OR_RETURN(prepared, prepare_phase(prepared.phase, prepared.size, nullptr));
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
