// GraphFlags: what is captured and fused, as the command line says it. A plain value.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "common/graph_aliases.h"
#include "engine/engine.h"

namespace CLI {
class App;
}

namespace reprise::apps {

struct GraphFlags {
  std::string graph = "auto";
  std::optional<std::string> decode, prefill;              // whole, piecewise, off
  std::optional<std::string> decode_sizes, prefill_sizes;  // "auto" or a list
  std::optional<std::string> split_ops;
  std::optional<std::string> passes, disable_pass, print_after, pass_file, dump_dir;
  int64_t bisect_limit = -1;
  int64_t verify_replay = 0;
  std::vector<std::string> faults;
  bool no_padding = false;
  bool learn = true;             // no flag: a check wants the same choices every time, whatever steps took earlier
  bool keep_graphs = false;      // no flag: for commands that show the graph after every pass
  bool observe_linears = false;  // no flag: for calibration
  std::string warmups = "auto";  // or a number
  std::optional<std::string> plan_cache;  // auto, off, or a folder
  GraphAliases aliases;

  void add_to(CLI::App& app);
  // The engine's options. Contradictions and sizes above what a step can hold are usage errors.
  Result<engine::GraphOptions> options(const StepLimits& limits) const;
  // The native settings that all of the flags together ask for, and what there is to say about it.
  Result<GraphMeaning> meaning(const StepLimits& limits) const;
};

}  // namespace reprise::apps
