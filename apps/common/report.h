// What `generate` reports about a run: the JSON of the contract, and the short summary for people.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/text_generator.h"
#include "base/json.h"
#include "engine/engine.h"

namespace reprise::apps {

// With `as_list` the outputs stand in "results", else the only one stands at the top.
OrderedJson generate_json(const std::string& model, engine::Engine& engine, const api::TextGenerator& generator,
                          std::span<const sched::GenerationRequest> requests,
                          const std::vector<api::TextResult>& results, bool as_list);

// To standard error.
void print_summary(engine::Engine& engine, const api::TextGenerator& generator,
                   const std::vector<api::TextResult>& results);

}  // namespace reprise::apps
