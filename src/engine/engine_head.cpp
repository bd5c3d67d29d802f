// Heads that draft from hidden states: what they are made of, and the rows that a model keeps for them.
#include <cstring>

#include "engine/engine.h"
#include "models/draft_head.h"

namespace reprise::engine {
namespace {

using checkpoint::CheckpointTensor;

constexpr std::string_view kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight";

}  // namespace

// The family's layer behind the last one stands for the model.
Status Engine::find_prediction() {
  checkpoint::ModelConfigFields& f = config_.fields;
  if (!model_->prediction)
    return error(Code::Unsupported,
                 "`speculative_algorithm` NEXTN: {} has no layer here that predicts further tokens; allowed: NGRAM, "
                 "SUFFIX, STANDALONE, none, and EAGLE, EAGLE3 with `speculative_draft_model_path`",
                 f.architecture);
  model_ = model_->prediction;
  const bool counted = !model_->count_field.empty();
  int64_t layers = counted ? 1 : f.nextn_layers;
  if (const auto n = f.raw().find(model_->count_field); counted && n != f.raw().end() && n->is_number_integer())
    layers = n->get<int64_t>();
  if (layers < 1)
    return invalid("`speculative_algorithm` NEXTN: {}: {} is {}: it has no layer that predicts further tokens",
                   f.source, counted ? model_->count_field : "num_nextn_predict_layers", layers);
  if (counted && layers > 1)
    return error(Code::Unsupported, "`speculative_algorithm` NEXTN: {}: {} is {}; allowed: 1, for drafts", f.source,
                 model_->count_field, layers);
  f.nextn_layers = 0;  // nothing is behind it
  f.vision.reset();    // it guesses by tokens alone
  return Status::ok();
}

// Opens the checkpoint's layer that predicts further tokens, and what that layer shares with the model.
Status Engine::open_prediction() {
  if (checkpoint_->gguf())
    return error(Code::Unsupported,
                 "`speculative_algorithm` NEXTN: {}: layers that predict further tokens are read "
                 "from safetensors; allowed for GGUF: NGRAM, SUFFIX, STANDALONE, none",
                 options_.model_path);
  const std::string own = model_->own_tensors.empty()
                              ? fmt::format("model.layers.{}.", config_.fields.num_hidden_layers)
                              : std::string(model_->own_tensors);
  checkpoint_->set_aside([&](const CheckpointTensor& t) {
    if (t.name == kEmbedding || t.name == kHead) return false;
    return !t.name.starts_with(own) || t.name.starts_with(own + "embed_tokens.") ||
           t.name.starts_with(own + "shared_head.head.");
  });
  for (const CheckpointTensor& t : checkpoint_->tensors())
    if (t.name.starts_with(own)) return Status::ok();
  return invalid("`speculative_algorithm` NEXTN: {}: no tensor of {}*, which would predict further tokens",
                 checkpoint_->source(), own);
}

// The head's own tensors, and the embedding and the head of the model.
Status Engine::open_trained_head() {
  ASSIGN_OR_RETURN(auto model, checkpoint::Checkpoint::open(options_.borrows_from, models::families()));
  if (model.gguf() || checkpoint_->gguf())
    return error(Code::Unsupported,
                 "`speculative_draft_model_path` {}: heads of EAGLE and their models are read from "
                 "safetensors; {} is GGUF",
                 options_.model_path, model.gguf() ? options_.borrows_from : options_.model_path);
  const CheckpointTensor* embedding = model.find(kEmbedding);
  const std::vector<int64_t> wanted{config_.fields.vocab_size, config_.fields.hidden_size};
  if (!embedding || embedding->shape != wanted)
    return invalid(
        "`speculative_draft_model_path` {}: it is for an embedding of {} and {} has {}; allowed: a head that "
        "was trained for this model",
        options_.model_path, fmt::join(wanted, " x "), options_.borrows_from,
        embedding ? fmt::format("{}", fmt::join(embedding->shape, " x ")) : "none");
  const CheckpointTensor* ids = checkpoint_->find("d2t");
  if (ids && model_->own_head) {  // offsets: the model's id of token i is i + d2t[i]
    const auto bytes = checkpoint_->raw(*ids);
    const auto count = static_cast<size_t>(config_.fields.number("draft_vocab_size"));
    if (ids->type_name != "I64" || bytes.size() != count * sizeof(int64_t))
      return invalid("{}: d2t is {} of {} numbers; allowed: I64 of draft_vocab_size {}", checkpoint_->source(),
                     ids->type_name, ids->elements(), count);
    for (size_t i = 0; i < count; ++i) {
      int64_t offset = 0;
      std::memcpy(&offset, bytes.data() + i * sizeof offset, sizeof offset);
      const int64_t id = static_cast<int64_t>(i) + offset;
      if (id < 0 || id >= config_.fields.vocab_size)
        return invalid("{}: d2t gives token {} the id {}; allowed: 0 to {}", checkpoint_->source(), i, id,
                       config_.fields.vocab_size - 1);
      target_ids_.push_back(static_cast<int32_t>(id));
    }
  }
  if (model_->own_head && !ids && config_.fields.number("draft_vocab_size") != static_cast<double>(wanted[0]))
    return invalid("{}: d2t is missing, which says what the head's {} tokens are in the model", checkpoint_->source(),
                   config_.fields.number("draft_vocab_size"));
  if (checkpoint_->find("fc.bias")) {
    if (model_->own_head)
      return error(Code::Unsupported, "{}: fc.bias is there; allowed for {}: fc.weight alone", checkpoint_->source(),
                   config_.fields.architecture);
    config_.fields.numbers["fc_bias"] = 1;
    config_.fields.raw_json["fc_bias"] = true;  // what programs are cached by
  }
  const bool has_head = checkpoint_->find(kHead) != nullptr && model_->own_head;
  if (!has_head && model_->own_head && config_.fields.number("draft_vocab_size") != static_cast<double>(wanted[0]))
    return invalid("{}: {} is missing, and that of the model has other tokens than the head's draft_vocab_size {}",
                   checkpoint_->source(), kHead, config_.fields.number("draft_vocab_size"));
  checkpoint_->set_aside([&](const CheckpointTensor& t) {
    return t.name == "d2t" || t.name == "t2d" || t.name == kEmbedding || (t.name == kHead && !has_head);
  });
  own_logits_head_ = has_head;
  const bool tied = !model.find(kHead);
  RETURN_IF_ERROR(checkpoint_->borrow(std::move(model), [&](const CheckpointTensor& t) {
    return t.name == kEmbedding || (t.name == kHead && !has_head);
  }));
  config_.fields.tie_word_embeddings = !has_head && tied;
  config_.fields.raw_json["tie_word_embeddings"] = config_.fields.tie_word_embeddings;
  return Status::ok();
}

namespace {

// Rows of one tensor as they are stored, such as a rank's.
bool are_rows_of(const DerivedParam& made, std::string_view tensor) {
  return std::all_of(made.parts.begin(), made.parts.end(),
                     [&](const ParamPart& part) { return part.recipe == Recipe::Converted && part.tensor == tensor; });
}

}  // namespace

// The embedding and the logits' head, as far as the head that drafts has them: of the same tensors, in the same form.
std::vector<void*> Engine::lent_params(std::span<const ParamPlan> params, const ProgramBuilder& builder) {
  std::vector<void*> lent(params.size());
  const auto derived = builder.derived();
  for (size_t i = 0; i < params.size(); ++i) {
    const std::string& name = params[i].name;
    const std::string whole = name.substr(0, name.find('['));  // a rank may have a part
    if (whole != kEmbedding && whole != kHead) continue;
    const auto made = std::find_if(derived.begin(), derived.end(), [&](const auto& d) { return d.name == name; });
    if (made != derived.end() && (name == whole || !are_rows_of(*made, whole))) continue;
    if (whole == kHead && own_logits_head_) continue;  // trained for the drafts, under the model's name for its own
    lends_.push_back(name);
    // A file of packed weights holds all of them.
    if (!options_.lender || !options_.weight_cache.empty()) continue;
    const auto& theirs = options_.lender->lends_;
    if (std::find(theirs.begin(), theirs.end(), name) != theirs.end())
      lent[i] = options_.lender->params_.lend(params[i]);
  }
  return lent;
}

// What the model keeps of its hidden states, or reads of another's.
Status Engine::choose_rows(models::TraceOptions& trace) {
  if (model_->source_width) trace.source_width = model_->source_width(config_.fields);
  const int64_t layers = config_.fields.num_hidden_layers;
  if (options_.kept_rows == KeptRows::Last) trace.kept_rows = {layers};
  if (options_.kept_rows != KeptRows::Layers) return Status::ok();
  trace.kept_rows = options_.kept_layers;
  if (trace.kept_rows.empty()) {
    if (layers < 7)
      return invalid(
          "`speculative_algorithm` EAGLE3: the model has {} layers, and the head reads in front of layers 2, "
          "N/2 and N - 3; allowed: 7 or more, or eagle_config with other layers",
          layers);
    trace.kept_rows = {2, layers / 2, layers - 3};
  }
  for (const int64_t l : trace.kept_rows)
    if (l < 0 || l > layers || (l == layers && !options_.kept_layers.empty()))
      return invalid("`speculative_draft_model_path`: rows of layer {} of {} are asked for; allowed: 0 to {}", l,
                     layers, layers - 1);
  return Status::ok();
}

void* Engine::kept_rows() const {
  for (size_t c = 0; c < pool_.shape().caches.size(); ++c)
    if (pool_.shape().caches[c].name == models::kKeptRows) return pool_.cache(c);
  return nullptr;
}

Status Engine::set_source(const Engine& source) {
  const auto* kept = [&]() -> const models::CacheSpec* {
    for (const models::CacheSpec& c : source.step_.caches)
      if (c.name == models::kKeptRows) return &c;
    return nullptr;
  }();
  if (!kept) return error(Code::Internal, "{} keeps no rows for a head that drafts", source.config().architecture);
  const int64_t width = model_->source_width(config_.fields), there = kept->shape[1].factor;
  if (width != there)
    return invalid(
        "`speculative_draft_model_path` {}: it drafts from rows of {} numbers, and those of {} have {}; "
        "allowed: a head that was trained for this model",
        options_.model_path, width, source.config().architecture, there);
  if (dtype() != source.dtype())
    return invalid(
        "`speculative_draft_model_path` {}: it computes in {} and the model in {}; set `dtype`, which both "
        "take",
        options_.model_path, dtype_name(dtype()), dtype_name(source.dtype()));
  source_ = &source;
  bound_source_ = UINT64_MAX;
  return Status::ok();
}

}  // namespace reprise::engine
