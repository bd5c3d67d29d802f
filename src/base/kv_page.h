// The page: how many tokens attention remembers in one piece. Every room that counts pages takes it from here, and so
// do kernels, which include nothing else of the rooms above.
#pragma once

#include <cstdint>

namespace reprise {

constexpr int64_t kPageTokens = 128;  // attention reduces page by page in this unit

}  // namespace reprise
