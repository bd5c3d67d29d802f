#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>

#include "base/elapsed.h"
#include "base/log.h"
#include "engine/dtype_choice.h"
#include "engine/learned.h"
#include "engine/memory_rules.h"
#include "engine/rank_cards.h"
#include "engine/rank_rules.h"
#include "passes/house_passes.h"
#include "weights/loader.h"
#include "weights/weight_cache.h"

namespace reprise::engine {
namespace {

// Reports what became of the weights: a device without kernels on packed ones has them unpacked, against the plan.
// `int8_asked`: a setting asks for int8 activations, which then must be of use.
Status tell_quantisation(const checkpoint::QuantPlan& plan, const std::vector<DerivedParam>& derived, bool int8_asked) {
  std::unordered_set<std::string_view> stored;
  for (const DerivedParam& d : derived)
    for (const ParamPart& part : d.parts)
      if (part.recipe == Recipe::StoredBlocks) stored.insert(part.tensor);
  if (int8_asked && stored.empty())
    return error(Code::Unsupported,
                 "`block_activations` int8: no weights of this model stay in GGUF or MXFP4 blocks on this device; "
                 "allowed: auto, float");
  if (plan.linears.empty()) return Status::ok();
  checkpoint::QuantPlan done = plan;
  for (auto& [name, linear] : done.linears)
    if (linear.scheme == checkpoint::LinearScheme::Packed && !stored.contains(name))
      linear = {.unpacked = std::string(block_format_info(linear.block).name)};
  log::info("weights: {}", done.summary());
  return Status::ok();
}

// What a step has because ranks share out its sequences and its experts' rows.
void trace_ranks(const EngineOptions& o, const DeviceInfo& device, models::TraceOptions& trace) {
  trace.sequence_parts = o.sequence_parts;
  trace.parts_on_host = device.kind == DeviceKind::Ascend;  // the lengths of its attention are the host's
  if (o.graph.pipeline.ranks.sent_tokens > 0) trace.token_shares = o.member->world().size;
}

}  // namespace

Result<int64_t> Engine::choose_kv_pages(const kv::KvShape& shape, size_t state_bytes, int64_t scratch) const {
  if (options_.max_total_tokens > 0) return kv::pages_for(options_.max_total_tokens);
  // Enough for every running request at full length, but no more than the memory fraction leaves.
  const int64_t rows = (options_.max_running_requests + options_.sequence_parts - 1) / options_.sequence_parts;
  const int64_t wanted = rows * kv::pages_for(options_.context_length);
  if (shape.page_bytes() + options_.beside.page_bytes == 0) return wanted;  // nothing lies in pages
  return kv_pages_that_fit(
      {usable_bytes(platform_.device->info()) * options_.memory_share, options_.mem_fraction_static,
       static_cast<double>(params_.bytes() + adapters_.bytes() + state_bytes + options_.beside.bytes +
                           (tower_ ? tower_->arena_bytes() : 0)),
       static_cast<double>(shape.page_bytes() + options_.beside.page_bytes), scratch},
      wanted);
}

Status Engine::load(const ProgramBuilder& builder) {
  const auto start = std::chrono::steady_clock::now();
  weights::LoadOptions load;
  // Weights are made ready on the host, which an accelerator leaves idle meanwhile.
  const DeviceInfo& info = platform_.device->info();
  constexpr unsigned kMostThreads = 16;
  load.threads = info.host_visible
                     ? info.threads
                     : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads));
  load.progress = options_.progress;
  // A head that no output reads may be there as well.
  load.tied_head = files_.config.fields.tie_word_embeddings || files_.config.pooling.gives_vectors();
  load.layers = files_.config.fields.num_hidden_layers;
  load.nextn_layers = files_.config.fields.nextn_layers;
  load.derived = builder.derived();
  if (tower_) load.derived.insert(load.derived.end(), tower_->derived().begin(), tower_->derived().end());
  load.known = quantisation_->seen;
  if (files_.checkpoint)
    RETURN_IF_ERROR(weights::load_params_cached(
        *files_.checkpoint, params_, load,
        {options_.weight_cache, platform_.device->info().isa, platform_.device->info().host_visible}));
  else
    RETURN_IF_ERROR(weights::fill_random(params_, options_.random_seed, load));
  times_.load_s = seconds_since(start);
  return Status::ok();
}

