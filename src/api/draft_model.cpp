#include "api/draft_model.h"

#include <algorithm>

#include "api/text_model.h"

namespace reprise::api {

ModelSettings draft_settings(const ModelSettings& of_model, const std::string& path) {
  ModelSettings s = of_model;
  s.model_path = path;
  s.tokenizer_path.clear();
  s.hub.revision.clear();
  s.quantization = of_model.speculation.draft_quantization.value_or(of_model.quantization);
  s.load_format = of_model.speculation.draft_load_format.value_or(of_model.load_format);
  s.speculation = {};
  s.pooling = "none";
  s.mla_prefill = "absorbed";
  s.context_length = 0;                  // its own
  s.max_total_tokens = kv::kPageTokens;  // until the model's pool is known
  s.overrides.clear();
  s.json_overrides.reset();
  s.count_experts = engine::CountExperts::Off;
  s.enable_lora = false;
  s.max_loras.reset();
  s.max_lora_rank.reset();
  s.lora_modules.clear();
  s.graph.faults.clear();
  s.graph.verify_replay = 0;
  return s;
}

Status check_draft_model(const ModelSettings& of_model, const engine::Engine& model, const ModelSettings& of_draft,
                         const engine::Engine& draft) {
  const std::string& path = of_draft.model_path;
  if (draft.has_states())
    return error(Code::Unsupported,
                 "`speculative_draft_model_path` {}: {} keeps states, which do not take back a token", path,
                 draft.config().architecture);
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
