// The program of the wheel has the C++ library's archive in it, where std::random_device asks for arc4random of glibc
// 2.36. Nothing of ours uses that class (base/entropy.h), but the linker keeps it for the shared libraries beside. With
// this one in its place, an older glibc will do.
#include <stdint.h>

#include "base/entropy.h"

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() noexcept {
  return static_cast<uint32_t>(reprise::entropy());
}
