// Recipes carried out: rows of a parameter out of tensors of a checkpoint (passes/derived_param.h), and the random rows
// that stand in for them in dummy weights. Pure functions over a checkpoint; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "compile/binding.h"
#include "passes/derived_param.h"

namespace reprise::weights {

// The checkpoint's tensors that a part reads.
std::vector<std::string> tensors_of(const ParamPart& part);

// Ok when they, which all exist, have the shapes and types that the recipe asks for.
Status check_part(const checkpoint::Checkpoint& checkpoint, const ParamPlan& param, const ParamPart& part);

// Bytes that one row is read from, to cut large tensors into blocks.
size_t row_cost(const ParamPlan& param, const ParamPart& part);

struct RowBlock {
  int64_t first = 0, count = 0;  // rows of the part
};

// Writes the rows in the parameter's dtype, row-major, to `out` (resized). Adds to *non_finite.
Status make_rows(const checkpoint::Checkpoint& checkpoint, const ParamPlan& param, const ParamPart& part, RowBlock rows,
                 std::vector<uint8_t>& out, uint64_t* non_finite);

// Uniform numbers of variance 1/K (matrices), near 1 (norms) and near 0 (biases), and numbers that give quantised
// linears the same; `key` names the stream of numbers.
void random_rows(const ParamPlan& param, const ParamPart& part, RowBlock rows, uint64_t key, std::vector<uint8_t>& out);

}  // namespace reprise::weights
