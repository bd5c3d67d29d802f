#include "server/ids.h"

#include <fmt/format.h>

#include <atomic>
#include <random>

#include "base/split_mix.h"

namespace reprise::server {

uint64_t random_bits() {
  static std::atomic<uint64_t> counter{std::random_device{}() * uint64_t{0x100000001} + std::random_device{}()};
  return split_mix(counter.fetch_add(kSplitMixStep));
}

std::string make_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_bits(), random_bits() >> 32);
}

}  // namespace reprise::server
