#include "base/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

namespace reprise {

std::string hexadecimal(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

std::string Digest::text() const { return hexadecimal(bytes); }

Digest digest_of(std::span<const uint8_t> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Digest out;
  static_assert(sizeof canonical.digest == sizeof out.bytes);
  std::memcpy(out.bytes.data(), canonical.digest, sizeof canonical.digest);
  return out;
}

Digest digest_of(std::string_view bytes) {
  return digest_of(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

}  // namespace reprise
