// UTF-8 and character classes for tokenizers: decoding, repair of invalid input, normal forms, and the classes that
// pre-tokenizers ask for. Published vocabularies were made with certain Unicode versions, and a tokenizer must see the
// same characters as then: classes follow Unicode 16, normal forms Unicode 9 (see unicode.cpp). Pure functions; any
// thread.
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

// The code point at byte `at` of valid UTF-8.
CodePoint code_point_at(std::string_view valid, size_t at);
void append_utf8(char32_t c, std::string* out);

bool is_valid_utf8(std::string_view bytes);
// Appends what `bytes` says to `out`, with one U+FFFD for each maximal invalid part. Unless `is_last`, an unfinished
// character at the end is left alone. Returns the number of bytes consumed.
size_t append_repaired_utf8(std::string_view bytes, bool is_last, std::string* out);

bool is_whitespace(char32_t c);   // White_Space
bool is_numeric(char32_t c);      // category N
bool is_punctuation(char32_t c);  // category P of Unicode 8, and the ASCII symbols
bool is_word(char32_t c);         // alphabetic, mark, decimal digit, connector or joiner

// Bytes of the extended grapheme cluster that begins at `at`.
size_t cluster_size(std::string_view valid, size_t at);

enum class NormalForm : uint8_t { Nfc, Nfd, Nfkc, Nfkd };
std::string normalize(std::string_view valid, NormalForm form);
std::string to_lowercase(std::string_view valid);

}  // namespace reprise::text
