#include "server/ids.h"

#include <fmt/format.h>

#include <atomic>
#include <random>

namespace reprise::server {

uint64_t random_bits() {
  static std::atomic<uint64_t> counter{std::random_device{}() * uint64_t{0x100000001} + std::random_device{}()};
  uint64_t z = counter.fetch_add(0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string make_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_bits(), random_bits() >> 32);
}

}  // namespace reprise::server
