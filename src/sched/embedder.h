// Embedder: runs lists of texts through a model that gives vectors or scores, on the calling thread: a scheduler whose
// rows are collected. And what is done to a row afterwards.
//
// One thread at a time; the executor outlives it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/pooling.h"
#include "sched/scheduler.h"

namespace reprise::sched {

struct EmbeddingRequest {
  std::vector<int32_t> tokens;
  int64_t second_kind = INT64_MAX;  // Request::second_kind
};

class Embedder {
 public:
  explicit Embedder(engine::Executor& executor);
  // Rows in the order of the requests. An error is of the first request that has one.
  Result<std::vector<std::vector<float>>> run(std::span<const EmbeddingRequest> requests);

 private:
  engine::Executor& executor_;
  Scheduler scheduler_;
};

// Whether vectors of `size` numbers may be cut to `dimensions`; 0: they are not cut. The error names what is allowed.
Status check_dimensions(const checkpoint::PoolingFields& pooling, int64_t size, int64_t dimensions);
// Cuts a row, and makes it one of length 1 again where it was.
void cut(std::vector<float>& row, int64_t dimensions, bool normalise);

}  // namespace reprise::sched