// Fewer rows of steps with drafts, then smaller chunks, until activations leave room in the memory fraction for at
// least one sequence's cache.
Status Engine::prepare(ProgramBuilder& builder, models::TraceOptions trace) {
  const int64_t asked = trace.max_tokens;
  const double memory = usable_bytes(platform_.device->info());
  const double limit = options_.mem_fraction_static * memory;
  while (true) {
    RETURN_IF_ERROR(builder.prepare(trace));
    if (options_.graph.verify_replay > 0) RETURN_IF_ERROR(builder.prepare_shadows());
    const auto needed = static_cast<double>(builder.arena_bytes());
    if (memory == 0 || needed <= limit) break;
    if (builder.cut_verify_rows(options_.graph.verify)) continue;
    const int64_t smaller = std::max(trace.max_tokens / 2, trace.max_sequences);
    if (smaller == trace.max_tokens || options_.graph.policy == GraphPolicy::Required)
      return error(Code::OutOfMemory,
                   "activations need {:.1f} MB, but `mem_fraction_static` {} of the free memory is {:.1f} MB; lower "
                   "`chunked_prefill_size` ({}) or `max_running_requests` ({}), or raise the fraction",
                   needed / 1e6, options_.mem_fraction_static, limit / 1e6, trace.max_tokens, trace.max_sequences);
    trace.max_tokens = smaller;
    std::erase_if(options_.graph.prefill_sizes, [&](int64_t n) { return n > smaller; });
  }
  if (trace.max_tokens < asked)
    log::warning(
        "prefill sizes above {} are left out: their activations do not fit `mem_fraction_static` {} "
        "(`chunked_prefill_size` {} avoids this)",
        trace.max_tokens, options_.mem_fraction_static, trace.max_tokens);
  options_.chunked_prefill_size = trace.max_tokens;
  if (builder.phases() > kVerifyPhase) log::info("{}", builder.verify_summary());
  return Status::ok();
}

Engine::~Engine() {
  // Steps in flight write into what goes first, and what drafts reads parameters and rows of this model.
  for (Engine* e : {this, draft_.get()})
    if (e && e->stream_) (void)e->stream_->synchronize();
  if (options_.member && front() && !drafts_for_another_) (void)tell_stop();
  const bool ready = runners_[0] && runners_[kAnyPhase];
  if (learned_file_.empty() || !ready || !front()) return;
  if (const Status saved = save_learned(learned_file_, runners_, drafts_); !saved.is_ok())
    log::warning("the learned sizes were not saved: {}", saved.message());
}

std::unordered_map<std::string, void*> Engine::caches() const {
  std::unordered_map<std::string, void*> external;
  for (size_t c = 0; c < pool_.shape().caches.size(); ++c) external[pool_.shape().caches[c].name] = pool_.cache(c);
  for (size_t c = 0; c < states_.caches().size(); ++c) external[states_.caches()[c].name] = states_.cache(c);
  if (step_.has_source())
    external[std::string(models::kSourceRows)] = source_ ? source_->kept_rows() : no_source_.data();
  external.merge(adapters_.addresses());
  return external;
}

// Slots of adapters, for the passes; one line where this device or world has none.
Status Engine::choose_adapters() {
  if (options_.max_loras == 0) return Status::ok();
  const DeviceInfo& device = platform_.device->info();
  const auto& entries = platform_.kernels->entries();
  const OpSchema* op = platform_.ops->find("lora_expand");
  const bool kernels = std::any_of(entries.begin(), entries.end(),
                                   [&](const auto& e) { return e->op == op->name && e->device == device.kind; });
  if (!kernels)
    return error(Code::Unsupported, "`max_loras` {}: {} has no kernels for LoRA adapters; allowed: 0",
                 options_.max_loras, device_kind_name(device.kind));
  options_.graph.pipeline.lora = {options_.max_loras, options_.max_lora_rank, models::kAdapterIdsInput};
  return Status::ok();
}

