// run_load(): sends calls to a server the way a benchmark does: as a Poisson process of a given rate, or at once, with
// at most so many in flight. Works on the calling thread until the last answer has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "client/generation.h"

namespace reprise::client {

struct LoadOptions {
  double rate = std::numeric_limits<double>::infinity();  // calls a second
  int64_t max_concurrency = 0;                            // 0: no bound; a call that finds no place waits for one
  uint64_t seed = 1;                                      // of the arrivals
};

struct LoadRun {
  std::vector<GenerationRecord> records;  // in the order of the calls
  double duration_s = 0;                  // from the first call to the end of the last answer
  int64_t peak_concurrency = 0;           // most calls in flight at one time
};

// `on_end` is called after each answer.
LoadRun run_load(HttpCalls& http, std::span<const GenerationCall> calls, const GenerationStyle& style,
                 const LoadOptions& options, const std::function<void(const GenerationRecord&)>& on_end = {});

}  // namespace reprise::client
