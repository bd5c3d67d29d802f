#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <thread>
#include <unordered_set>

#include "base/elapsed.h"
#include "base/log.h"
#include "checkpoint/fit_to_tensors.h"
#include "engine/graph_sizes.h"
#include "engine/learned.h"
#include "engine/memory_rules.h"
#include "models/foreign_fields.h"
#include "models/missing.h"
#include "passes/house_passes.h"
#include "weights/loader.h"
#include "weights/weight_cache.h"

namespace reprise::engine {
namespace {

using checkpoint::Checkpoint;
using checkpoint::ModelConfigFields;

// As --dtype takes it.
std::string_view dtype_flag(DType d) {
  switch (d) {
    case DType::F32: return "float32";
    case DType::F16: return "float16";
    case DType::BF16: return "bfloat16";
    case DType::I8: return "int8";
    default: return dtype_name(d);
  }
}

// Reports what became of the weights: a device without kernels on packed ones has them unpacked, against the plan.
Status tell_quantisation(const checkpoint::QuantPlan& plan, const std::vector<DerivedParam>& derived) {
  std::unordered_set<std::string_view> stored;
  for (const DerivedParam& d : derived)
    for (const ParamPart& part : d.parts)
      if (part.recipe == Recipe::StoredBlocks) stored.insert(part.tensor);
  if (plan.int8_activations && stored.empty())
    return error(Code::Unsupported,
                 "`block_activations` int8: no weights of this model stay in GGUF or MXFP4 blocks on this device; "
                 "allowed: auto");
  if (plan.linears.empty()) return Status::ok();
  checkpoint::QuantPlan done = plan;
  for (auto& [name, linear] : done.linears)
    if (linear.scheme == checkpoint::LinearScheme::Packed && !stored.contains(name))
      linear = {.unpacked = std::string(block_format_info(linear.block).name)};
  log::info("weights: {}", done.summary());
  return Status::ok();
}

// Ops of a graph that change states of sequences and have no kernel at all on the device.
std::set<std::string_view> state_ops_without_kernels(const Graph& graph, const Platform& platform) {
  std::set<std::string_view> names;
  const DeviceKind device = platform.device->info().kind;
  const auto writes = [](const OperandSchema& o) { return o.name == models::kStateWriteInput; };
  for (const Node* n = graph.first(); n; n = n->next)
    if (std::any_of(n->op->operands.begin(), n->op->operands.end(), writes) &&
        std::none_of(platform.kernels->entries().begin(), platform.kernels->entries().end(),
                     [&](const auto& e) { return e->device == device && e->op == n->op->name; }))
      names.insert(n->op->name);
  return names;
}

// Where what an engine measured is kept for the next start with the same model, numbers and device.
std::string name_of_learned(const EngineOptions& o, const models::ModelConfig& config, const models::ModelSpec& model,
                            Device& device) {
  const DeviceInfo& info = device.info();
  const std::string streams = o.graph.choose_streams         ? "-streams-auto"
                              : o.graph.pipeline.streams > 1 ? fmt::format("-streams{}", o.graph.pipeline.streams)
                                                             : "";
  return fmt::format("{}/{}{}-{}x{}-{}-{}-{}-{}{}{}.json", o.graph.learned_dir, config.fields.architecture,
                     model.source_width ? "-head" : "", config.fields.num_hidden_layers, config.fields.hidden_size,
                     dtype_name(*o.dtype), device_kind_name(info.kind), info.isa, info.threads,
                     device.clock_us() ? "-modelled" : "", streams);
}

}  // namespace

Status Engine::check_options() const {
  auto range = [](std::string_view flag, int64_t v, int64_t lo, int64_t hi) {
    return v >= lo && v <= hi ? Status::ok() : invalid("{} {} is out of range; allowed: {} to {}", flag, v, lo, hi);
  };
  RETURN_IF_ERROR(range("`max_running_requests`", options_.max_running_requests, 1, 4096));
  RETURN_IF_ERROR(range("`chunked_prefill_size`", options_.chunked_prefill_size, 1, 65536));
  RETURN_IF_ERROR(range("`decode_steps`", options_.steps_ahead, 1, 64));
  RETURN_IF_ERROR(range("`context_length`", options_.context_length, 0, int64_t{1} << 24));
  RETURN_IF_ERROR(range("`max_loras`", options_.max_loras, 0, 1024));
  RETURN_IF_ERROR(range("`max_lora_rank`", options_.max_lora_rank, 1, checkpoint::LoraConfig::kMostRank));
  RETURN_IF_ERROR(range("`max_total_tokens`", options_.max_total_tokens, 0, int64_t{1} << 32));
  if (!(options_.mem_fraction_static > 0 && options_.mem_fraction_static <= 1))
    return invalid("`mem_fraction_static` {} is out of range; allowed: above 0, up to 1", options_.mem_fraction_static);
  auto usual = [](DType d) { return d == DType::F32 || d == DType::F16 || d == DType::BF16; };
  if (options_.dtype && !usual(*options_.dtype))
    return invalid("dtype {} is not a model dtype; allowed: float32, float16, bfloat16", dtype_name(*options_.dtype));
  if (options_.kv_dtype && !usual(*options_.kv_dtype) && *options_.kv_dtype != DType::I8)
    return invalid("dtype {} is not one of a KV cache; allowed: float32, float16, bfloat16, int8",
                   dtype_name(*options_.kv_dtype));
  return Status::ok();
}

// Whether the architecture is known, and whether its fields are, is told before the weights are looked at.
Status Engine::read_config() {
  std::vector<const checkpoint::Family*> list;
  for (const models::ModelSpec* m : options_.families) list.push_back(&m->family);
  // A head of EAGLE is no model, and may have the name of one.
  if (options_.borrows_from.empty())
    for (const models::ModelSpec* m : models::all_models()) list.push_back(&m->family);
  const checkpoint::Families known{list, false, models::missing_families()};
  if (checkpoint_ && checkpoint_->gguf()) {
    ASSIGN_OR_RETURN(config_.fields, checkpoint::read_model_config(*checkpoint_->gguf(), options_.overrides, known,
                                                                   checkpoint_->mmproj()));
  } else {
    ASSIGN_OR_RETURN(config_.fields, checkpoint::read_model_config(options_.model_path, options_.overrides, known));
  }
  for (const models::ModelSpec* m : options_.families)
    if (!model_ && m->family.architecture == config_.fields.architecture) model_ = m;
  if (!model_) {
    ASSIGN_OR_RETURN(model_, models::find_model(config_.fields.architecture));
  }
  RETURN_IF_ERROR(models::check_fields(*model_, config_.fields));
  if (options_.prediction) RETURN_IF_ERROR(find_prediction());
  return read_pooling();
}

// What the model gives, by its files and `pooling`.
Status Engine::open_checkpoint() {
  std::error_code ec;
  const bool folder = std::filesystem::is_directory(options_.model_path, ec);
  if (!options_.mmproj_path.empty() && (folder || options_.load_format == LoadFormat::Dummy))
    return invalid("`mmproj` {}: {}; allowed with a model of one GGUF file", options_.mmproj_path,
                   folder ? options_.model_path + " is a folder, whose vision tower is among its own tensors"
                          : "`load_format` dummy reads no weights");
  if (folder || options_.load_format == LoadFormat::Dummy) RETURN_IF_ERROR(read_config());
  if (options_.load_format == LoadFormat::Dummy) return Status::ok();
  ASSIGN_OR_RETURN(auto opened, Checkpoint::open(options_.model_path, models::families()));
  const bool gguf = opened.format() == Checkpoint::Format::Gguf;
  if (options_.load_format == LoadFormat::Gguf && !gguf)
    return invalid("{}: not a GGUF file, but `load_format` gguf was given", options_.model_path);
  if (options_.load_format == LoadFormat::Safetensors && gguf)
    return invalid("{}: a GGUF file, but `load_format` safetensors was given", options_.model_path);
  checkpoint_.emplace(std::move(opened));
  if (!options_.mmproj_path.empty()) {
    if (!gguf) return invalid("`mmproj` {}: {} is no GGUF file", options_.mmproj_path, options_.model_path);
    auto mmproj = checkpoint::GgufFile::open(options_.mmproj_path);
    if (!mmproj) return mmproj.status().at("`mmproj`");
    RETURN_IF_ERROR(checkpoint_->add_mmproj(std::move(*mmproj), models::families()));
  }
  if (!folder) RETURN_IF_ERROR(read_config());
  for (size_t i = 0; folder && i < config_.pooling.dense.size(); ++i) {
    const std::string path = fmt::format("{}/{}", options_.model_path, config_.pooling.dense[i].folder);
    ASSIGN_OR_RETURN(auto dense, Checkpoint::open(path, models::families()));
    RETURN_IF_ERROR(checkpoint_->borrow(
        std::move(dense), [](const checkpoint::CheckpointTensor&) { return true; }, checkpoint::dense_name(i)));
  }
  if (options_.prediction) RETURN_IF_ERROR(open_prediction());
  if (!options_.borrows_from.empty()) RETURN_IF_ERROR(open_trained_head());
  checkpoint::fit_to_tensors(config_.fields, *checkpoint_, options_.prediction_beside);
  if (config_.fields.vision) checkpoint_->make_matrix("visual.patch_embed.proj.weight");  // a convolution's
  if (options_.prediction_beside && model_->prediction &&
      !model_->prediction->own_tensors.empty())  // the other engine reads them
    checkpoint_->set_aside(
        [&](const checkpoint::CheckpointTensor& t) { return t.name.starts_with(model_->prediction->own_tensors); });
  const size_t unread = checkpoint_->set_aside([&](const checkpoint::CheckpointTensor& t) {
    return std::any_of(model_->unread.begin(), model_->unread.end(),
                       [&](std::string_view begin) { return t.name.starts_with(begin); });
  });
  if (unread > 0)
    config_.fields.notices.push_back(fmt::format("{} tensors that {} does not read are not loaded ({})", unread,
                                                 config_.fields.architecture, fmt::join(model_->unread, ", ")));
  if (config_.fields.has_rope_freqs) {
    ASSIGN_OR_RETURN(const checkpoint::CheckpointTensor* t, checkpoint_->get("rope_freqs.weight"));
    std::vector<float> freqs(static_cast<size_t>(t->elements()));
    RETURN_IF_ERROR(checkpoint_->read_rows(*t, 0, t->rows(), DType::F32, freqs.data()));
    for (float f : freqs) {
      if (!(f > 0) || !std::isfinite(f))
        return invalid("{}: rope_freqs.weight holds {}; it divides frequencies and must be positive",
                       checkpoint_->source(), f);
      config_.rope_divisors.push_back(f);
    }
  }
  return Status::ok();
}

namespace {

// What a step has because ranks share out its sequences and its experts' rows.
void trace_ranks(const EngineOptions& o, const DeviceInfo& device, models::TraceOptions& trace) {
  trace.sequence_parts = o.sequence_parts;
  trace.parts_on_host = device.kind == DeviceKind::Ascend;  // the lengths of its attention are the host's
  if (o.graph.pipeline.ranks.sent_tokens > 0) trace.token_shares = o.member->world().size;
}

// Which list longrope divides by. The context decides and not a sequence's length, as a token's bits then depend on
// nothing that comes behind it.
void choose_factors(checkpoint::RopeScaling& rope, int64_t original, int64_t context) {
  rope.takes_long = context > original;
  if (rope.takes_long)
    log::notice("`context_length` {}: above {} tokens longrope takes its long factors, for sequences of every length",
                context, original);
  else
    log::notice(
        "rope_type longrope: the short factors, for contexts up to {}; a `context_length` up to {} takes the long ones",
        original, rope.long_positions);
}

}  // namespace

Status Engine::choose_context() {
  const ModelConfigFields& f = config_.fields;
  // Some scalings stretch the stated window at run time; the others state the stretched length already.
  double longest = static_cast<double>(f.max_position_embeddings);
  const double factor = std::max(1.0, f.rope.factor.value_or(1.0));
  switch (f.rope.kind) {
    case checkpoint::RopeKind::Dynamic: longest = 1 << 24; break;  // adapts to any length
    case checkpoint::RopeKind::Linear: longest *= factor; break;
    case checkpoint::RopeKind::Yarn:
      longest = std::max(longest, factor * static_cast<double>(f.rope.original_max_position_embeddings.value_or(0)));
      break;
    case checkpoint::RopeKind::Long: longest = std::max(longest, static_cast<double>(f.rope.long_positions)); break;
    case checkpoint::RopeKind::None:
    case checkpoint::RopeKind::Llama3: break;
  }
  const int64_t usual = config_.pooling.max_tokens;
  if (options_.context_length == 0) {
    // One step has all rows of a text, so that long texts take memory even where none comes.
    constexpr int64_t kUsualText = 8192;
    const bool cut = usual == 0 && f.both_sides && f.max_position_embeddings > kUsualText;
    options_.context_length = usual > 0 ? std::min(usual, f.max_position_embeddings)
                              : cut     ? kUsualText
                                        : f.max_position_embeddings;
    if (cut) {
      config_.fields.notices.push_back(
          fmt::format("no file says how long texts are (sentence_bert_config.json); effective: {} tokens "
                      "(`context_length` sets another, up to {})",
                      kUsualText, f.max_position_embeddings));
      log::notice("{}", config_.fields.notices.back());
    }
  }
  if (static_cast<double>(options_.context_length) > longest)
    return invalid(
        "`context_length` {} is more than the model's {}; set max_position_embeddings with `override` to try it anyway",
        options_.context_length, static_cast<int64_t>(longest));
  if (f.rope.long_positions > 0)
    choose_factors(config_.fields.rope, f.max_position_embeddings, options_.context_length);
  return Status::ok();
}

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
  load.tied_head = config_.fields.tie_word_embeddings || config_.pooling.gives_vectors();
  load.layers = config_.fields.num_hidden_layers;
  load.nextn_layers = config_.fields.nextn_layers;
  load.derived = builder.derived();
  if (tower_) load.derived.insert(load.derived.end(), tower_->derived().begin(), tower_->derived().end());
  load.known = quantisation_->seen;
  if (checkpoint_)
    RETURN_IF_ERROR(weights::load_params_cached(
        *checkpoint_, params_, load,
        {options_.weight_cache, platform_.device->info().isa, platform_.device->info().host_visible}));
  else
    RETURN_IF_ERROR(weights::fill_random(params_, options_.random_seed, load));
  times_.load_s = seconds_since(start);
  return Status::ok();
}

