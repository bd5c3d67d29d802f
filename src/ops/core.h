// The primitive ops of a dense decoder. Shapes: T tokens of the step, R sequences, C page-table columns, P pages of the
// KV pool, H query heads, G key/value heads, D head size.
#pragma once

#include "base/kv_page.h"
#include "ops/schema.h"

namespace reprise {

// An int8 cache holds every row of a key or value head as integers and one fp32 scale (largest magnitude / 127), which
// takes four elements more.
constexpr int64_t kv_row(DType cache, int64_t head_size) { return cache == DType::I8 ? head_size + 4 : head_size; }
inline Dim kv_head_size(const TensorType& cache) {
  const Dim row = cache.shape[4];
  return cache.dtype == DType::I8 ? Dim(row.factor - 4) : row;
}

void register_core_ops(OpRegistry& ops);
// Those on caches of rows (latent attention, keys and values apart); register_core_ops() calls it.
void register_latent_ops(OpRegistry& ops);

}  // namespace reprise
