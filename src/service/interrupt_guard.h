// InterruptGuard: while one lives, Ctrl-C sets a mark instead of ending the program. One at a time, on the main thread.
#pragma once

namespace reprise::service {

class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();
};

}  // namespace reprise::service
