// Whether a model can be cut over the ranks of a world as the settings ask: heads, experts and sequences. Told before
// anything is loaded. Pure functions.
#pragma once

#include "base/status.h"
#include "device/device.h"
#include "engine/engine_options.h"
#include "models/model.h"

namespace reprise::engine {

// An error names the setting, what of the model stands against it, and the sizes that are allowed. One rank has rules,
// too: experts are not shared out, and faults are those of rank 0.
Status check_ranks(const EngineOptions& options, const models::ModelSpec& spec, const models::ModelConfig& config,
                   const DeviceInfo& device);

}  // namespace reprise::engine
