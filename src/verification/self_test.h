// SelfTest: whether a device does what the engine needs of it, told by a few sums: memory, a computation, capture and
// replay, a changed launch, the order of streams. For `reprise doctor`, so that a stranger can send back what it
// prints. Plain functions; they open streams and graphs of their own on the platform's device.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/platform.h"

namespace reprise::verification {

struct SelfCheck {
  std::string name;
  std::optional<bool> passed;  // none: not tried
  std::string detail;          // what was found, or why not
};

struct SelfTest {
  std::vector<SelfCheck> checks;
  std::vector<std::pair<std::string, double>> times_us;  // of the device's clock

  std::vector<std::string> failed() const;
};

// A device that computes nothing (DeviceInfo::computes) is asked only for what needs no results.
SelfTest self_test(const Platform& platform);

}  // namespace reprise::verification
