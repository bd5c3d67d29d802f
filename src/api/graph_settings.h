// GraphSettings: what is captured and fused, in the words of the settings. A plain value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/graph_aliases.h"
#include "base/json.h"
#include "engine/engine.h"
#include "settings/binding.h"

namespace reprise::api {

struct GraphSettings {
  std::string graph;
  std::optional<std::string> decode, prefill;              // whole, piecewise, off
  std::optional<std::string> decode_sizes, prefill_sizes;  // "auto" or a list
  std::optional<std::string> split_ops;
  std::optional<std::string> passes, disable_pass, print_after, pass_file, dump_dir;
  int64_t bisect_limit, verify_replay, prefetch_mb;
  std::string streams;
  std::vector<std::string> faults;
  bool no_padding, prefetch_weights;
  bool learn =
      true;  // no setting: a check wants the same choices every time, independent of how long steps took earlier
  bool keep_graphs = false;               // no setting: for commands that show the graph after every pass
  bool observe_linears = false;           // no setting: for calibration
  std::string warmups;                    // auto, or a number
  std::optional<std::string> plan_cache;  // auto, off, or a folder
  GraphAliases aliases;

  GraphSettings();  // the table's initial values
  GraphSettings(const GraphSettings&) = default;
  GraphSettings& operator=(const GraphSettings&) = default;
  // Where the values of the groups Graphs and GraphAliases lie.
  std::vector<settings::Binding> bindings();
  // The engine's options. Contradictions and sizes above what a step can hold are usage errors.
  Result<engine::GraphOptions> options(const StepLimits& limits) const;
  // The native settings that all of them together ask for, and what there is to say about it.
  Result<GraphMeaning> meaning(const StepLimits& limits) const;
};

}  // namespace reprise::api
