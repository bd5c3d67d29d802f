// What was compiled from a model, and why: passes, pieces, kernels, sizes, memory and decisions as one JSON document,
// the one that `reprise graph explain --json` prints. Functions of an engine at rest; the thread that drives it.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "see/phase_view.h"

namespace reprise::see {

// How often each of the device's kernels is launched in a step: where an op has several, which one it became.
std::map<std::string, int> kernel_calls(const CompiledModel& model);

OrderedJson explain_json(engine::Engine& engine, const PhaseView& view);

}  // namespace reprise::see
