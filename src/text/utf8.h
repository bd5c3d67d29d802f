// UTF-8, for tokenizers, grammars, templates and terminals alike. What is malformed is treated in one of three ways,
// and the name of a function says in which:
//
//   checked    is_valid_utf8() tells, and code_point_at() takes what it has passed
//   repaired   append_repaired_utf8(): one U+FFFD for each maximal invalid part, as decoders of tokens do
//   kept       point_or_byte_at(): a byte that is part of no character counts as one, and is written as it was. Python
//              does so with surrogateescape, and templates must not change what a conversation says
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace reprise::text {

struct CodePoint {
  char32_t value;
  uint32_t size;  // bytes
};

bool is_valid_utf8(std::string_view bytes);
// The code point at byte `at` of valid UTF-8.
CodePoint code_point_at(std::string_view valid, size_t at);

// Appends what `bytes` says to `out`, with one U+FFFD for each maximal invalid part. Unless `is_last`, an unfinished
// character at the end is left alone. Returns the number of bytes consumed.
size_t append_repaired_utf8(std::string_view bytes, bool is_last, std::string* out);

// A byte that is part of no character is this plus its value: above all code points.
constexpr char32_t kStrayByte = 0x110000;
constexpr bool is_stray_byte(char32_t c) { return c >= kStrayByte; }
// The code point at byte `at` of any bytes, or the stray byte there.
CodePoint point_or_byte_at(std::string_view bytes, size_t at);

// A stray byte is written as the byte that it is.
void append_utf8(char32_t c, std::string* out);

}  // namespace reprise::text