// Dtypes where none were asked for, how weights are quantised, and what follows from both for the passes.
Status Engine::choose_numbers() {
  ASSIGN_OR_RETURN(checkpoint::QuantPlan quantisation,
                   checkpoint::make_quant_plan(options_.quantization, files_.config.fields, checkpoint()));
  if (!options_.dtype) {
    const auto [dtype, why] = usual_dtype(files_.config.fields, checkpoint(), quantisation, platform_.device->info());
    if (!why.empty())
      log::info("`dtype` auto: {} ({}); `dtype` {} is the other one", dtype_flag(dtype), why,
                dtype_flag(dtype == DType::F32 ? DType::BF16 : DType::F32));
    options_.dtype = dtype;
  }
  if (!options_.kv_dtype) options_.kv_dtype = options_.dtype;
  options_.quantization = quantisation.format;
  if (!options_.int8_activations)
    options_.int8_activations =
        checkpoint() && usual_int8_activations(count_weights(*checkpoint(), quantisation), platform_.device->info());
  quantisation.int8_activations = *options_.int8_activations;
  quantisation_ = std::make_shared<const checkpoint::QuantPlan>(std::move(quantisation));
  options_.graph.pipeline.quantisation = quantisation_;
  if (options_.member)
    options_.graph.pipeline.ranks = {options_.member->world().rank, options_.member->world().size,
                                     static_cast<int>(options_.ep_size), static_cast<int>(options_.sequence_parts),
                                     options_.reduce_over_ranks};
  if (options_.dispatch && options_.member && options_.ep_size == options_.member->world().size)
    options_.graph.pipeline.ranks.sent_tokens = models::kSharedTokens;
  options_.graph.pipeline.part_inputs = {models::kSlotsInput,    models::kCuSeqlensInput,    models::kPartRowsInput,
                                         models::kOwnSlotsInput, models::kOwnCuSeqlensInput, models::kOwnRowsInput};
  const DeviceInfo& device = platform_.device->info();
  if (device.index_dtype != DType::I32)
    return error(Code::Unsupported, "{}: this build fills tables with i32 indices; the device's kernels take {}",
                 device.name, dtype_name(device.index_dtype));

  if (options_.graph.pipeline.expand_latents && !files_.config.fields.latent)
    return error(Code::Unsupported, "`mla_prefill` expanded: {} has no latent attention; leave it out",
                 files_.config.fields.architecture);
  if (files_.config.fields.experts.count > 0)
    options_.graph.pipeline.observe_experts =
        options_.count_experts == CountExperts::On ||
        (options_.count_experts == CountExperts::WhereFree && device.host_visible);
  return Status::ok();
}

// Of the dtype in effect, which the device may have chosen.
void Engine::note_dtype() {
  if (!files_.spec->beyond_float16 || *options_.dtype != DType::F16) return;
  files_.config.fields.notices.push_back(
      fmt::format("`dtype` float16: activations of {} may exceed its largest number, 65504, and become infinite; "
                  "bfloat16 and float32 hold them",
                  files_.config.fields.architecture));
  log::notice("{}", files_.config.fields.notices.back());
}

// A model that cannot be cut so, and ranks that would not fit, are told before anything is loaded.
Status Engine::check_ranks() const {
  const DeviceInfo& device = platform_.device->info();
  RETURN_IF_ERROR(engine::check_ranks(options_, *files_.spec, files_.config, device));
  return options_.member ? agree_on_model(*options_.member, options_, files_.config.fields, checkpoint(), device)
                         : Status::ok();
}

