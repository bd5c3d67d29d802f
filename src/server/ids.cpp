#include "server/ids.h"

#include <fmt/format.h>

#include <atomic>

#include "base/digest.h"
#include "base/entropy.h"
#include "base/split_mix.h"

namespace reprise::server {
namespace {

constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr size_t kShortLength = 9;

std::string short_id(uint64_t number) {
  std::string out(kShortLength, '0');
  for (char& c : out) {
    c = kLetters[number % kLetters.size()];
    number /= kLetters.size();
  }
  return out;
}

}  // namespace

uint64_t random_bits() {
  static std::atomic<uint64_t> counter{entropy()};
  return split_mix(counter.fetch_add(kSplitMixStep));
}

std::string make_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_bits(), random_bits() >> 32);
}

std::string make_short_id() { return short_id(random_bits()); }

bool is_short_id(std::string_view id) {
  return id.size() == kShortLength && id.find_first_not_of(kLetters) == std::string_view::npos;
}

std::string short_id_of(std::string_view id) {
  if (is_short_id(id)) return std::string(id);
  uint64_t number = 0;
  const Digest digest = digest_of(id);
  for (size_t i = 0; i < sizeof number; ++i) number = number << 8 | digest.bytes[i];
  return short_id(number);
}

}  // namespace reprise::server
