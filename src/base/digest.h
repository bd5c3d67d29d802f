// Digest: 128 bits (XXH3) that stand for some bytes. Equal bytes have equal digests on every machine; it is no
// protection against someone who looks for two texts of one digest. Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace reprise {

struct Digest {
  std::array<uint8_t, 16> bytes{};
  bool operator==(const Digest&) const = default;
  std::string text() const;  // 32 hexadecimal digits
};

Digest digest_of(std::span<const uint8_t> bytes);
Digest digest_of(std::string_view bytes);

std::string hexadecimal(std::span<const uint8_t> bytes);

}  // namespace reprise
