// What a second model that drafts (speculative decoding) is opened with, and whether it fits the model that it drafts
// for. Plain functions; any thread.
#pragma once

#include <string>

#include "api/model_settings.h"

namespace reprise::api {

// The settings of the draft model `path`: those of the model where they are of the device, the batch or the numbers,
// and its own otherwise.
ModelSettings draft_settings(const ModelSettings& of_model, const std::string& path);

// What the engine of that model is opened with besides, by `speculative_algorithm`; `source` is the model's checkpoint.
void make_head(spec::Algorithm algorithm, const std::string& source, engine::EngineOptions& options);
// And what the model keeps for it. The draft may be null: it was not opened here.
Status keep_rows(spec::Algorithm algorithm, const engine::Engine* draft, engine::EngineOptions& options);

// Ids mean the same tokens in both, as far as both have them; models without a tokenizer have equally many. The error
// names the first difference.
Status check_draft_model(const ModelSettings& of_model, const engine::Engine& model, const ModelSettings& of_draft,
                         const engine::Engine& draft);

}  // namespace reprise::api
