// What the environment changes in tests. REPRISE_TEST_MODE: the same tests in other modes (tools/test_modes.txt); every
// mode must give what the default gives. REPRISE_PASS_BISECT_LIMIT and REPRISE_DUMP_DIR, for `./dev bisect`: only the
// first N changes of optional passes, and the graphs before and after every pass, engine by engine.
#pragma once

#include <charconv>
#include <cstdlib>
#include <string>

#include "backends/all.h"
#include "engine/engine.h"

namespace reprise::testing_support {

inline Status apply_bisect(PassOptions& passes) {
  if (const char* value = std::getenv("REPRISE_PASS_BISECT_LIMIT"); value && *value) {
    const std::string_view text = value;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), passes.bisect_limit);
    if (problem != std::errc() || end != text.data() + text.size() || passes.bisect_limit < -1)
      return invalid("REPRISE_PASS_BISECT_LIMIT \"{}\" is not a whole number; allowed: -1 or more", text);
  }
  static int engines = 0;
  if (const char* folder = std::getenv("REPRISE_DUMP_DIR"); folder && *folder)
    passes.dump_dir = fmt::format("{}/engine{:03}", folder, engines++);
  return Status::ok();
}

// Unknown modes are an error, so that a misspelt one does not test the default again.
inline Status apply_test_mode(engine::EngineOptions& engine, DeviceOptions& device) {
  RETURN_IF_ERROR(apply_bisect(engine.graph.pipeline.passes));
  const char* value = std::getenv("REPRISE_TEST_MODE");
  const std::string mode = value ? value : "";
  if (mode.empty()) return Status::ok();
  if (mode == "eager") {  // the answer key: node by node, nothing fused
    engine.graph.policy = engine::GraphPolicy::Off;
    engine.graph.pipeline.passes.enable = {"none"};
  } else if (mode == "capture-off") {
    engine.graph.policy = engine::GraphPolicy::Off;
  } else if (mode == "no-fusion") {
    engine.graph.pipeline.passes.enable = {"none"};
  } else if (mode == "piecewise") {
    engine.graph.decode = GraphMode::Piecewise;
  } else if (mode == "isa=baseline") {
    if (device.isa == "auto") device.isa = "baseline";
  } else {
    return invalid(
        "REPRISE_TEST_MODE \"{}\" is not known; allowed: eager, capture-off, no-fusion, piecewise, isa=baseline", mode);
  }
  return Status::ok();
}

}  // namespace reprise::testing_support