// Learned sizes replace the rule's as soon as there is traffic to learn from.
void Engine::learn_sizes_from(const std::string& file) {
  GraphOptions& g = options_.graph;
  const auto learned = load_learned(file);
  if (!learned.is_ok() && learned.status().code() != Code::NotFound)
    log::warning("{}; learned sizes are not used", learned.status().message());
  auto learn = [&](const LearnedPhase& phase, std::string_view name, int64_t largest, size_t count) {
    TrafficHistogram traffic(largest);
    for (auto& entry : phase.traffic) traffic.add(std::min(entry.first, largest), entry.second);
    constexpr uint64_t kEnough = 100;
    if (traffic.total() < kEnough) {
      log::info("{} sizes: by rule, {} of {} steps seen so far to learn from", name, traffic.total(), kEnough);
      return std::vector<int64_t>();
    }
    auto sizes = learn_sizes(traffic.counts(), static_cast<int64_t>(count), largest);
    log::info("{} sizes: learned from {} steps: {}", name, traffic.total(), fmt::join(sizes, ","));
    return sizes;
  };
  for (size_t p = 0; p < kPhaseCount; ++p) {
    const PhaseSpec& phase = kPhases[p];
    if (phase.drafts || !(g.*phase.learn)) continue;
    const int64_t largest = phase.largest(options_.max_running_requests, options_.chunked_prefill_size);
    g.*phase.sizes = learn(learned.is_ok() ? learned->phases[p] : LearnedPhase(), phase.name, largest,
                           phase.sizes_by_rule(largest, SizeRule::Padded).size());
  }
}

