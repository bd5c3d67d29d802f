// Filling memory of a device without taking more of the host's than the filled bytes need.
#pragma once

#include <cstddef>

namespace ascend_sim {

// std::memset. Zeros over much memory of a device give its pages back to the host, so that a cache which is never used
// takes none. `device`: the bytes are a Memory's.
void fill_bytes(void* to, int value, size_t bytes, bool device);

}  // namespace ascend_sim
