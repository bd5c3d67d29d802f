// Base64 as RFC 4648 writes it: written with padding, read with or without.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reprise {

inline std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[three >> (18 - 6 * k) & 63];
  }
  return out;
}

// The bytes that were written so; nothing for other text.
inline std::optional<std::string> base64_bytes(std::string_view text) {
  static const std::array<int8_t, 256> kDigits = [] {
    std::array<int8_t, 256> out{};
    out.fill(-1);
    int8_t next = 0;
    for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
      out[static_cast<uint8_t>(c)] = next++;
    return out;
  }();
  const size_t padded = text.size();
  while (!text.empty() && text.back() == '=' && padded - text.size() < 2) text.remove_suffix(1);
  if (text.size() % 4 == 1 || (padded != text.size() && padded % 4 != 0)) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const int8_t digit = kDigits[static_cast<uint8_t>(c)];
    if (digit < 0) return std::nullopt;
    held = held << 6 | static_cast<uint32_t>(digit);
    if ((bits += 6) < 8) continue;
    bits -= 8;
    out += static_cast<char>(held >> bits & 255);
  }
  return out;
}

}  // namespace reprise
