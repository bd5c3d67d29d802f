// TrafficProfile: what a server's requests look like, as far as settings depend on it: how many run at a time, and how
// long their prompts and answers are. Given by flags, or read from what `reprise serve --request-log` wrote. A plain
// value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::tuning {

// A quantity over all requests: its usual value (median), a large one (95 of 100 are no larger), the largest.
struct Spread {
  int64_t usual = 0, large = 0, largest = 0;
};

struct TrafficProfile {
  int64_t requests = 0;   // that it was made of; 0: given by flags
  Spread prompt, answer;  // tokens
  Spread running;         // requests at a time, by the time that each number was there
};

Spread spread_of(std::vector<int64_t> values);

// Lines of a request log. Requests without an answer (errors, other routes) do not count. The error names file and
// line.
Result<TrafficProfile> traffic_of_log(const std::string& path);

}  // namespace reprise::tuning
