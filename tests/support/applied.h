// How often the passes of decode steps say some words about what they did.
#pragma once

#include <string>

#include "engine/engine.h"

namespace reprise::testing_support {

inline int64_t applied(const engine::Engine& e, const char* words) {
  int64_t n = 0;
  for (const PassReport& p : e.passes("decode")->passes)
    for (const PassRemark& remark : p.applied) n += remark.reason.find(words) != std::string::npos;
  return n;
}

}  // namespace reprise::testing_support
