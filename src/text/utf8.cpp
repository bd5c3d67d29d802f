#include "text/utf8.h"

namespace reprise::text {
namespace {

enum class Shape : uint8_t { Whole, Unfinished, Broken };
struct Sequence {
  Shape shape;
  size_t size;  // bytes of the character, or of the maximal part that could have begun one
};

Sequence sequence_at(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[at + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Shape::Whole, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Shape::Broken, 1};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range rules out overlong forms, surrogates and values above U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < size; ++i) {
    if (at + i == bytes.size()) return {Shape::Unfinished, i};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {Shape::Broken, i};
  }
  return {Shape::Whole, size};
}

}  // namespace

CodePoint code_point_at(std::string_view valid, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(valid[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F), 3};
  return {((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F), 4};
}

CodePoint point_or_byte_at(std::string_view bytes, size_t at) {
  if (sequence_at(bytes, at).shape == Shape::Whole) return code_point_at(bytes, at);
  return {kStrayByte + static_cast<unsigned char>(bytes[at]), 1};
}

void append_utf8(char32_t c, std::string* out) {
  const auto trail = [&](int shift) { out->push_back(static_cast<char>(0x80 | (c >> shift & 0x3F))); };
  if (c < 0x80 || is_stray_byte(c)) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    trail(0);
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    trail(6);
    trail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    trail(12);
    trail(6);
    trail(0);
  }
}

bool is_valid_utf8(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Sequence s = sequence_at(bytes, at);
    if (s.shape != Shape::Whole) return false;
    at += s.size;
  }
  return true;
}

size_t append_repaired_utf8(std::string_view bytes, bool is_last, std::string* out) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Sequence s = sequence_at(bytes, at);
    if (s.shape == Shape::Unfinished && !is_last) break;
    if (s.shape == Shape::Whole) {
      out->append(bytes.substr(at, s.size));
    } else {
      out->append("\xEF\xBF\xBD");
    }
    at += s.size;
  }
  return at;
}

}  // namespace reprise::text
