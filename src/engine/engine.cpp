#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log.h"
#include "engine/loader.h"
#include "engine/memory_rules.h"
#include "engine/programs.h"
#include "engine/weight_cache.h"
#include "kv/step_tables.h"
#include "models/model.h"

namespace reprise::engine {
namespace {

using checkpoint::Checkpoint;
using checkpoint::ModelConfigFields;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class ModelEngine final : public Engine {
 public:
  ModelEngine(EngineOptions options, Platform platform)
      : options_(std::move(options)), platform_(std::move(platform)) {}

  Status open();

  const ModelConfigFields& config() const override { return config_.fields; }
  const Checkpoint* checkpoint() const override { return checkpoint_ ? &*checkpoint_ : nullptr; }
  const EngineOptions& options() const override { return options_; }
  Device& device() override { return *platform_.device; }
  StreamStats stream_stats() const override { return stream_->stats(); }
  MemoryReport memory() const override {
    return {params_.bytes(), pool_.bytes(), pool_.shape().page_bytes(), pool_.total_pages(),
            arena_.size() + staging_.bytes()};
  }
  LoadTimes load_times() const override { return times_; }
  int64_t context_length() const override { return options_.context_length; }
  int64_t max_step_tokens() const override { return options_.chunked_prefill_size; }
  int64_t max_step_rows() const override { return options_.max_running_requests; }
  DType dtype() const override { return *options_.dtype; }
  size_t weight_bytes_per_step() const override { return step_bytes_; }
  size_t kv_bytes_per_token() const override { return pool_.shape().token_bytes(); }
  std::string graph_text() const override { return graph_text_; }
  const StepRunner* decode_runner() const override { return decode_.get(); }
  const StepRunner* prefill_runner() const override { return prefill_.get(); }
  const PipelineReport* decode_passes() const override { return &decode_passes_; }
  const PipelineReport* prefill_passes() const override { return &prefill_passes_; }

  Status reserve(Sequence& sequence, int64_t tokens) override;
  void release(Sequence& sequence) override {
    pool_.release(sequence.pages());
    sequence.pages().clear();
    sequence.set_cached(0);
  }
  int64_t free_pages() const override { return pool_.free_pages(); }
  Result<std::span<float>> step(std::span<const StepItem> items) override;
  Status set_trace(Trace* trace) override { return stream_->set_trace(trace); }

 private:
  Status check_options() const;
  Status open_checkpoint();
  Status choose_context();
  DType choose_dtype() const;
  Status load(const ProgramBuilder& builder);
  Result<int64_t> choose_kv_pages() const;
  Status stage_logit_rows(std::span<const StepItem> items, int64_t& rows);
  Status compile(ProgramBuilder& builder);

  EngineOptions options_;
  Platform platform_;  // outlives everything below, which holds its memory
  models::ModelConfig config_;
  std::optional<Checkpoint> checkpoint_;
  ParamStore params_;
  kv::KvPool pool_;
  Buffer arena_;
  Staging staging_;
  std::unique_ptr<StepRunner> decode_, prefill_;
  PipelineReport decode_passes_, prefill_passes_;
  std::unique_ptr<Stream> stream_;
  kv::StepBuffers buffers_;
  std::span<int32_t> last_rows_;
  std::vector<kv::SequencePart> parts_;  // kept to avoid allocating per step
  LoadTimes times_;
  size_t step_bytes_ = 0;
  std::string graph_text_;
};

Status ModelEngine::check_options() const {
  auto range = [](std::string_view flag, int64_t v, int64_t lo, int64_t hi) {
    return v >= lo && v <= hi ? Status::ok() : invalid("{} {} is out of range; allowed: {} to {}", flag, v, lo, hi);
  };
  RETURN_IF_ERROR(range("--max-running-requests", options_.max_running_requests, 1, 4096));
  RETURN_IF_ERROR(range("--chunked-prefill-size", options_.chunked_prefill_size, 1, 65536));
  RETURN_IF_ERROR(range("--context-length", options_.context_length, 0, int64_t{1} << 24));
  RETURN_IF_ERROR(range("--max-total-tokens", options_.max_total_tokens, 0, int64_t{1} << 32));
  if (!(options_.mem_fraction_static > 0 && options_.mem_fraction_static <= 1))
    return invalid("--mem-fraction-static {} is out of range; allowed: above 0, up to 1", options_.mem_fraction_static);
  for (auto& d : {options_.dtype, options_.kv_dtype})
    if (d && *d != DType::F32 && *d != DType::F16 && *d != DType::BF16)
      return invalid("dtype {} is not a model dtype; allowed: float32, float16, bfloat16", dtype_name(*d));
  return Status::ok();
}

Status ModelEngine::open_checkpoint() {
  if (options_.load_format == LoadFormat::Dummy) {
    ASSIGN_OR_RETURN(config_.fields, checkpoint::read_model_config(options_.model_path, options_.overrides));
    return Status::ok();
  }
  ASSIGN_OR_RETURN(auto opened, Checkpoint::open(options_.model_path));
  const bool gguf = opened.format() == Checkpoint::Format::Gguf;
  if (options_.load_format == LoadFormat::Gguf && !gguf)
    return invalid("{}: not a GGUF file, but --load-format gguf was given", options_.model_path);
  if (options_.load_format == LoadFormat::Safetensors && gguf)
    return invalid("{}: a GGUF file, but --load-format safetensors was given", options_.model_path);
  checkpoint_.emplace(std::move(opened));
  if (gguf) {
    ASSIGN_OR_RETURN(config_.fields, checkpoint::read_model_config(*checkpoint_->gguf(), options_.overrides));
  } else {
    ASSIGN_OR_RETURN(config_.fields, checkpoint::read_model_config(options_.model_path, options_.overrides));
  }
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

Status ModelEngine::choose_context() {
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
    case checkpoint::RopeKind::None:
    case checkpoint::RopeKind::Llama3: break;
  }
  if (options_.context_length == 0) options_.context_length = f.max_position_embeddings;
  if (static_cast<double>(options_.context_length) > longest)
    return invalid(
        "--context-length {} is more than the model's {}; set max_position_embeddings with --override to try it anyway",
        options_.context_length, static_cast<int64_t>(longest));
  return Status::ok();
}

// What the checkpoint says. GGUF does not say: there fp32 up to a gigabyte of weights, because rounding shows most in
// small models (bf16 turns SmolLM2's first word about the capital of France) and they are fast all the same; bf16
// above.
DType ModelEngine::choose_dtype() const {
  if (config_.fields.dtype) return *config_.fields.dtype;
  if (!checkpoint_) return DType::BF16;
  int64_t elements = 0;
  for (auto& t : checkpoint_->tensors()) elements += t.elements();
  constexpr int64_t kSmall = 250'000'000;
  return elements <= kSmall ? DType::F32 : DType::BF16;
}

Result<int64_t> ModelEngine::choose_kv_pages() const {
  const kv::KvShape shape{config_.fields.num_hidden_layers, config_.fields.num_key_value_heads, config_.fields.head_dim,
                          *options_.kv_dtype};
  if (options_.max_total_tokens > 0) return kv::pages_for(options_.max_total_tokens);
  // Enough for every running request at full length, but no more than the memory fraction leaves.
  const int64_t wanted = options_.max_running_requests * kv::pages_for(options_.context_length);
  return kv_pages_that_fit({static_cast<double>(platform_.device->info().memory_bytes), options_.mem_fraction_static,
                            static_cast<double>(params_.bytes()), static_cast<double>(shape.page_bytes())},
                           wanted);
}

Status ModelEngine::load(const ProgramBuilder& builder) {
  const auto start = std::chrono::steady_clock::now();
  LoadOptions load;
  load.threads = platform_.device->info().ranks;
  load.progress = options_.progress;
  load.tied_head = config_.fields.tie_word_embeddings;
  load.packed = builder.packed();
  if (checkpoint_)
    RETURN_IF_ERROR(load_params_cached(
        *checkpoint_, params_, load,
        {options_.weight_cache, platform_.device->info().isa, platform_.device->info().host_visible}));
  else
    RETURN_IF_ERROR(fill_random(params_, options_.random_seed, load));
  times_.load_s = seconds_since(start);
  return Status::ok();
}

Status ModelEngine::open() {
  RETURN_IF_ERROR(fill_defaults(options_, platform_.device->info()));
  RETURN_IF_ERROR(check_options());
  RETURN_IF_ERROR(open_checkpoint());
  RETURN_IF_ERROR(choose_context());
  if (!options_.dtype) options_.dtype = choose_dtype();
  if (!options_.kv_dtype) options_.kv_dtype = options_.dtype;
  ASSIGN_OR_RETURN(const models::ModelSpec* spec, models::find_model(config_.fields.architecture));
  const DeviceInfo& device = platform_.device->info();
  if (!device.host_visible || device.index_dtype != DType::I32)
    return error(Code::Unsupported,
                 "{}: this build fills parameters and tables in memory that the host writes, with i32 indices; the "
                 "device has {} memory and {} indices",
                 device.name, device.host_visible ? "such" : "its own", dtype_name(device.index_dtype));

  const auto start = std::chrono::steady_clock::now();
  models::TraceOptions trace;
  trace.dtype = *options_.dtype;
  trace.kv_dtype = *options_.kv_dtype;
  trace.max_tokens = std::max(options_.chunked_prefill_size, options_.max_running_requests);
  options_.chunked_prefill_size = trace.max_tokens;
  trace.max_sequences = options_.max_running_requests;
  trace.max_pages = kv::pages_for(options_.context_length);
  trace.pool_pages = int64_t{1} << 30;  // the pool is not planned by the graph
  nn::register_fused_ops(*platform_.ops);
  ProgramBuilder builder(*spec, config_, platform_, options_.graph);
  RETURN_IF_ERROR(builder.prepare(trace));
  graph_text_ = builder.graph_text();
  decode_passes_ = builder.report(Phase::Decode);
  prefill_passes_ = builder.report(Phase::Prefill);
  ASSIGN_OR_RETURN(params_, ParamStore::create(builder.params(), platform_.device->pool()));
  times_.compile_s = seconds_since(start);
  RETURN_IF_ERROR(load(builder));

  const ModelConfigFields& f = config_.fields;
  ASSIGN_OR_RETURN(int64_t pages, choose_kv_pages());
  ASSIGN_OR_RETURN(
      pool_, kv::KvPool::create(platform_.device->pool(),
                                {f.num_hidden_layers, f.num_key_value_heads, f.head_dim, *options_.kv_dtype}, pages));
  options_.max_total_tokens = pages * kv::kPageTokens;
  buffers_.columns = trace.max_pages;
  RETURN_IF_ERROR(compile(builder));

  // The embedding table is read row by row, unless it is the head as well.
  for (auto& p : params_.params())
    if (p.name != "model.embed_tokens.weight" || f.tie_word_embeddings) step_bytes_ += p.bytes;
  return Status::ok();
}

Status ModelEngine::compile(ProgramBuilder& builder) {
  const auto start = std::chrono::steady_clock::now();
  MemoryPool& memory = platform_.device->pool();
  ProgramBuilder::Bindings bindings;
  bindings.params = &params_;
  bindings.staging = &staging_;
  bindings.progress = options_.progress;
  for (int64_t l = 0; l < config_.fields.num_hidden_layers; ++l)
    bindings.external[fmt::format("kv.{}", l)] = pool_.layer(l);
  builder.declare_inputs(staging_, bindings.external);
  RETURN_IF_ERROR(staging_.allocate(*platform_.device));
  ASSIGN_OR_RETURN(arena_, memory.allocate(builder.arena_bytes(), "activations"));
  bindings.arena = arena_.data();
  ASSIGN_OR_RETURN(prefill_, builder.build(Phase::Prefill, bindings));
  ASSIGN_OR_RETURN(decode_, builder.build(Phase::Decode, bindings));
  ASSIGN_OR_RETURN(stream_, platform_.device->make_stream());

  auto ints = [&](std::string_view name) -> Result<std::span<int32_t>> {
    ASSIGN_OR_RETURN(TensorView v, staging_.input(name));
    return std::span<int32_t>(static_cast<int32_t*>(v.data), static_cast<size_t>(v.elements()));
  };
  ASSIGN_OR_RETURN(buffers_.tokens, ints("tokens"));
  ASSIGN_OR_RETURN(buffers_.positions, ints("positions"));
  ASSIGN_OR_RETURN(buffers_.slots, ints("slots"));
  ASSIGN_OR_RETURN(buffers_.page_table, ints("page_table"));
  ASSIGN_OR_RETURN(buffers_.context_lens, ints("context_lens"));
  ASSIGN_OR_RETURN(buffers_.query_starts, ints("query_starts"));
  ASSIGN_OR_RETURN(last_rows_, ints("last_rows"));
  times_.capture_s = seconds_since(start);
  return Status::ok();
}

Status ModelEngine::reserve(Sequence& sequence, int64_t tokens) {
  if (tokens > options_.context_length)
    return invalid("{} tokens are more than the context length of {}", tokens, options_.context_length);
  const int64_t more = kv::pages_for(tokens) - static_cast<int64_t>(sequence.pages().size());
  if (more <= 0) return Status::ok();
  ASSIGN_OR_RETURN(auto pages, pool_.allocate(more));
  sequence.pages().insert(sequence.pages().end(), pages.begin(), pages.end());
  return Status::ok();
}

Status ModelEngine::stage_logit_rows(std::span<const StepItem> items, int64_t& rows) {
  int64_t row = 0;
  rows = 0;
  for (const StepItem& item : items) {
    const int64_t wanted = item.wants_all_logits ? item.count : (item.wants_logits ? 1 : 0);
    if (rows + wanted > static_cast<int64_t>(last_rows_.size()))
      return invalid("more than {} rows with logits in one step (--max-running-requests sets this)", last_rows_.size());
    for (int64_t i = item.count - wanted; i < item.count; ++i) last_rows_[rows++] = static_cast<int32_t>(row + i);
    row += item.count;
  }
  std::fill(last_rows_.begin() + rows, last_rows_.end(), 0);
  return Status::ok();
}

Result<std::span<float>> ModelEngine::step(std::span<const StepItem> items) {
  parts_.clear();
  const auto vocab = static_cast<int32_t>(config_.fields.vocab_size);
  for (const StepItem& item : items) {
    const Sequence& s = *item.sequence;
    if (item.count < 1 || item.count > s.uncached())
      return invalid("{} tokens of a sequence with {} uncached ones", item.count, s.uncached());
    for (int64_t t = s.cached(); t < s.cached() + item.count; ++t)
      if (s.tokens()[t] < 0 || s.tokens()[t] >= vocab)
        return invalid("token id {} is outside the vocabulary of {}", s.tokens()[t], vocab);
    parts_.push_back({s.tokens(), s.pages(), s.cached(), item.count});
  }
  ASSIGN_OR_RETURN(kv::StepCounts n, kv::fill(parts_, buffers_));
  int64_t rows = 0;
  RETURN_IF_ERROR(stage_logit_rows(items, rows));
  LiveSizes live;
  live.value[models::kTokens] = n.tokens;
  live.value[models::kSequences] = n.sequences;
  live.value[models::kQueryBorders] = n.sequences + 1;
  live.value[models::kLogitRows] = rows;
  live.value[models::kPoolPages] = pool_.total_pages() + 1;
  const bool decode = n.tokens == n.sequences;  // one token each
  StepRunner& runner = decode ? *decode_ : *prefill_;
  RETURN_IF_ERROR(runner.run(n.tokens, live, *stream_));
  for (const StepItem& item : items) item.sequence->set_cached(item.sequence->cached() + item.count);
  ASSIGN_OR_RETURN(TensorView logits, runner.output("logits"));
  return std::span<float>(static_cast<float*>(logits.data), static_cast<size_t>(logits.elements()));
}

}  // namespace

Result<LoadFormat> parse_load_format(std::string_view name) {
  if (name == "auto") return LoadFormat::Auto;
  if (name == "safetensors") return LoadFormat::Safetensors;
  if (name == "gguf") return LoadFormat::Gguf;
  if (name == "dummy") return LoadFormat::Dummy;
  return invalid("load format \"{}\" is not known; allowed: auto, safetensors, gguf, dummy", name);
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, Platform platform) {
  auto engine = std::make_unique<ModelEngine>(options, std::move(platform));
  RETURN_IF_ERROR(engine->open());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace reprise::engine
