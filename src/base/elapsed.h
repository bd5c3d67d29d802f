// Seconds on the steady clock, as a number.
#pragma once

#include <chrono>

namespace reprise {

// Since some fixed moment: only differences mean something.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double seconds_of(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return seconds_of(std::chrono::steady_clock::now() - begin);
}

}  // namespace reprise
