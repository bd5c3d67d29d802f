// Decisions: which steps are replayed and how, which are not and why; in a few lines, before anything runs. What
// the engine says at start-up and `graph explain` repeats.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace reprise::see {

struct Decision {
  std::string shape;   // "decode, 1 to 64 sequences"
  std::string mode;    // "whole", "piecewise", "eager"
  std::string reason;  // why so, or what it means

  bool replayed() const { return mode != "eager"; }
};

std::vector<Decision> decisions(engine::Engine& engine);

// One line each, in columns.
std::string decision_table(const std::vector<Decision>& rows);

}  // namespace reprise::see
