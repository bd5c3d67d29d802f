// What a step of a model must read and multiply, by its configuration: what `bench one-batch` divides by the measured
// time. Plain functions.
#pragma once

#include "checkpoint/config.h"
#include "engine/engine.h"
#include "see/machine_speed.h"

namespace reprise::measurement {

// Weights of the layers' matrix products that one token goes through: of experts those that it is sent to. The head
// works on one row per sequence and is counted apart.
double layer_weights(const checkpoint::ModelConfigFields& config);
// Bytes of weights that a decode step of `batch` rows must read. Of E experts, rows that each go to k of them by chance
// reach E (1 - (1 - k / E)^batch).
double step_weight_bytes(const engine::Engine& engine, double batch);
// What the linear layers multiply.
DType multiplied(const engine::Engine& engine);

// The limits of a run, measured before and after it: the mean of both bandwidths, the larger peak, the larger load.
see::MachineSpeed between(const see::MachineSpeed& before, const see::MachineSpeed& after);

}  // namespace reprise::measurement
