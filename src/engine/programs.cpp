#include "engine/programs.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/graph_sizes.h"
#include "engine/stream_choice.h"
#include "graph/text.h"
#include "passes/pass_file.h"

namespace reprise::engine {
namespace {

// The models that a capture of this size is made of. A size that serves all is captured in every model.
std::vector<CompiledModel*> models_of(int64_t size, const StepRunnerParts& parts) {
  std::vector<CompiledModel*> out;
  const bool plain = parts.fused_max > 0 && size > parts.fused_max;
  if (!plain || parts.live_sizes) out.push_back(parts.model.get());
  if (plain) out.push_back(parts.plain.get());
  return out;
}

void cut_all(GraphMode mode, const StepRunnerParts& parts) {
  for (const auto* m : {&parts.model, &parts.plain})
    if (*m) (*m)->cut(mode);
}

// The device has room for `room` sizes. Small steps gain most, so it is not given to the largest alone: what is
// captured goes, and the sizes that shall be are answered, largest first.
std::vector<int64_t> drop_sizes(const PhaseSpec& phase, StepRunnerParts& parts, size_t room, const Status& why) {
  for (const int64_t size : parts.sizes)
    for (CompiledModel* m : models_of(size, parts)) m->drop_capture(size);
  const std::vector<int64_t> all = std::exchange(parts.sizes, spread_sizes(parts.sizes, room));
  const std::string reason = fmt::format("there is room for {} of {} sizes, which are spread over all: {}",
                                         parts.sizes.size(), all.size(), why.message());
  for (auto size = all.rbegin(); size != all.rend(); ++size)
    if (!std::binary_search(parts.sizes.begin(), parts.sizes.end(), *size)) parts.dropped.push_back({*size, reason});
  log::warning("{}: {} (`graph_{}_sizes` names others)", phase.name, reason, phase.settings());
  return {parts.sizes.rbegin(), parts.sizes.rend()};
}

// Whether there were any to drop.
bool drop_streams(std::string_view phase, StepRunnerParts& parts, const Status& why) {
  bool dropped = false;
  for (const auto* m : {&parts.model, &parts.plain}) {
    if (!*m || !(*m)->has_streams()) continue;
    (*m)->use_one_stream(why.message());
    dropped = true;
    for (const int64_t size : parts.sizes) (*m)->drop_capture(size);
  }
  if (dropped)
    log::warning(
        "{}: captured on one stream: {} (`graph_streams` 1 without `graph_prefetch_weights` avoids the attempt)", phase,
        why.message());
  return dropped;
}

// The inputs that lie in a pool with `entries` entries, and the bytes of an entry.
std::vector<std::pair<std::string, size_t>> pool_inputs(const Graph& graph, SymbolId entries) {
  std::vector<std::pair<std::string, size_t>> out;
  for (const Node* n = graph.first(); n; n = n->next) {
    if (!n->is_input()) continue;
    const TensorType& type = n->result()->type;
    if (type.shape.rank() == 0 || type.shape[0].symbol != entries) continue;
    LiveSizes one;
    one.value[entries] = 1;
    out.emplace_back(n->attrs.text("name"), static_cast<size_t>(type.shape.elements(one)) * size_of(type.dtype));
  }
  return out;
}

}  // namespace

// All programs read one set of parameters, so packing, which decides how they are stored, is the same in all.
PipelineOptions ProgramBuilder::pipeline_for(size_t phase, Kind kind) const {
  PipelineOptions o = options_.pipeline;
  if (kind == Kind::Shadow) {
    o.passes.enable = {"none"};
    for (const PassReport& p : reports_.front().passes)
      if (p.name == "pack_parallel_linears" && p.skipped.empty()) o.passes.enable = {p.name};
  }
  if (kind == Kind::Plain) {
    const nn::FusedOps fused = nn::fused_ops();
    for (const nn::FusedOp& op : fused.all()) o.passes.leave_out.emplace_back(op.name());
    o.passes.leave_out_reason = fmt::format("decode sizes above {} run unfused", options_.fused_decode_max);
    if (o.pass_file)  // errors come when they are made
      if (auto rewrites = parse_rewrites(o.pass_file->text, *platform_.ops); rewrites.is_ok())
        for (const Rewrite& r : *rewrites) o.passes.leave_out.emplace_back(r.name);
  }
  // Where the host reads hidden rows in place it looks at them itself. Ranks have their own ways to a token.
  const DeviceInfo& device = platform_.device->info();
  o.finite_rows = (device.asynchronous || !device.host_visible) && config_.generates() && o.ranks.size == 1;
  if (!o.passes.dump_dir.empty()) o.passes.dump_dir += fmt::format("/{}", kPhases[phase].name);
  return o;
}

Status ProgramBuilder::join_params(const Program& p, Kind kind, size_t phase) {
  if (prepared_.empty()) {
    params_ = p.selection.params;
    derived_ = p.report.derived;
    return Status::ok();
  }
  const auto known = [&](const ParamPlan& plan) {
    return std::any_of(params_.begin(), params_.end(),
                       [&](const ParamPlan& k) { return k.name == plan.name && k.layout == plan.layout; });
  };
  std::vector<ParamPlan> more;
  for (const ParamPlan& plan : p.selection.params)
    if (!known(plan)) more.push_back(plan);
  const bool vectors = std::all_of(more.begin(), more.end(), [&](const ParamPlan& plan) {
    return plan.type.shape.rank() == 1 &&
           std::none_of(params_.begin(), params_.end(), [&](const ParamPlan& k) { return k.name == plan.name; });
  });
  const bool shadow = kind == Kind::Shadow;
  if (shadow ? !vectors : !more.empty() || p.selection.params.size() != params_.size())
    return error(Code::Unsupported, "the {}{} graph asks for other parameters than the decode graph{}{}",
                 kind == Kind::Fused ? "" : "unfused ", kPhases[phase].name,
                 more.empty() ? "" : fmt::format(", as {}", more.front().name),
                 shadow ? "; `verify_replay` needs all of pack_parallel_linears or none of it" : "");
  params_.insert(params_.end(), more.begin(), more.end());
  for (const DerivedParam& d : p.report.derived)
    if (std::none_of(derived_.begin(), derived_.end(), [&](const DerivedParam& k) { return k.name == d.name; }))
      derived_.push_back(d);
  return Status::ok();
}

Status ProgramBuilder::add(size_t phase, Kind kind, PipelineReport* report) {
  models::TraceOptions trace = trace_;
  trace.max_tokens = bound(phase);
  if (kPhases[phase].drafts) trace.max_logit_rows = trace.max_tokens;
  trace.images &= phase == kAnyPhase;  // a step of single tokens has none
  PipelineOptions pipeline = pipeline_for(phase, kind);
  pipeline.greedy = config_.generates();
  pipeline.expand_latents &= phase == kAnyPhase;  // a single token never is
  // A prompt's launches fill the device by themselves.
  if (kPhases[phase].each == 0) pipeline.streams = 1, pipeline.prefetch_bytes = 0;
  // What the passes show is shown once per phase.
  if (!report) {
    pipeline.passes.print_after.clear();
    pipeline.passes.dump_dir.clear();
    pipeline.passes.keep_graphs = false;
  }
  ASSIGN_OR_RETURN(Program p, make_program(spec_, config_, trace, pipeline, platform_, plans_));
  RETURN_IF_ERROR(join_params(p, kind, phase));
  if (report) *report = p.report;
  prepared_.push_back({phase, kind, std::move(p.graph), std::move(p.selection), std::move(p.plan)});
  return Status::ok();
}

Status ProgramBuilder::check_split_ops() const {
  for (const std::string& name : options_.split_ops) {
    if (const OpSchema* op = platform_.ops->find(name)) {
      if (op->name == name) continue;
      return invalid("`split_ops`: op \"{}\" is now named \"{}\"", name, op->name);
    }
    std::string known;
    for (const OpSchema* op : platform_.ops->all()) known += fmt::format("{}{}", known.empty() ? "" : ", ", op->name);
    return invalid("`split_ops`: op \"{}\" is not known; known: {}", name, known);
  }
  return Status::ok();
}

Status ProgramBuilder::prepare(const models::TraceOptions& trace) {
  trace_ = trace;
  prepared_.clear();
  verify_list_ = verify_list();
  verify_ = config_.generates() && !platform_.device->info().live_sizes && !verify_list_.empty() &&
            (trace_.most_drafts > 0 || !models::step_of(spec_, config_, trace_).has_states());
  RETURN_IF_ERROR(check_split_ops());
  const std::string& no_prefetch = platform_.device->info().read_ahead.refusal;
  if (options_.pipeline.prefetch_bytes > 0 && !no_prefetch.empty())
    log::warning("`graph_prefetch_weights` has no effect: {}", no_prefetch);
  RETURN_IF_ERROR(prepare_all());
  if (plans_.enabled()) log::info("{}", plans_.summary());
  return Status::ok();
}

Status ProgramBuilder::try_decode(models::TraceOptions trace) const {
  trace.max_tokens = trace.max_sequences;
  trace.images = false;
  PipelineOptions pipeline = options_.pipeline;
  pipeline.expand_latents = false;
  pipeline.passes.print_after.clear();
  pipeline.passes.dump_dir.clear();
  pipeline.passes.keep_graphs = false;
  PlanCache none("");
  return make_program(spec_, config_, trace, pipeline, platform_, none).status();
}

Status ProgramBuilder::prepare_all() {
  for (size_t p = 0; p < phases(); ++p) RETURN_IF_ERROR(add(p, Kind::Fused, &reports_[p]));
  for (size_t p = 0; p < phases(); ++p)
    if (has_plain(p)) RETURN_IF_ERROR(add(p, Kind::Plain, nullptr));
  graph_text_ = print(prepared_.front().graph);
  return Status::ok();
}

Status ProgramBuilder::prepare_shadows() {
  for (size_t p = 0; p < phases(); ++p) RETURN_IF_ERROR(add(p, Kind::Shadow, nullptr));
  return Status::ok();
}

size_t ProgramBuilder::arena_bytes() const {
  size_t bytes = 0;
  for (auto& p : prepared_) bytes = std::max(bytes, p.plan.arena_bytes);
  return bytes;
}

size_t ProgramBuilder::exchange_bytes() const {
  size_t bytes = 0;
  for (auto& p : prepared_) bytes = std::max(bytes, p.plan.exchange_bytes);
  return bytes;
}

std::string ProgramBuilder::exchange_text() const {
  std::string all;
  size_t collectives = 0;
  for (auto& p : prepared_)
    for (const PlannedStorage& s : p.plan.storages)
      if (s.exchanged) {
        all += fmt::format("{} {} {};", s.root->def->op->name, s.bytes, s.offset);
        ++collectives;
      }
  return fmt::format("{} collectives in {} bytes, plan {:016x}", collectives, exchange_bytes(),
                     XXH3_64bits(all.data(), all.size()));
}

kv::KvShape ProgramBuilder::caches() const {
  kv::KvShape shape;
  for (auto& [name, bytes] : pool_inputs(prepared_.front().graph, models::kPoolPages))
    shape.caches.push_back({name, bytes});
  return shape;
}

std::vector<kv::StateCache> ProgramBuilder::states() const {
  std::vector<kv::StateCache> states;
  for (auto& [name, bytes] : pool_inputs(prepared_.front().graph, models::kStateSlots)) states.push_back({name, bytes});
  return states;
}

std::vector<std::pair<std::string, TensorType>> ProgramBuilder::adapters() const {
  std::vector<std::pair<std::string, TensorType>> inputs;
  const Graph& graph = prepared_.front().graph;
  for (const Node* n = graph.first(); n; n = n->next)
    if (n->is_input() && n->attrs.text("name").starts_with(kLoraPrefix))
      inputs.emplace_back(n->attrs.text("name"), n->result()->type);
  return inputs;
}

size_t ProgramBuilder::bytes_per_step() const {
  const Prepared& decode = prepared_.front();
  size_t bytes = 0;
  for (const ParamPlan& p : decode.selection.params) {
    const Node* source = decode.graph.find_param(p.name);
    const auto& uses = source->result()->uses;
    if (!std::all_of(uses.begin(), uses.end(), [](const Use& u) { return u.declared().role == OperandRole::Table; }))
      bytes += p.bytes;
  }
  return bytes;
}

size_t ProgramBuilder::expert_bytes() const {
  const Prepared& decode = prepared_.front();
  size_t bytes = 0;
  for (const ParamPlan& p : decode.selection.params) {
    if (p.type.shape.rank() != 3) continue;
    const Use& use = decode.graph.find_param(p.name)->result()->uses.front();
    if (use.user->op->has(OperandRole::Starts)) bytes += p.bytes;
  }
  return bytes;
}

bool ProgramBuilder::returns(std::string_view output) const {
  const auto& outputs = prepared_.front().graph.outputs();
  return std::any_of(outputs.begin(), outputs.end(), [&](const GraphOutput& o) { return o.name == output; });
}

int64_t ProgramBuilder::pooled_size() const {
  for (const GraphOutput& o : prepared_.front().graph.outputs())
    if (o.name == output_name(StepOutput::Pooled)) return o.value->type.shape[1].factor;
  return 0;
}

void ProgramBuilder::declare_inputs(Staging& staging, const std::unordered_map<std::string, void*>& external) const {
  for (auto& p : prepared_) staging.declare(p.graph, external);
}

// A step with drafts is no larger than any other one.
std::vector<int64_t> ProgramBuilder::verify_list() const {
  VerifyRows rows = options_.verify;
  const int64_t all = rows.each * trace_.max_sequences;
  rows.most = std::min(rows.most > 0                         ? rows.most
                       : rows.most == VerifyRows::kSequences ? std::max<int64_t>(2, trace_.max_sequences)
                                                             : all,
                       trace_.max_tokens);
  return verify_sizes(rows, trace_.max_sequences, options_.decode_sizes, options_.padding);
}

bool ProgramBuilder::cut_verify_rows(VerifyRows& rows) const {
  size_t own = 0, others = 0;
  for (const Prepared& p : prepared_) {
    size_t& bytes = kPhases[p.phase].drafts ? own : others;
    bytes = std::max(bytes, p.plan.arena_bytes);
  }
  if (own <= others || bound(kVerifyPhase) < 4 || options_.policy == GraphPolicy::Required) return false;
  const int64_t before = bound(kVerifyPhase);
  rows.most = before / 2;
  log::warning(
      "steps with drafts of more than {} of {} rows are left out: their activations of {:.1f} MB do not fit "
      "`mem_fraction_static` (`speculative_max_rows` {} avoids this)",
      rows.most, before, static_cast<double>(own) / 1e6, rows.most);
  return true;
}

std::string ProgramBuilder::verify_summary() const {
  const auto verify =
      std::find_if(prepared_.begin(), prepared_.end(), [](const Prepared& p) { return kPhases[p.phase].drafts; });
  const auto& outputs = verify->graph.outputs();
  const auto logits = std::find_if(outputs.begin(), outputs.end(),
                                   [](const GraphOutput& o) { return o.name == output_name(StepOutput::Logits); });
  const LiveSizes bounds = verify->graph.bounds();
  const auto bytes = logits == outputs.end() ? 0
                                             : static_cast<double>(logits->value->type.shape.elements(bounds)) *
                                                   static_cast<double>(size_of(logits->value->type.dtype));
  return fmt::format(
      "steps with drafts: {} sizes up to {} rows, activations {:.1f} MB, of which logits {:.1f} MB "
      "(`speculative_max_rows` bounds them)",
      verify_list_.size(), bound(kVerifyPhase), static_cast<double>(verify->plan.arena_bytes) / 1e6, bytes / 1e6);
}

std::vector<int64_t> ProgramBuilder::sizes_of(size_t phase) const {
  const PhaseSpec& p = kPhases[phase];
  if (p.drafts) return verify_list_;
  const auto& given = options_.*p.sizes;
  return given.empty() ? p.sizes_by_rule(bound(phase), options_.padding ? SizeRule::Padded : SizeRule::Exact) : given;
}

int64_t ProgramBuilder::most_padding() const {
  int64_t most = 0;
  if (!options_.padding) return most;
  for (const Prepared& p : prepared_) {
    int64_t before = 0;
    for (const int64_t size : sizes_of(p.phase)) {
      most = std::max(most, size - before - 1);
      before = size;
    }
  }
  return most;
}

LiveSizes ProgramBuilder::frozen(size_t phase, int64_t size, const PoolSizes& pools) const {
  const PhaseSpec& p = kPhases[phase];
  const int64_t rows = p.sequences(size, trace_.max_sequences);
  LiveSizes live;
  live.value[models::kTokens] = size;
  live.value[models::kSequences] = rows;
  live.value[models::kCuSeqlens] = rows + 1;
  live.value[models::kLogitRows] = p.each > 0 ? size : trace_.max_sequences;
  live.value[models::kPoolPages] = pools.all_pages();
  live.value[models::kStateSlots] = pools.slots;
  live.value[models::kSourcePages] = pools.source_pages + 1;
  live.value[models::kSharedTokens] = models::in_equal_shares(size, trace_.token_shares);
  return live;
}

Result<std::unique_ptr<CompiledModel>> ProgramBuilder::compile(size_t phase, Kind kind, const Bindings& b) {
  auto it = std::find_if(prepared_.begin(), prepared_.end(),
                         [&](const Prepared& p) { return p.phase == phase && p.kind == kind; });
  CHECK(it != prepared_.end(), "the {} program was not prepared", kPhases[phase].name);
  CompileRequest request;
  request.platform = &platform_;
  request.params = b.params;
  request.staging = b.staging;
  request.external = b.external;
  request.arena = b.arena;
  request.exchange = b.exchange;
  request.split_ops = options_.split_ops;
  request.arena_epoch = b.arena_epoch;
  request.heads = {std::begin(kStepHeads), std::end(kStepHeads)};
  request.size_symbols = {models::kTokens, models::kSharedTokens};
  if (kPhases[phase].each > 0)
    request.size_symbols = {models::kTokens, models::kSharedTokens, models::kSequences, models::kCuSeqlens,
                            models::kLogitRows};
  return CompiledModel::compile(std::move(it->graph), it->selection, std::move(it->plan), request);
}

Result<std::unique_ptr<CompiledModel>> ProgramBuilder::build_shadow(size_t phase, const Bindings& b) {
  return compile(phase, Kind::Shadow, b);
}

Status ProgramBuilder::capture_size(size_t phase, int64_t size, StepRunnerParts& parts, const Bindings& b) const {
  const LiveSizes live = frozen(phase, size, b.pools);
  for (CompiledModel* model : models_of(size, parts)) {
    if (b.faults->fails_capture()) return error(Code::OutOfMemory, "injected fault: no memory for this capture");
    for (int i = 0; i < options_.warmups; ++i, ++parts.warmups) RETURN_IF_ERROR(model->run(live, *b.stream));
    // A replay of so many rows of no sequence wants a place for each.
    const bool room = platform_.device->info().skips_negative_slots || size <= b.pools.scratch * kv::kPageTokens;
    const bool measured = room && (options_.choose_streams || options_.choose_prefetch);
    RETURN_IF_ERROR(measured ? capture_as_measured(*model, size, live, *b.stream, *b.staging, config_.fields.vocab_size,
                                                   options_.choose_streams)
                             : model->capture(size, live));
  }
  return Status::ok();
}

// All graphs together may take 1 % of the memory; phases that are built later get as much as this one.
Status ProgramBuilder::check_graph_memory(const StepRunnerParts& parts) const {
  const DeviceInfo& device = platform_.device->info();
  if (!device.graphs_take_memory || device.memory_bytes == 0) return Status::ok();
  size_t bytes = parts.model->graph_stats().bytes;
  if (parts.plain) bytes += parts.plain->graph_stats().bytes;
  const size_t all = device.memory_bytes / 100;
  const size_t most = (all - std::min(all, graph_bytes_)) / (phases() - built_);
  if (bytes <= most) return Status::ok();
  return error(Code::Busy,
               "its graphs take {:.1f} MB of the device's memory; allowed: {:.1f} MB, as all graphs may take 1 %",
               static_cast<double>(bytes) / 1e6, static_cast<double>(most) / 1e6);
}

Status ProgramBuilder::capture_all(size_t phase, StepRunnerParts& parts, const Bindings& b) const {
  const std::string_view name = kPhases[phase].name;
  // Where graphs read live sizes, the largest serves all; but which streams it has is measured by sizes.
  std::vector<int64_t> wanted = parts.live_sizes ? std::vector<int64_t>{parts.largest} : parts.sizes;
  if (parts.live_sizes && options_.choose_streams && parts.model->has_streams())
    while (wanted.front() > 1) wanted.insert(wanted.begin(), wanted.front() / 2);
  std::reverse(wanted.begin(), wanted.end());
  Progress progress(fmt::format("capturing {}", name), wanted.size(), b.progress);
  const std::string_view mode = graph_mode_name(parts.model->mode());
  // A list that somebody named is captured whole. Ranks, whose memory is not equally full, capture the same.
  const bool by_rule =
      options_.padding && (options_.*kPhases[phase].sizes).empty() && options_.pipeline.ranks.size == 1;
  bool thinned = false, told = false;
  size_t done = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const int64_t size = wanted[i];
    const auto begin = std::chrono::steady_clock::now();
    const Status captured = capture_size(phase, size, parts, b);
    progress.advance(1, fmt::format("size {}", size));
    if (progress.given_up()) return Status(Code::Cancelled, "capturing was given up");
    if (captured.is_ok()) {
      ++done;
      const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
      log::debug("captured {} size {}{} as {} in {:.2f} ms; graphs take {:.2f} MB so far", name, size,
                 parts.live_sizes ? fmt::format(" (serves {} sizes)", parts.sizes.size()) : "", mode, ms,
                 static_cast<double>(parts.model->graph_stats().bytes) / 1e6);
      const Status room = wanted.size() > 1 && !told ? check_graph_memory(parts) : Status::ok();
      if (room.is_ok()) continue;
      told = true;
      if (!by_rule) {
        log::notice("{}: {}; all sizes are captured all the same", name, room.message());
        continue;
      }
      wanted = drop_sizes(kPhases[phase], parts, std::max<size_t>(1, done - 1), room);
      thinned = true;
      done = 0;
      i = static_cast<size_t>(-1);  // begin again
      continue;
    }
    for (CompiledModel* m : models_of(size, parts)) m->drop_capture(size);
    if (parts.live_sizes && size != parts.largest) {  // no size is lost: the next larger capture serves its rows
      log::warning("{} has no capture of its own for up to {} rows, a larger one serves them: {}", name, size,
                   captured.message());
      continue;
    }
    // Streams go before sizes do.
    if (captured.code() == Code::Busy && drop_streams(name, parts, captured)) {
      if (parts.live_sizes) wanted = {parts.largest};
      done = 0;
      i = static_cast<size_t>(-1);  // begin again
      continue;
    }
    if (captured.code() == Code::Busy && done > 0 && !thinned && options_.padding) {
      wanted = drop_sizes(kPhases[phase], parts, done, captured);
      thinned = true;
      done = 0;
      i = static_cast<size_t>(-1);  // begin again
      continue;
    }
    if (options_.policy == GraphPolicy::Required) return captured.at("`graph` required: capture failed");
    parts.dropped.push_back({size, fmt::format("{} capture failed: {}", mode, captured.message())});
    const bool none = captured.code() == Code::Unsupported && done == 0;  // the device has no such graph in any size
    if (parts.live_sizes || none) {
      parts.sizes.clear();
      return Status::ok();
    }
    std::erase(parts.sizes, size);
    log::warning("{} size {} is left out: {} (`graph_{}_sizes` without it avoids this)", name, size,
                 parts.dropped.back().reason, kPhases[phase].settings());
  }
  return Status::ok();
}

