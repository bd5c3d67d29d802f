// Text by code point, with Python's idea of space, letter and case (utf8proc's tables). Malformed UTF-8 is kept, each
// stray byte counting as one character (text/utf8.h). Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/utf8.h"

namespace reprise::text::jinja {

inline size_t point_bytes(std::string_view s, size_t pos) { return point_or_byte_at(s, pos).size; }
size_t count_points(std::string_view s);
// Byte offset of character `index`; s.size() when there are fewer.
size_t byte_offset(std::string_view s, size_t index);
std::vector<std::string_view> split_points(std::string_view s);

bool is_space(char32_t c);
bool is_line_break(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_titlecase(char32_t c);
bool is_printable(char32_t c);
bool is_word(char32_t c);  // what \w matches

std::string to_upper(std::string_view s);
std::string to_lower(std::string_view s);
std::string to_title(std::string_view s);        // Each Word
std::string to_capitalized(std::string_view s);  // First letter

std::string_view strip_left(std::string_view s);
std::string_view strip_right(std::string_view s);
inline std::string_view strip(std::string_view s) { return strip_left(strip_right(s)); }

}  // namespace reprise::text::jinja
