#include "text/bert_characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "text/character_ranges.h"
#include "text/unicode.h"
#include "text/unicode_additions.h"

namespace reprise::text {
namespace {

// Marks without space of Unicode 14 that Unicode 8 did not have, or had as something else.
constexpr CharacterRange kMarksSinceUnicode8[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08E1},   {0x09FE, 0x09FE},   {0x0AFA, 0x0AFF},
    {0x0B55, 0x0B55},   {0x0C04, 0x0C04},   {0x0C3C, 0x0C3C},   {0x0D00, 0x0D00},   {0x0D3B, 0x0D3C},
    {0x0D81, 0x0D81},   {0x0EBA, 0x0EBA},   {0x180F, 0x180F},   {0x1885, 0x1886},   {0x1ABF, 0x1ACE},
    {0x1DF6, 0x1DFB},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},
    {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x111C9, 0x111C9}, {0x111CF, 0x111CF}, {0x1123E, 0x1123E},
    {0x1133B, 0x1133B}, {0x11438, 0x1143F}, {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1145E, 0x1145E},
    {0x1182F, 0x11837}, {0x11839, 0x1183A}, {0x1193B, 0x1193C}, {0x1193E, 0x1193E}, {0x11943, 0x11943},
    {0x119D4, 0x119D7}, {0x119DA, 0x119DB}, {0x119E0, 0x119E0}, {0x11A01, 0x11A0A}, {0x11A33, 0x11A38},
    {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47}, {0x11A51, 0x11A56}, {0x11A59, 0x11A5B}, {0x11A8A, 0x11A96},
    {0x11A98, 0x11A99}, {0x11C30, 0x11C36}, {0x11C38, 0x11C3D}, {0x11C3F, 0x11C3F}, {0x11C92, 0x11CA7},
    {0x11CAA, 0x11CB0}, {0x11CB2, 0x11CB3}, {0x11CB5, 0x11CB6}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A},
    {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D90, 0x11D91}, {0x11D95, 0x11D95},
    {0x11D97, 0x11D97}, {0x11EF3, 0x11EF4}, {0x16F4F, 0x16F4F}, {0x16FE4, 0x16FE4}, {0x1CF00, 0x1CF2D},
    {0x1CF30, 0x1CF46}, {0x1E000, 0x1E006}, {0x1E008, 0x1E018}, {0x1E01B, 0x1E021}, {0x1E023, 0x1E024},
    {0x1E026, 0x1E02A}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E944, 0x1E94A}};
// Format characters, likewise.
constexpr CharacterRange kFormatsSinceUnicode8[] = {
    {0x0890, 0x0891}, {0x08E2, 0x08E2}, {0x110CD, 0x110CD}, {0x13430, 0x13438}};
// The fifth block begins later than the standard's (0x2B820), as in HF tokenizers.
constexpr CharacterRange kIdeographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
                                          {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
constexpr char32_t kReplacement = 0xFFFD, kOnceAMark = 0x1734;

bool came_later(char32_t c) {
  auto it = std::upper_bound(std::begin(kUnicodeAdditions), std::end(kUnicodeAdditions), c,
                             [](char32_t v, const UnicodeAddition& a) { return v < a.first; });
  return it != std::begin(kUnicodeAdditions) && c <= std::prev(it)->last;
}

bool is_mark(char32_t c) {
  if (c < 0x300) return false;
  if (c == kOnceAMark) return true;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN && !came_later(c) &&
         !contains(kMarksSinceUnicode8, c);
}

bool is_control(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CO: return true;
    case UTF8PROC_CATEGORY_CF: return !came_later(c) && !contains(kFormatsSinceUnicode8, c);
    default: return false;
  }
}

// Calls f(character, its bytes) for each.
template <typename F>
void for_each_character(std::string_view text, const F& f) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    f(c.value, text.substr(at, c.size));
    at += c.size;
  }
}

}  // namespace

std::string without_controls(std::string_view valid) {
  std::string out;
  out.reserve(valid.size());
  for_each_character(valid, [&](char32_t c, std::string_view bytes) {
    // Controls that are white space, like U+0085, go all the same.
    if (c == '\t' || c == '\n' || c == '\r') {
      out += ' ';
    } else if (c == kReplacement || is_control(c)) {
      return;
    } else if (is_whitespace(c)) {
      out += ' ';
    } else {
      out += bytes;
    }
  });
  return out;
}

std::string with_apart_ideographs(std::string_view valid) {
  std::string out;
  out.reserve(valid.size());
  for_each_character(valid, [&](char32_t c, std::string_view bytes) {
    const bool apart = contains(kIdeographs, c);
    if (apart) out += ' ';
    out += bytes;
    if (apart) out += ' ';
  });
  return out;
}

std::string without_accents(std::string_view valid) {
  const std::string parts = normalize(valid, NormalForm::Nfd);
  std::string out;
  out.reserve(parts.size());
  for_each_character(parts, [&](char32_t c, std::string_view bytes) {
    if (!is_mark(c)) out += bytes;
  });
  return out;
}

}  // namespace reprise::text