Status Engine::open() {
  RETURN_IF_ERROR(fill_defaults(options_, platform_.device->info()));
  RETURN_IF_ERROR(check_options(options_));
  ASSIGN_OR_RETURN(files_, ModelFiles::open(options_));
  for (const std::string& text : files_.config.fields.notices) log::notice("{}", text);
  ASSIGN_OR_RETURN(options_.context_length, files_.choose_context(options_.context_length));
  const bool int8_asked = options_.int8_activations.value_or(false);
  const bool any_dtype = !options_.dtype, any_kv_dtype = !options_.kv_dtype;
  RETURN_IF_ERROR(choose_numbers());
  const DeviceInfo& device = platform_.device->info();
  RETURN_IF_ERROR(check_ranks());
  RETURN_IF_ERROR(choose_adapters());
  RETURN_IF_ERROR(check_tower());

  const auto start = std::chrono::steady_clock::now();
  models::TraceOptions trace;
  trace.dtype = *options_.dtype;
  trace.kv_dtype = *options_.kv_dtype;
  trace_ranks(options_, platform_.device->info(), trace);
  trace.adapter_slots = options_.max_loras;
  trace.max_tokens = std::max(options_.chunked_prefill_size, options_.max_running_requests);
  if (models::encodes(*files_.spec, files_.config.fields))
    trace.max_tokens = std::max(trace.max_tokens, options_.context_length);
  options_.chunked_prefill_size = trace.max_tokens;
  trace.max_sequences = options_.max_running_requests;
  trace.max_pages = kv::pages_for(options_.context_length);
  trace.pool_pages = int64_t{1} << 30;  // the pool is not planned by the graph
  trace.sampling = files_.config.generates();
  trace.images = files_.config.fields.vision.has_value();
  const bool verifies = device.live_sizes || options_.graph.verify.each > 1;
  trace.most_drafts = options_.most_drafts =
      verifies && models::step_of(*files_.spec, files_.config, trace).has_states()
          ? std::min(options_.most_drafts, models::TraceOptions::kMostDrafts)
          : 0;
  if (files_.spec->source_width) trace.source_width = files_.spec->source_width(files_.config.fields);
  ASSIGN_OR_RETURN(trace.kept_rows, files_.kept_rows(options_));
  nn::register_fused_ops(*platform_.ops);
  choose_streams();
  auto made = std::make_unique<ProgramBuilder>(*files_.spec, files_.config, platform_, options_.graph);
  ProgramBuilder& builder = *made;
  Status prepared = prepare(builder, trace);
  if (prepared.code() == Code::Unsupported) {
    ASSIGN_OR_RETURN(trace, other_dtypes({*files_.spec, files_.config, platform_, options_.graph}, trace, any_dtype,
                                         any_kv_dtype, prepared));
    options_.dtype = trace.dtype;
    options_.kv_dtype = trace.kv_dtype;
    prepared = prepare(builder, trace);
  }
  RETURN_IF_ERROR(prepared);
  note_dtype();
  trace.max_tokens = options_.chunked_prefill_size;
  step_ = models::step_of(*files_.spec, files_.config, trace);
  if (!options_.graph.learned_dir.empty()) {
    learned_file_ = learned_file(options_, files_.config, *files_.spec, *platform_.device);
    use_learned_sizes(options_, learned_file_);
  }
  graph_text_ = builder.graph_text();
  pooled_size_ = builder.pooled_size();
  sampling_ = builder.returns(output_name(StepOutput::Sampled));
  tells_finite_ = builder.returns(fmt::format("{}{}", output_name(StepOutput::NextTokens), kFiniteRows));
  for (size_t p = 0; p < builder.phases(); ++p) passes_[p] = builder.report(p);
  RETURN_IF_ERROR(prepare_tower());
  std::vector<ParamPlan> params = builder.params();
  if (tower_) params.insert(params.end(), tower_->params().begin(), tower_->params().end());
  std::vector<void*> lent = lent_params(params, builder);
  ASSIGN_OR_RETURN(params_, ParamStore::create(std::move(params), *platform_.device, std::move(lent)));
  std::vector<DerivedParam> derived = builder.derived();
  if (tower_) derived.insert(derived.end(), tower_->derived().begin(), tower_->derived().end());
  RETURN_IF_ERROR(tell_quantisation(*quantisation_, derived, int8_asked));
  times_.compile_s = seconds_since(start);
  step_bytes_ = builder.bytes_per_step();
  expert_bytes_ = builder.expert_bytes();
  RETURN_IF_ERROR(load(builder));

  ASSIGN_OR_RETURN(stream_, platform_.device->make_stream());
  outputs_.open(*platform_.device, *stream_);
  RETURN_IF_ERROR(make_caches(builder));
  return compile(std::move(made));
}

