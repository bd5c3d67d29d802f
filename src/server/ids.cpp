#include "server/ids.h"

#include <fmt/format.h>

#include <atomic>

#include "base/entropy.h"
#include "base/split_mix.h"

namespace reprise::server {

uint64_t random_bits() {
  static std::atomic<uint64_t> counter{entropy()};
  return split_mix(counter.fetch_add(kSplitMixStep));
}

std::string make_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_bits(), random_bits() >> 32);
}

}  // namespace reprise::server
