#include "base/entropy.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace reprise {

uint64_t entropy() {
  uint64_t out = 0;
  CHECK(::getentropy(&out, sizeof out) == 0, "the kernel gives no random numbers: {}", std::strerror(errno));
  return out;
}

}  // namespace reprise
