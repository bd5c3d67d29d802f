#include "engine/model_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/fit_to_tensors.h"
#include "engine/engine_options.h"
#include "models/foreign_fields.h"
#include "models/missing.h"

namespace reprise::engine {
namespace {

using checkpoint::Checkpoint;
using checkpoint::CheckpointTensor;

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

Result<ModelFiles> ModelFiles::open(const EngineOptions& options) {
  ModelFiles files;
  RETURN_IF_ERROR(files.open_checkpoint(options));
  return files;
}

// Whether the architecture is known, and whether its fields are, is told before the weights are looked at.
Status ModelFiles::read_config(const EngineOptions& o) {
  std::vector<const checkpoint::Family*> list;
  for (const models::ModelSpec* m : o.families) list.push_back(&m->family);
  // A head of EAGLE is no model, and may have the name of one.
  if (o.borrows_from.empty())
    for (const models::ModelSpec* m : models::all_models()) list.push_back(&m->family);
  const checkpoint::Families known{list, false, models::missing_families()};
  if (checkpoint && checkpoint->gguf()) {
    ASSIGN_OR_RETURN(config.fields,
                     checkpoint::read_model_config(*checkpoint->gguf(), o.overrides, known, checkpoint->mmproj()));
  } else {
    ASSIGN_OR_RETURN(config.fields, checkpoint::read_model_config(o.model_path, o.overrides, known));
  }
  for (const models::ModelSpec* m : o.families)
    if (!spec && m->family.architecture == config.fields.architecture) spec = m;
  if (!spec) {
    ASSIGN_OR_RETURN(spec, models::find_model(config.fields.architecture));
  }
  RETURN_IF_ERROR(models::check_fields(*spec, config.fields));
  if (o.prediction) RETURN_IF_ERROR(find_prediction());
  return read_pooling(o);
}

Status ModelFiles::read_pooling(const EngineOptions& o) {
  checkpoint::PoolingFields& p = config.pooling;
  std::error_code ec;
  if (std::filesystem::is_directory(o.model_path, ec)) {
    ASSIGN_OR_RETURN(p, checkpoint::read_pooling(o.model_path, config.fields));
  } else if (checkpoint && checkpoint->gguf()) {
    ASSIGN_OR_RETURN(p, checkpoint::read_pooling(*checkpoint->gguf()));
    if (p.kind == checkpoint::PoolKind::Labels && spec->pooling != p.kind && !o.pooling)
      return error(Code::Unsupported, "{}: metadata \"pooling_type\" is 4 (rank); {} has no classifier that is read",
                   checkpoint->gguf()->source(), config.fields.architecture);
    if (spec->pooling != p.kind && p.kind == checkpoint::PoolKind::Labels) p.kind = checkpoint::PoolKind::None;
  }
  if (spec->pooling == checkpoint::PoolKind::Labels) p.kind = spec->pooling;
  if (o.pooling && p.gives_scores())
    return invalid("`pooling` {}: {} gives scores of pairs; allowed: auto", checkpoint::pool_kind_name(*o.pooling),
                   config.fields.architecture);
  const bool encoder = models::encodes(*spec, config.fields);
  if (p.kind == checkpoint::PoolKind::None && !o.pooling && encoder) {
    p.kind = models::usual_pooling(*spec);
    p.normalise = true;
    config.fields.notices.push_back(fmt::format(
        "no file says how rows become a vector ({}); effective: {}, of length 1 (`pooling` sets another)",
        checkpoint && checkpoint->gguf() ? "pooling_type" : "modules.json", checkpoint::pool_kind_name(p.kind)));
  }
  if (o.pooling && *o.pooling != p.kind) {
    p.normalise |= p.kind == checkpoint::PoolKind::None;
    p.kind = *o.pooling;
  }
  const std::string_view name = config.fields.architecture;
  if (encoder && p.kind == checkpoint::PoolKind::None)
    return invalid("`pooling` none: {} gives vectors or scores; allowed: auto, mean, cls, last", name);
  if (!encoder && p.kind == checkpoint::PoolKind::First)
    return invalid("`pooling` cls: the first row of {} sees no other; allowed: auto, last, mean, none", name);
  const bool may_be_cut = p.least_size > 0 || !p.sizes.empty();
  if (may_be_cut) return Status::ok();
  if (p.kind == checkpoint::PoolKind::Last) p.least_size = spec->least_size;
  if (encoder && p.kind == spec->pooling)
    for (const int64_t size : spec->sizes_of_vectors)
      if (size < config.fields.hidden_size) p.sizes.push_back(size);
  return Status::ok();
}

// What the model gives, by its files and `pooling`.
Status ModelFiles::open_checkpoint(const EngineOptions& o) {
  std::error_code ec;
  const bool folder = std::filesystem::is_directory(o.model_path, ec);
  if (!o.mmproj_path.empty() && (folder || o.load_format == LoadFormat::Dummy))
    return invalid("`mmproj` {}: {}; allowed with a model of one GGUF file", o.mmproj_path,
                   folder ? o.model_path + " is a folder, whose vision tower is among its own tensors"
                          : "`load_format` dummy reads no weights");
  if (folder || o.load_format == LoadFormat::Dummy) RETURN_IF_ERROR(read_config(o));
  if (o.load_format == LoadFormat::Dummy) return Status::ok();
  ASSIGN_OR_RETURN(auto opened, Checkpoint::open(o.model_path, models::families()));
  const bool gguf = opened.format() == Checkpoint::Format::Gguf;
  if (o.load_format == LoadFormat::Gguf && !gguf)
    return invalid("{}: not a GGUF file, but `load_format` gguf was given", o.model_path);
  if (o.load_format == LoadFormat::Safetensors && gguf)
    return invalid("{}: a GGUF file, but `load_format` safetensors was given", o.model_path);
  checkpoint.emplace(std::move(opened));
  if (!o.mmproj_path.empty()) {
    if (!gguf) return invalid("`mmproj` {}: {} is no GGUF file", o.mmproj_path, o.model_path);
    auto mmproj = checkpoint::GgufFile::open(o.mmproj_path);
    if (!mmproj) return mmproj.status().at("`mmproj`");
    RETURN_IF_ERROR(checkpoint->add_mmproj(std::move(*mmproj), models::families()));
  }
  if (!folder) RETURN_IF_ERROR(read_config(o));
  for (size_t i = 0; folder && i < config.pooling.dense.size(); ++i) {
    const std::string path = fmt::format("{}/{}", o.model_path, config.pooling.dense[i].folder);
    ASSIGN_OR_RETURN(auto dense, Checkpoint::open(path, models::families()));
    RETURN_IF_ERROR(checkpoint->borrow(
        std::move(dense), [](const CheckpointTensor&) { return true; }, checkpoint::dense_name(i)));
  }
  if (o.prediction) RETURN_IF_ERROR(open_prediction(o));
  if (!o.borrows_from.empty()) RETURN_IF_ERROR(open_trained_head(o));
  checkpoint::fit_to_tensors(config.fields, *checkpoint, o.prediction_beside);
  if (config.fields.vision) checkpoint->make_matrix("visual.patch_embed.proj.weight");    // a convolution's
  if (o.prediction_beside && spec->prediction && !spec->prediction->own_tensors.empty())  // the other engine reads them
    checkpoint->set_aside([&](const CheckpointTensor& t) { return t.name.starts_with(spec->prediction->own_tensors); });
  const size_t unread = checkpoint->set_aside([&](const CheckpointTensor& t) {
    return std::any_of(spec->unread.begin(), spec->unread.end(),
                       [&](std::string_view begin) { return t.name.starts_with(begin); });
  });
  if (unread > 0)
    config.fields.notices.push_back(fmt::format("{} tensors that {} does not read are not loaded ({})", unread,
                                                config.fields.architecture, fmt::join(spec->unread, ", ")));
  if (config.fields.has_rope_freqs) {
    ASSIGN_OR_RETURN(const CheckpointTensor* t, checkpoint->get("rope_freqs.weight"));
    std::vector<float> freqs(static_cast<size_t>(t->elements()));
    RETURN_IF_ERROR(checkpoint->read_rows(*t, 0, t->rows(), DType::F32, freqs.data()));
    for (float f : freqs) {
      if (!(f > 0) || !std::isfinite(f))
        return invalid("{}: rope_freqs.weight holds {}; it divides frequencies and must be positive",
                       checkpoint->source(), f);
      config.rope_divisors.push_back(f);
    }
  }
  return Status::ok();
}

// The family's layer behind the last one stands for the model.
Status ModelFiles::find_prediction() {
  checkpoint::ModelConfigFields& f = config.fields;
  if (!spec->prediction)
    return error(Code::Unsupported,
                 "`speculative_algorithm` NEXTN: {} has no layer here that predicts further tokens; allowed: NGRAM, "
                 "SUFFIX, STANDALONE, none, and EAGLE, EAGLE3 with `speculative_draft_model_path`",
                 f.architecture);
  spec = spec->prediction;
  const bool counted = !spec->count_field.empty();
  int64_t layers = counted ? 1 : f.nextn_layers;
  if (const auto n = f.raw().find(spec->count_field); counted && n != f.raw().end() && n->is_number_integer())
    layers = n->get<int64_t>();
  if (layers < 1)
    return invalid("`speculative_algorithm` NEXTN: {}: {} is {}: it has no layer that predicts further tokens",
                   f.source, counted ? spec->count_field : "num_nextn_predict_layers", layers);
  if (counted && layers > 1)
    return error(Code::Unsupported, "`speculative_algorithm` NEXTN: {}: {} is {}; allowed: 1, for drafts", f.source,
                 spec->count_field, layers);
  f.nextn_layers = 0;  // nothing is behind it
  f.vision.reset();    // it guesses by tokens alone
  return Status::ok();
}

// Opens the checkpoint's layer that predicts further tokens, and what that layer shares with the model.
Status ModelFiles::open_prediction(const EngineOptions& o) {
  if (checkpoint->gguf())
    return error(Code::Unsupported,
                 "`speculative_algorithm` NEXTN: {}: layers that predict further tokens are read "
                 "from safetensors; allowed for GGUF: NGRAM, SUFFIX, STANDALONE, none",
                 o.model_path);
  const std::string own = spec->own_tensors.empty() ? fmt::format("model.layers.{}.", config.fields.num_hidden_layers)
                                                    : std::string(spec->own_tensors);
  checkpoint->set_aside([&](const CheckpointTensor& t) {
    if (t.name == kEmbeddingWeight || t.name == kHeadWeight) return false;
    return !t.name.starts_with(own) || t.name.starts_with(own + "embed_tokens.") ||
           t.name.starts_with(own + "shared_head.head.");
  });
  for (const CheckpointTensor& t : checkpoint->tensors())
    if (t.name.starts_with(own)) return Status::ok();
  return invalid("`speculative_algorithm` NEXTN: {}: no tensor of {}*, which would predict further tokens",
                 checkpoint->source(), own);
}

// The head's own tensors, and the embedding and the head of the model.
Status ModelFiles::open_trained_head(const EngineOptions& o) {
  ASSIGN_OR_RETURN(auto model, checkpoint::Checkpoint::open(o.borrows_from, models::families()));
  if (model.gguf() || checkpoint->gguf())
    return error(Code::Unsupported,
                 "`speculative_draft_model_path` {}: heads of EAGLE and their models are read from "
                 "safetensors; {} is GGUF",
                 o.model_path, model.gguf() ? o.borrows_from : o.model_path);
  const CheckpointTensor* embedding = model.find(kEmbeddingWeight);
  const std::vector<int64_t> wanted{config.fields.vocab_size, config.fields.hidden_size};
  if (!embedding || embedding->shape != wanted)
    return invalid(
        "`speculative_draft_model_path` {}: it is for an embedding of {} and {} has {}; allowed: a head that "
        "was trained for this model",
        o.model_path, fmt::join(wanted, " x "), o.borrows_from,
        embedding ? fmt::format("{}", fmt::join(embedding->shape, " x ")) : "none");
  const CheckpointTensor* ids = checkpoint->find("d2t");
  if (ids && spec->own_head) {  // offsets: the model's id of token i is i + d2t[i]
    const auto bytes = checkpoint->raw(*ids);
    const auto count = static_cast<size_t>(config.fields.number("draft_vocab_size"));
    if (ids->type_name != "I64" || bytes.size() != count * sizeof(int64_t))
      return invalid("{}: d2t is {} of {} numbers; allowed: I64 of draft_vocab_size {}", checkpoint->source(),
                     ids->type_name, ids->elements(), count);
    for (size_t i = 0; i < count; ++i) {
      int64_t offset = 0;
      std::memcpy(&offset, bytes.data() + i * sizeof offset, sizeof offset);
      const int64_t id = static_cast<int64_t>(i) + offset;
      if (id < 0 || id >= config.fields.vocab_size)
        return invalid("{}: d2t gives token {} the id {}; allowed: 0 to {}", checkpoint->source(), i, id,
                       config.fields.vocab_size - 1);
      target_ids.push_back(static_cast<int32_t>(id));
    }
  }
  if (spec->own_head && !ids && config.fields.number("draft_vocab_size") != static_cast<double>(wanted[0]))
    return invalid("{}: d2t is missing, which says what the head's {} tokens are in the model", checkpoint->source(),
                   config.fields.number("draft_vocab_size"));
  if (checkpoint->find("fc.bias")) {
    if (spec->own_head)
      return error(Code::Unsupported, "{}: fc.bias is there; allowed for {}: fc.weight alone", checkpoint->source(),
                   config.fields.architecture);
    config.fields.numbers["fc_bias"] = 1;
    config.fields.raw_json["fc_bias"] = true;  // what programs are cached by
  }
  const bool has_head = checkpoint->find(kHeadWeight) != nullptr && spec->own_head;
  if (!has_head && spec->own_head && config.fields.number("draft_vocab_size") != static_cast<double>(wanted[0]))
    return invalid("{}: {} is missing, and that of the model has other tokens than the head's draft_vocab_size {}",
                   checkpoint->source(), kHeadWeight, config.fields.number("draft_vocab_size"));
  checkpoint->set_aside([&](const CheckpointTensor& t) {
    return t.name == "d2t" || t.name == "t2d" || t.name == kEmbeddingWeight || (t.name == kHeadWeight && !has_head);
  });
  own_logits_head = has_head;
  const bool tied = !model.find(kHeadWeight);
  RETURN_IF_ERROR(checkpoint->borrow(std::move(model), [&](const CheckpointTensor& t) {
    return t.name == kEmbeddingWeight || (t.name == kHeadWeight && !has_head);
  }));
  config.fields.tie_word_embeddings = !has_head && tied;
  config.fields.raw_json["tie_word_embeddings"] = config.fields.tie_word_embeddings;
  return Status::ok();
}

Result<int64_t> ModelFiles::choose_context(int64_t asked) {
  int64_t length = asked;
  const checkpoint::ModelConfigFields& f = config.fields;
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
  const int64_t usual = config.pooling.max_tokens;
  if (length == 0) {
    // One step has all rows of a text, so that long texts take memory even where none comes.
    constexpr int64_t kUsualText = 8192;
    const bool cut = usual == 0 && f.both_sides && f.max_position_embeddings > kUsualText;
    length = usual > 0 ? std::min(usual, f.max_position_embeddings) : cut ? kUsualText : f.max_position_embeddings;
    if (cut) {
      config.fields.notices.push_back(
          fmt::format("no file says how long texts are (sentence_bert_config.json); effective: {} tokens "
                      "(`context_length` sets another, up to {})",
                      kUsualText, f.max_position_embeddings));
      log::notice("{}", config.fields.notices.back());
    }
  }
  if (static_cast<double>(length) > longest)
    return invalid(
        "`context_length` {} is more than the model's {}; set max_position_embeddings with `override` to try it anyway",
        length, static_cast<int64_t>(longest));
  if (f.rope.long_positions > 0) choose_factors(config.fields.rope, f.max_position_embeddings, length);
  return length;
}

Result<std::vector<int64_t>> ModelFiles::kept_rows(const EngineOptions& o) const {
  const int64_t layers = config.fields.num_hidden_layers;
  if (o.kept_rows == KeptRows::Last) return std::vector<int64_t>{layers};
  if (o.kept_rows != KeptRows::Layers) return std::vector<int64_t>();
  std::vector<int64_t> kept = o.kept_layers;
  if (kept.empty()) {
    if (layers < 7)
      return invalid(
          "`speculative_algorithm` EAGLE3: the model has {} layers, and the head reads in front of layers 2, "
          "N/2 and N - 3; allowed: 7 or more, or eagle_config with other layers",
          layers);
    kept = {2, layers / 2, layers - 3};
  }
  for (const int64_t l : kept)
    if (l < 0 || l > layers || (l == layers && !o.kept_layers.empty()))
      return invalid("`speculative_draft_model_path`: rows of layer {} of {} are asked for; allowed: 0 to {}", l,
                     layers, layers - 1);
  return kept;
}

}  // namespace reprise::engine