// One line where this world has no vision towers.
Status Engine::check_tower() const {
  if (!files_.config.fields.vision) return Status::ok();
  const DeviceInfo& device = platform_.device->info();
  const std::string& name = files_.config.fields.architecture;
  if (options_.member && (device.kind != DeviceKind::Cpu || !device.live_sizes))
    return error(Code::Unsupported, "`tp_size` {}: over ranks the vision tower of {} runs on the CPU; `device` is {}",
                 options_.member->world().size, name, device_kind_name(device.kind));
  if (options_.sequence_parts > 1)
    return error(Code::Unsupported,
                 "`enable_dp_attention`: {} reads images, which are not shared out; leave it out, or the tower by "
                 "`override` vision_config=null where the text model is one of its own",
                 name);
  return Status::ok();
}

// The vision tower of a model that has one: the front's alone. Its rows are inputs of the step, which all ranks see.
Status Engine::prepare_tower() {
  if (!files_.config.fields.vision) return Status::ok();
  if (!front()) {
    if (files_.checkpoint)
      files_.checkpoint->set_aside([](const checkpoint::CheckpointTensor& t) { return t.name.starts_with("visual."); });
    return Status::ok();
  }
  constexpr int64_t kMostRows = 2048;
  auto tower = Tower::prepare(files_.config, *options_.dtype, std::min(kMostRows, options_.context_length), platform_,
                              options_.graph);
  if (!tower.is_ok()) return tower.status().at("vision tower");
  tower_ = std::move(*tower);
  return Status::ok();
}

const StepRunner* Engine::runner(std::string_view phase) const {
  for (size_t p = 0; p < kPhaseCount; ++p)
    if (kPhases[p].name == phase) return runners_[p].get();
  return nullptr;
}

const PipelineReport* Engine::passes(std::string_view phase) const {
  for (size_t p = 0; p < phases().size(); ++p)
    if (kPhases[p].name == phase) return &passes_[p];
  return nullptr;
}

Status Engine::set_draft(std::unique_ptr<Engine> draft) {
  if (draft->reads_source()) RETURN_IF_ERROR(draft->set_source(*this));
  draft->drafts_for_another_ = true;
  // Every rank does so for itself, as it opened both.
  RETURN_IF_ERROR(front() ? draft->resize_here(options_.max_total_tokens)
                          : draft->follow_resize(options_.max_total_tokens));
  if (const auto waiting = std::move(draft->uncaptured_)) RETURN_IF_ERROR(draft->capture(*waiting));
  draft_ = std::move(draft);
  return Status::ok();
}

MemoryReport Engine::memory() const {
  return {params_.bytes(),   pool_.bytes(),       pool_.shape().page_bytes(),
          states_.bytes(),   pool_.total_pages(), arena_.size() + staging_.bytes(),
          adapters_.bytes(), exchange_.size()};
}

// Nothing is kept here in pages of other parts.
Result<std::vector<kv::KvPool>> Engine::ledgers(int64_t pages) const {
  std::vector<kv::KvPool> out;
  for (int64_t part = 1; part < options_.sequence_parts; ++part) {
    ASSIGN_OR_RETURN(kv::KvPool ledger, kv::KvPool::create(platform_.device->pool(), {}, pages));
    out.push_back(std::move(ledger));
  }
  return out;
}

void Engine::release(Sequence& sequence, int part) {
  kv_pool_of(part).release(sequence.pages());
  sequence.forget();
}

Status Engine::reserve(Sequence& sequence, int64_t tokens, int part) {
  if (tokens > options_.context_length)
    return invalid("{} tokens are more than the context length of {}", tokens, options_.context_length);
  const int64_t more = kv::pages_for(tokens) - static_cast<int64_t>(sequence.pages().size());
  if (more <= 0) return Status::ok();
  ASSIGN_OR_RETURN(auto pages, kv_pool_of(part).allocate(more));
  sequence.pages().insert(sequence.pages().end(), pages.begin(), pages.end());
  return Status::ok();
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, Platform platform) {
  std::unique_ptr<Engine> engine(new Engine(options, std::move(platform)));
  if (Status opened = engine->open(); !opened.is_ok()) {
    if (!options.member) return opened;
    // The others would wait for this rank; which one's reason comes first is told by all.
    const bool first = !options.member->aborted();
    options.member->abort(fmt::format("rank {} did not start: {}", options.member->world().rank, opened.message()));
    return first || opened.code() != Code::DeviceLost ? opened : options.member->lost();
  }
  return engine;
}

}  // namespace reprise::engine
