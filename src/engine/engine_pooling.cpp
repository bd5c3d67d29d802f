// Engine: how rows become a vector or a score, of what the files, the family and the settings say.
#include <filesystem>

#include "engine/engine.h"

namespace reprise::engine {

Status Engine::read_pooling() {
  checkpoint::PoolingFields& p = config_.pooling;
  std::error_code ec;
  if (std::filesystem::is_directory(options_.model_path, ec)) {
    ASSIGN_OR_RETURN(p, checkpoint::read_pooling(options_.model_path, config_.fields));
  } else if (checkpoint_ && checkpoint_->gguf()) {
    ASSIGN_OR_RETURN(p, checkpoint::read_pooling(*checkpoint_->gguf()));
    if (p.kind == checkpoint::PoolKind::Labels && model_->pooling != p.kind && !options_.pooling)
      return error(Code::Unsupported, "{}: metadata \"pooling_type\" is 4 (rank); {} has no classifier that is read",
                   checkpoint_->gguf()->source(), config_.fields.architecture);
    if (model_->pooling != p.kind && p.kind == checkpoint::PoolKind::Labels) p.kind = checkpoint::PoolKind::None;
  }
  if (model_->pooling == checkpoint::PoolKind::Labels) p.kind = model_->pooling;
  if (options_.pooling && p.gives_scores())
    return invalid("`pooling` {}: {} gives scores of pairs; allowed: auto",
                   checkpoint::pool_kind_name(*options_.pooling), config_.fields.architecture);
  const bool encoder = models::encodes(*model_, config_.fields);
  if (p.kind == checkpoint::PoolKind::None && !options_.pooling && encoder) {
    p.kind = models::usual_pooling(*model_);
    p.normalise = true;
    config_.fields.notices.push_back(fmt::format(
        "no file says how rows become a vector ({}); effective: {}, of length 1 (`pooling` sets another)",
        checkpoint_ && checkpoint_->gguf() ? "pooling_type" : "modules.json", checkpoint::pool_kind_name(p.kind)));
  }
  if (options_.pooling && *options_.pooling != p.kind) {
    p.normalise |= p.kind == checkpoint::PoolKind::None;
    p.kind = *options_.pooling;
  }
  const std::string_view name = config_.fields.architecture;
  if (encoder && p.kind == checkpoint::PoolKind::None)
    return invalid("`pooling` none: {} gives vectors or scores; allowed: auto, mean, cls, last", name);
  if (!encoder && p.kind == checkpoint::PoolKind::First)
    return invalid("`pooling` cls: the first row of {} sees no other; allowed: auto, last, mean, none", name);
  const bool may_be_cut = p.least_size > 0 || !p.sizes.empty();
  if (may_be_cut) return Status::ok();
  if (p.kind == checkpoint::PoolKind::Last) p.least_size = model_->least_size;
  if (encoder && p.kind == model_->pooling)
    for (const int64_t size : model_->sizes_of_vectors)
      if (size < config_.fields.hidden_size) p.sizes.push_back(size);
  return Status::ok();
}

}  // namespace reprise::engine
