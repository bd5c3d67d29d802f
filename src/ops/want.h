// What shape functions ask of their operands: each is Ok, or an error that names the call, the operand and what is
// allowed. Stateless.
#pragma once

#include <string_view>
#include <vector>

#include "ops/schema.h"

namespace reprise {

constexpr int64_t kMaxW8A8Depth = 131071;  // so many products of -128 and -128 fit an int32

using Types = std::vector<TensorType>;  // of an op's results

Status want_rank(const OpCall& c, size_t i, int lo, int hi);
Status want_dtype(const OpCall& c, size_t i, DType t);
Status want_index(const OpCall& c, size_t i);
Status want_float(const OpCall& c, size_t i);
Status want_same_dtype(const OpCall& c, size_t i, size_t j);
// Size d of operand i is `expected`, which is `what`.
Status want_dim(const OpCall& c, size_t i, int d, Dim expected, std::string_view what);
Status want_constant(const OpCall& c, size_t i, int d);
// The attribute is from lo to hi.
Status want_range(const OpCall& c, std::string_view attr, int64_t lo, int64_t hi);
// Attention has a window, or chunks, or neither: "window" and "chunk" are not both above 0.
Status want_window_or_chunk(const OpCall& c);
// Operand i is a matrix, or a stack of them, in rows of GGUF blocks of the attribute "format"; how many numbers a row
// has.
Result<int64_t> want_blocks(const OpCall& c, size_t i);
// The attribute "shard" is none, column or row.
Status want_shard(const OpCall& c);
// The attribute "activations" is same or int8.
Status want_activations(const OpCall& c);

}  // namespace reprise
