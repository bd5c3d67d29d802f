// The two JSON forms in which other systems take graph settings, read into one plain value.
//
//   --compilation-config  {"compiler": "piecewise", "splitting_ops": [...], "capture_sizes": [...], ...}
//   --cuda-graph-config   {"decode": {"backend": "full", "max_bs": 64, "bs": [...]}, "prefill": {...}}
//
// Unknown keys and values are errors that name the allowed ones. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::api {

struct PhaseConfig {
  std::optional<std::string> mode;  // whole, piecewise, off
  std::vector<int64_t> sizes;
  std::optional<int64_t> largest;
};

struct CompilationConfig {
  PhaseConfig decode, prefill;
  std::optional<std::vector<std::string>> splitting_ops;  // ops here, or aliases of them
  bool plan_cache = false;                                // npugraph_ex
  std::vector<std::string> no_effect;                     // settings that need nothing here, with the reason
};

Result<CompilationConfig> parse_compilation_config(std::string_view json);
Result<CompilationConfig> parse_cuda_graph_config(std::string_view json);

}  // namespace reprise::api