// When no dtype helps: one line, where the layers are those that keep states, or where a kernel's reason is the head
// size: then with the sizes that there are kernels for. The reason is asked for because a device that fails (no memory
// for a constant) may refuse one shape and take others.
Status Engine::explain_head_size(const models::TraceOptions& trace, const Status& why) const {
  const auto graph = models::trace_model(*model_, config_, trace, *platform_.ops);
  if (const auto missing = graph.is_ok() ? state_ops_without_kernels(*graph, platform_) : std::set<std::string_view>();
      !missing.empty()) {
    log::debug("{}", why.message());
    return error(Code::Unsupported,
                 "{}: layers of {} keep a state for each sequence, and {} has no kernels for them ({}); run it with "
                 "`device` cpu or cuda",
                 config_.fields.source, config_.fields.architecture, device_kind_name(platform_.device->info().kind),
                 fmt::join(missing, ", "));
  }
  if (why.message().find("head size") == std::string::npos) return why;
  const int64_t asked = config_.fields.head_dim;
  std::vector<int64_t> fine;
  for (const int64_t size : {32, 64, 80, 96, 128, 192, 256}) {
    models::ModelConfig other = config_;
    other.fields.head_dim = size;
    other.rope_divisors.clear();
    if (ProgramBuilder(*model_, other, platform_, options_.graph).try_decode(trace).is_ok()) fine.push_back(size);
  }
  if (fine.empty() || config_.fields.latent || std::find(fine.begin(), fine.end(), asked) != fine.end()) return why;
  log::debug("{}", why.message());
  return error(Code::Unsupported, "{}: head_dim {}: {} has no attention kernels for heads of this size; it has for {}",
               config_.fields.source, asked, device_kind_name(platform_.device->info().kind), fmt::join(fine, ", "));
}

