#include "backends/ascend/read_ahead.h"

namespace reprise::ascend {
namespace {

constexpr double kTebi = 1099511627776.0;
constexpr int64_t kMebi = int64_t{1} << 20;

// Bandwidths of the vendor's performance model (msmodeling, tensor_cast/device.py); cores and clock, by which the L2
// cache answers 110 bytes a cycle to each cube core, of its platform files. The longest beginning of a name counts.
struct Chip {
  std::string_view soc;
  double tebibytes_per_s;
  int cube_cores;
  double mhz;
};
constexpr Chip kChips[] = {
    {"Ascend910B4-1", 1.6, 20, 1500}, {"Ascend910B4", 0.8, 20, 1500},  {"Ascend910B3", 1.6, 20, 1800},
    {"Ascend910B1", 1.6, 24, 1850},   {"Ascend910B", 1.6, 24, 1800},   {"Ascend910_9362", 1.6, 20, 1500},
    {"Ascend910_937", 1.6, 20, 1800}, {"Ascend910_93", 1.6, 24, 1800},
};
constexpr double kCachedBytesPerCycle = 110;
// None of it measured here; as in the modelled clock (sim/ascend/runtime/rates.cpp): what long streams of weights
// sustain; the start of a vector kernel and the gap before it, of which a launch of the plan has one at least; a
// collective; the way of an event to another stream, the gap there and the start of a copy; an event as a task.
constexpr double kSustained = 0.75, kLaunch = 3, kCollective = 11, kDelay = 6, kMark = 1;

}  // namespace

ReadAhead read_ahead_of(std::string_view soc, bool has_cmo, int64_t cache_bytes) {
  ReadAhead r;
  if (soc.starts_with("Ascend310")) {
    r.refusal = fmt::format("aclrtCmoAsync is there for Atlas A2, A3 and 350, not for inference cards ({})", soc);
    return r;
  }
  if (!has_cmo) {
    r.refusal = "this CANN has no aclrtCmoAsync";
    return r;
  }
  for (const Chip& c : kChips) {
    if (!soc.starts_with(c.soc)) continue;
    const double cached = kCachedBytesPerCycle * c.cube_cores * c.mhz;
    return {"",
            c.tebibytes_per_s * kTebi / 1e6 * kSustained,
            cached * kSustained,
            kLaunch,
            kCollective,
            kDelay,
            kMark,
            static_cast<size_t>(cache_bytes > 0 ? cache_bytes : 96 * kMebi)};
  }
  r.refusal = fmt::format("the bandwidth of {} is not known here", soc);
  return r;
}

}  // namespace reprise::ascend
