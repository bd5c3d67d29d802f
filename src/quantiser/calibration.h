// observe_inputs(): what goes into each linear while a model reads a text: the ranges that static quantisation and
// smoothing are made from, and a few rows to measure errors on.
//
// The engine must have been opened with GraphOptions::pipeline.observe_linears, in a float dtype, and be idle. One
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace reprise::quantiser {

// Statistics of one linear's input [T, K] over all T seen.
struct InputStatistics {
  std::vector<float> low, high;  // [K], of each channel
  std::vector<float> sample;     // [samples, K], rows spread over the text
  int64_t samples = 0;

  int64_t width() const { return static_cast<int64_t>(low.size()); }
};

struct ObserveOptions {
  int64_t window = 256;        // tokens read together; the text is cut into windows that do not overlap
  int64_t max_tokens = 16384;  // of the text
  int64_t samples = 32;        // rows kept for each linear
};

// By the name of the linear's weight.
using InputObservations = std::map<std::string, InputStatistics, std::less<>>;
Result<InputObservations> observe_inputs(engine::Engine& engine, std::span<const int32_t> tokens,
                                         const ObserveOptions& options,
                                         const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace reprise::quantiser
