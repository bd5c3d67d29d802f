#include "api/draft_model.h"

#include <algorithm>

#include "api/text_model.h"
#include "models/draft_head.h"

namespace reprise::api {

ModelSettings draft_settings(const ModelSettings& of_model, const std::string& path) {
  ModelSettings s = of_model;
  s.model_path = path;
  s.tokenizer_path.clear();
  s.mmproj_path.clear();
  const auto options = of_model.speculation.options();  // errors of them were told before
  const spec::Algorithm algorithm = options.is_ok() ? options->algorithm : spec::Algorithm::None;
  const bool trained = algorithm == spec::Algorithm::Eagle || algorithm == spec::Algorithm::Eagle3;
  s.quantization = of_model.speculation.draft_quantization.value_or(trained ? "auto" : of_model.quantization);
  // Where the draft model is another one, its weights need not be in blocks at all.
  if (algorithm != spec::Algorithm::Prediction) s.block_activations = "auto";
  s.load_format = of_model.speculation.draft_load_format.value_or(of_model.load_format);
  s.speculation = {};
  s.pooling = "none";
  s.mla_prefill = "absorbed";
  s.context_length = 0;                  // its own
  s.max_total_tokens = kv::kPageTokens;  // until the model's pool is known
  if (algorithm != spec::Algorithm::Prediction) {
    s.hub.revision.clear();
    s.overrides.clear();
    s.json_overrides.reset();
    s.ep_size = 1;  // it may have other experts, or none
    s.enable_expert_parallel = false;
  }
  // Its weights are of two checkpoints, or of a part of one.
  if (algorithm != spec::Algorithm::Model) s.cache_weights = false;
  s.count_experts = engine::CountExperts::Off;
  s.enable_lora = false;
  s.max_loras.reset();
  s.max_lora_rank.reset();
  s.lora_modules.clear();
  s.graph.faults.clear();
  s.graph.verify_replay = 0;
  return s;
}

void make_head(spec::Algorithm algorithm, const std::string& source, engine::EngineOptions& options) {
  switch (algorithm) {
    case spec::Algorithm::Prediction: options.prediction = true; break;
    case spec::Algorithm::Eagle: options.families.push_back(&models::eagle::kEagle); break;
    case spec::Algorithm::Eagle3: options.families.push_back(&models::eagle::kEagle3); break;
    default: return;
  }
  if (algorithm != spec::Algorithm::Prediction) options.borrows_from = source;
}

Status keep_rows(spec::Algorithm algorithm, const engine::Engine* draft, engine::EngineOptions& options) {
  if (!draft || !draft->reads_source()) return Status::ok();
  options.prediction_beside = algorithm == spec::Algorithm::Prediction;
  options.kept_rows = algorithm == spec::Algorithm::Eagle3 ? engine::KeptRows::Layers : engine::KeptRows::Last;
  if (algorithm != spec::Algorithm::Eagle3) return Status::ok();
  const Json& config = draft->config().raw();
  const auto eagle = config.find("eagle_config");
  if (eagle == config.end() || !eagle->is_object()) return Status::ok();
  const auto ids = eagle->find("eagle_aux_hidden_state_layer_ids");
  if (ids == eagle->end() || ids->is_null()) return Status::ok();
  // Rows behind layer i are those in front of layer i + 1.
  if (ids->is_array() && ids->size() == 3)
    for (const Json& id : *ids)
      if (id.is_number_integer() && id.get<double>() >= 0 && id.get<double>() < 1000)
        options.kept_layers.push_back(id.get<int64_t>() + 1);
  if (options.kept_layers.size() != 3 || !std::is_sorted(options.kept_layers.begin(), options.kept_layers.end()) ||
      std::adjacent_find(options.kept_layers.begin(), options.kept_layers.end()) != options.kept_layers.end())
    return invalid("{}: eagle_config.eagle_aux_hidden_state_layer_ids is {}; allowed: three layers that ascend",
                   draft->config().source, ids->dump());
  return Status::ok();
}

Status check_draft_model(const ModelSettings& of_model, const engine::Engine& model, const ModelSettings& of_draft,
                         const engine::Engine& draft) {
  const std::string& path = of_draft.model_path;
  if (draft.has_states())
    return error(Code::Unsupported,
                 "`speculative_draft_model_path` {}: {} keeps states; allowed: models whose layers all have keys and "
                 "values",
                 path, draft.config().architecture);
  if (draft.reads_source() && draft.vocab_size() == model.vocab_size())
    return Status::ok();  // its tokens are the model's
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(of_model, "", model));
  ASSIGN_OR_RETURN(const TextModel draft_text, TextModel::open(of_draft, "", draft));
  const text::Tokenizer *mine = text.tokenizer(), *other = draft_text.tokenizer();
  if (!mine || !other) {
    if (draft.vocab_size() == model.vocab_size()) return Status::ok();
    return invalid(
        "`speculative_draft_model_path` {}: its vocabulary has {} tokens and that of the model {}; allowed: a model of "
        "the same vocabulary",
        path, draft.vocab_size(), model.vocab_size());
  }
  for (int32_t id = 0; id < std::min(mine->vocab_size(), other->vocab_size()); ++id) {
    const auto here = mine->id_to_token(id), there = other->id_to_token(id);
    if (here && there && *here != *there)
      return invalid(
          "`speculative_draft_model_path` {}: token {} is \"{}\" there and \"{}\" in the model; allowed: a model of "
          "the "
          "same vocabulary",
          path, id, *there, *here);
  }
  return Status::ok();
}

}  // namespace reprise::api