Result<std::unique_ptr<StepRunner>> ProgramBuilder::build(size_t phase, const Bindings& b) {
  StepRunnerParts parts;
  const std::string_view name = kPhases[phase].name;
  parts.phase = name;
  parts.policy = options_.policy;
  parts.padding = options_.padding;
  // How many drafts pay is the drafter's choice; they come to be verified at the next size.
  parts.choose_by_cost = options_.choose_by_cost && !kPhases[phase].drafts;
  parts.live_sizes = platform_.device->info().live_sizes;
  parts.largest = bound(phase);
  ASSIGN_OR_RETURN(parts.model, compile(phase, Kind::Fused, b));
  if (has_plain(phase)) {
    ASSIGN_OR_RETURN(parts.plain, compile(phase, Kind::Plain, b));
    parts.fused_max = options_.fused_decode_max;
  }
  GraphMode mode = options_.*kPhases[phase].mode;
  if (mode == GraphMode::Eager) parts.reason = fmt::format("`graph_{}` off", kPhases[phase].settings());
  if (options_.policy == GraphPolicy::Off) mode = GraphMode::Eager, parts.reason = "`graph` off";
  while (mode != GraphMode::Eager) {
    parts.sizes = sizes_of(phase);
    cut_all(mode, parts);
    RETURN_IF_ERROR(capture_all(phase, parts, b));
    if (!parts.sizes.empty()) break;
    const GraphMode next = mode == GraphMode::Whole ? GraphMode::Piecewise : GraphMode::Eager;
    const std::string why = parts.dropped.back().reason;
    log::warning("{}: {}; continuing {} (`graph_{}` {} avoids this)", name, why, graph_mode_name(next),
                 kPhases[phase].settings(), next == GraphMode::Eager ? "off" : "piecewise");
    mode = next;
    if (mode == GraphMode::Eager) parts.reason = why;
  }
  if (mode == GraphMode::Eager) {
    cut_all(mode, parts);
    parts.sizes.clear();
  }
  ++built_;
  for (const auto* m : {&parts.model, &parts.plain})
    if (*m) graph_bytes_ += (*m)->graph_stats().bytes;
  return std::make_unique<StepRunner>(std::move(parts));
}

}  // namespace reprise::engine
