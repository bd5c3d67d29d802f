// entropy: 64 bits of the kernel's random numbers, for names that must not be guessed. Not for sampling, which has
// seeds. std::random_device would do, but where the C++ library is linked in it asks for glibc 2.36. Any thread.
#pragma once

#include <cstdint>

namespace reprise {

uint64_t entropy();

}  // namespace reprise
