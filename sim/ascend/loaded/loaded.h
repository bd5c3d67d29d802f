// Which shared library the simulator is loaded as. Immutable, apart from the counts, which any thread may change.
#pragma once

#include <cstdint>

namespace ascend_sim {

// Null, or the one version that this shared library has the symbols of.
extern const char* const kOnlyVersion;

}  // namespace ascend_sim

#pragma GCC visibility push(default)
// Told by the libraries of operators when they are loaded (1) and unloaded (-1); `parts` is 0 for libopapi.so and 1 for
// libopapi_math.so, libopapi_nn.so and libopapi_transformer.so.
extern "C" void ascendSimLoaded(int32_t parts, int32_t by);
#pragma GCC visibility pop
