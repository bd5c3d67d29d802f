// GraphOptions: what is captured, for which sizes, after which passes. The native settings behind --graph* and
// --passes. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "compile/compiled_model.h"
#include "engine/faults.h"
#include "engine/graph_sizes.h"
#include "passes/pipeline.h"

namespace reprise::engine {

enum class GraphPolicy : uint8_t {
  Auto,      // capture what can be; the rest runs eagerly and is counted with its reason
  Off,       // nothing is captured
  Required,  // a step that would run uncaptured is an error
};
Result<GraphPolicy> parse_graph_policy(std::string_view name);
// "whole", "piecewise", "off"
Result<GraphMode> parse_phase_mode(std::string_view flag, std::string_view name);

struct GraphOptions {
  GraphPolicy policy = GraphPolicy::Auto;
  GraphMode decode = GraphMode::Whole;
  GraphMode prefill = GraphMode::Piecewise;
  std::vector<int64_t> decode_sizes;   // empty: by rule up to the largest batch
  std::vector<int64_t> prefill_sizes;  // empty: by rule up to the chunk
  bool padding = true;                 // false: a batch runs captured only at an exact size
  bool learn_decode_sizes = false;     // sizes from the traffic of earlier runs; by rule while there is none
  bool learn_prefill_sizes = false;
  std::vector<std::string> split_ops;  // besides attention
  int64_t verify_replay = 0;           // every so many steps also run uncaptured and unfused; 0: none
  std::string report_dir;              // where a difference is written down; empty: the working directory
  std::string learned_dir;             // step times and traffic of earlier runs; empty: not kept
  bool choose_by_cost = true;          // step times may choose eager or two sizes over the next size
  std::vector<Fault> faults;           // for tests of the checks
  PipelineOptions pipeline;            // which passes run
  std::string plan_cache;              // folder of compiled programs; empty: none are kept
  VerifyRows verify;                   // of drafts; where graphs read live sizes decode's verify them
  bool choose_streams = false;         // streams of a size by measured times (engine/stream_choice.h)
  bool choose_prefetch = false;        // likewise whether a size reads weights ahead
  int64_t fused_decode_max = 0;        // decode sizes above it run the unfused plan; 0: none does
  int warmups = -1;                    // runs before each capture; -1: as the device needs (Engine::usual_warmups)
};

}  // namespace reprise::engine