// The model has an op without a kernel. With a dtype of the engine's own choice, the step in the first dtype that has
// all of them; else an error that names the flag and what it may be. `why` when that is not what is wrong.
Result<models::TraceOptions> Engine::other_dtypes(const ProgramBuilder& builder, const models::TraceOptions& trace,
                                                  bool any_dtype, bool any_kv_dtype, const Status& why) const {
  if (builder.try_decode(trace).is_ok()) return why;
  const std::string_view device = device_kind_name(platform_.device->info().kind);
  std::vector<models::TraceOptions> found;
  std::vector<std::string_view> names;
  const auto look = [&](bool keep_cache) {
    for (const DType d : {DType::BF16, DType::F16, DType::F32}) {
      models::TraceOptions other = trace;
      other.dtype = d;
      if (!keep_cache) other.kv_dtype = d;
      if (!builder.try_decode(other).is_ok()) continue;
      found.push_back(other);
      names.push_back(dtype_flag(d));
    }
  };
  look(!any_kv_dtype);
  if (found.empty() && !any_kv_dtype) {
    look(false);
    if (found.empty()) return explain_head_size(trace, why);
    return error(Code::Unsupported,
                 "`kv_cache_dtype` {}: {} has no kernels for this model's cache in it; allowed: auto",
                 dtype_flag(trace.kv_dtype), device);
  }
  if (found.empty()) return explain_head_size(trace, why);
  log::debug("{}", why.message());
  if (!any_dtype)
    return error(Code::Unsupported, "`dtype` {}: {} has no kernels for this model in it; allowed: auto, {}",
                 dtype_flag(trace.dtype), device, fmt::join(names, ", "));
  log::notice("`dtype` auto: {} has no kernels for this model in {}; effective: {}", device, dtype_flag(trace.dtype),
              names.front());
  return found.front();
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
                   checkpoint::make_quant_plan(options_.quantization, config_.fields, checkpoint()));
  if (!options_.dtype) {
    const auto [dtype, why] = usual_dtype(config_.fields, checkpoint(), quantisation, platform_.device->info());
    if (!why.empty())
      log::info("`dtype` auto: {} ({}); `dtype` {} is the other one", dtype_flag(dtype), why,
                dtype_flag(dtype == DType::F32 ? DType::BF16 : DType::F32));
    options_.dtype = dtype;
  }
  if (!options_.kv_dtype) options_.kv_dtype = options_.dtype;
  options_.quantization = quantisation.format;
  quantisation.int8_activations = options_.int8_activations;
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

  if (options_.graph.pipeline.expand_latents && !config_.fields.latent)
    return error(Code::Unsupported, "`mla_prefill` expanded: {} has no latent attention; leave it out",
                 config_.fields.architecture);
  if (config_.fields.experts.count > 0)
    options_.graph.pipeline.observe_experts =
        options_.count_experts == CountExperts::On ||
        (options_.count_experts == CountExperts::WhereFree && device.host_visible);
  return Status::ok();
}

