// read_ahead_of(): whether and how fast a chip reads weights ahead into its L2 cache. A pure function.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/device.h"

namespace reprise::ascend {

// `soc` as the runtime names the chip; whether it has aclrtCmoAsync; bytes of its L2 cache, 0 where it does not tell.
ReadAhead read_ahead_of(std::string_view soc, bool has_cmo, int64_t cache_bytes);

}  // namespace reprise::ascend
