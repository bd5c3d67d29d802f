// What was compiled from a model, and why: passes, pieces, kernels, sizes, memory and decisions as one JSON document,
// the one that `reprise graph explain --json` prints. Functions of an engine at rest; the thread that drives it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "see/phase_view.h"

namespace reprise::see {

// How often each of the device's kernels is launched in a step: where an op has several, which one it became.
std::map<std::string, int> kernel_calls(const CompiledModel& model);

// Where a model lies over several ranks: what one of them holds, and what a step exchanges.
struct Exchange {
  std::string op;
  int count = 0;                         // in a step
  int64_t row_bytes = 0, own_bytes = 0;  // of a result's row, and of what the rank gives to each
};
// Parameters of the same name in all layers: "model.layers.N.mlp.down_proj.weight", and which part of each is here.
struct Held {
  std::string name, part;  // "[48+48/96]"; empty: it is whole
  int count = 0;
  int64_t bytes = 0;  // of all of them, before a device packs them
};
struct RankContents {
  int rank = 0, ranks = 1;
  size_t weight_bytes = 0, kv_bytes = 0, exchange_bytes = 0;
  std::vector<Exchange> exchanges;  // by op and size
  std::vector<Held> held;           // in the order of the graph
};
std::optional<RankContents> contents_of_rank(const engine::Engine& engine, const CompiledModel& model);

// How many of the drafts that earlier runs verified came true, by their place in a step, for each drafter.
OrderedJson drafts_json(const engine::Engine& engine);
// A line for each drafter; empty: nothing was kept.
std::string drafts_text(const engine::Engine& engine);

OrderedJson explain_json(engine::Engine& engine, const PhaseView& view);

}  // namespace reprise::see