// Of the dtype in effect, which the device may have chosen.
void Engine::note_dtype() {
  if (!model_->beyond_float16 || *options_.dtype != DType::F16) return;
  config_.fields.notices.push_back(
      fmt::format("`dtype` float16: activations of {} may exceed its largest number, 65504, and become infinite; "
                  "bfloat16 and float32 hold them",
                  config_.fields.architecture));
  log::notice("{}", config_.fields.notices.back());
}

Status Engine::open() {
  RETURN_IF_ERROR(fill_defaults(options_, platform_.device->info()));
  RETURN_IF_ERROR(check_options());
  RETURN_IF_ERROR(open_checkpoint());
  for (const std::string& text : config_.fields.notices) log::notice("{}", text);
  RETURN_IF_ERROR(choose_context());
  const bool any_dtype = !options_.dtype, any_kv_dtype = !options_.kv_dtype;
  RETURN_IF_ERROR(choose_numbers());
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
  if (models::encodes(*model_, config_.fields)) trace.max_tokens = std::max(trace.max_tokens, options_.context_length);
  options_.chunked_prefill_size = trace.max_tokens;
  trace.max_sequences = options_.max_running_requests;
  trace.max_pages = kv::pages_for(options_.context_length);
  trace.pool_pages = int64_t{1} << 30;  // the pool is not planned by the graph
  trace.sampling = config_.generates();
  trace.images = config_.fields.vision.has_value();
  const DeviceInfo& device = platform_.device->info();
  const bool verifies = device.live_sizes || options_.graph.verify.each > 1;
  trace.most_drafts = options_.most_drafts = verifies && models::step_of(*model_, config_, trace).has_states()
                                                 ? std::min(options_.most_drafts, models::TraceOptions::kMostDrafts)
                                                 : 0;
  RETURN_IF_ERROR(choose_rows(trace));
  nn::register_fused_ops(*platform_.ops);
  choose_streams();
  auto made = std::make_unique<ProgramBuilder>(*model_, config_, platform_, options_.graph);
  ProgramBuilder& builder = *made;
  Status prepared = prepare(builder, trace);
  if (prepared.code() == Code::Unsupported) {
    ASSIGN_OR_RETURN(trace, other_dtypes(builder, trace, any_dtype, any_kv_dtype, prepared));
    options_.dtype = trace.dtype;
    options_.kv_dtype = trace.kv_dtype;
    prepared = prepare(builder, trace);
  }
  RETURN_IF_ERROR(prepared);
  note_dtype();
  trace.max_tokens = options_.chunked_prefill_size;
  step_ = models::step_of(*model_, config_, trace);
  if (!options_.graph.learned_dir.empty()) {
    learned_file_ = name_of_learned(options_, config_, *model_, *platform_.device);
    learn_sizes_from(learned_file_);
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
  RETURN_IF_ERROR(tell_quantisation(*quantisation_, derived));
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
  if (!config_.fields.vision) return Status::ok();
  const DeviceInfo& device = platform_.device->info();
  const std::string& name = config_.fields.architecture;
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
  if (!config_.fields.vision) return Status::ok();
  if (!front()) {
    if (checkpoint_)
      checkpoint_->set_aside([](const checkpoint::CheckpointTensor& t) { return t.name.starts_with("visual."); });
    return Status::ok();
  }
  constexpr int64_t kMostRows = 2048;
  auto tower =
      Tower::prepare(config_, *options_.dtype, std::min(kMostRows, options_.context_length), platform_, options_.graph);
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

Result<LoadFormat> parse_load_format(std::string_view name) {
  if (name == "auto") return LoadFormat::Auto;
  if (name == "safetensors") return LoadFormat::Safetensors;
  if (name == "gguf") return LoadFormat::Gguf;
  if (name == "dummy") return LoadFormat::Dummy;
  return invalid("load format \"{}\" is not known; allowed: auto, safetensors, gguf, dummy", name);
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
