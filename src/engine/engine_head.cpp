// Heads that draft from hidden states: what they are made of, and the rows that a model keeps for them.
#include <cstring>

#include "engine/engine.h"
#include "models/draft_head.h"

namespace reprise::engine {
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
    if (whole != kEmbeddingWeight && whole != kHeadWeight) continue;
    const auto made = std::find_if(derived.begin(), derived.end(), [&](const auto& d) { return d.name == name; });
    if (made != derived.end() && (name == whole || !are_rows_of(*made, whole))) continue;
    if (whole == kHeadWeight && files_.own_logits_head)
      continue;  // trained for the drafts, under the model's name for its own
    lends_.push_back(name);
    // A file of packed weights holds all of them.
    if (!options_.lender || !options_.weight_cache.empty()) continue;
    const auto& theirs = options_.lender->lends_;
    if (std::find(theirs.begin(), theirs.end(), name) != theirs.end())
      lent[i] = options_.lender->params_.lend(params[i]);
  }
  return lent;
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
  const int64_t width = files_.spec->source_width(files_.config.fields), there = kept->shape[1].factor;
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
