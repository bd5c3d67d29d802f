// soon: waits for what must come true. Any thread.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace reprise::testing_support {

// Polls, for as long as a busy machine may need; false when it never came true.
inline bool soon(const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!what()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace reprise::testing_support
