// What the environment changes in tests. REPRISE_TEST_MODE: the same tests in other modes (tools/test_modes.txt); every
// mode must give what the default gives. For `./dev bisect` also what passes/pass_environment.h says.
#pragma once

#include <cstdlib>
#include <string>

#include "backends/all.h"
#include "engine/engine.h"
#include "passes/pass_environment.h"

namespace reprise::testing_support {

// Unknown modes are an error, so that a misspelt one does not test the default again.
inline Status apply_test_mode(engine::EngineOptions& engine, DeviceOptions& device) {
  RETURN_IF_ERROR(apply_pass_environment(engine.graph.pipeline.passes));
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
