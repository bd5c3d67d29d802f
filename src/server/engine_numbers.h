// What an engine tells the metrics of its graphs, memory and steps. Between steps, on the thread that drives it.
#pragma once

#include "engine/engine.h"
#include "server/metrics.h"

namespace reprise::server {

GraphNumbers numbers_of(const engine::Engine& engine);

}  // namespace reprise::server
