// The graphs of an engine in a few figures: how each phase runs, what was replayed, and what fell back and why.
// Functions of an engine at rest; the thread that drives it.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/engine.h"

namespace reprise::see {

// How one phase runs: "whole", "piecewise" or "off".
std::string phase_mode(const engine::StepRunner* runner);
// The "graph" object of `generate --json`.
OrderedJson graph_json(engine::Engine& engine);
// One line for people: modes, sizes, replays, fallbacks and why.
std::string graph_summary(engine::Engine& engine);

}  // namespace reprise::see
