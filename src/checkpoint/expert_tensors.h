// Tensors of experts under one set of names, one tensor for each matrix of each expert:
//
//   model.layers.0.mlp.gate.weight
//   model.layers.0.mlp.experts.3.gate_proj.weight, up_proj, down_proj
//
// Where the files of a family say otherwise, the family has the rules (Family::names). transformers 5 and GGUF may
// store all experts of a layer as one stack, of which each expert is a run of rows, or of columns in some files; a
// stack of their biases is a row for each. In stacks of safetensors with biases rows of gate and up take turns, floats
// are stored with rows and columns swapped, and MXFP4 is two tensors, "_blocks" and "_scales". Pure functions.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"

namespace reprise::checkpoint {

// The same tensors, renamed, and stacks taken apart; nothing is read.
std::vector<CheckpointTensor> with_single_experts(std::vector<CheckpointTensor> tensors, const Families& families);

}  // namespace reprise::checkpoint
