// Unicode for tokenizers: normal forms, and the character classes that pre-tokenizers ask for. Published vocabularies
// were made with certain Unicode versions, and a tokenizer must see the same characters as then: classes follow Unicode
// 16, normal forms Unicode 9 (see unicode.cpp). Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace reprise::text {

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
