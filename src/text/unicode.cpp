#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "text/character_ranges.h"
#include "text/unicode_additions.h"

namespace reprise::text {
namespace {

const UnicodeAddition* find_addition(char32_t c) {
  auto it = std::upper_bound(std::begin(kUnicodeAdditions), std::end(kUnicodeAdditions), c,
                             [](char32_t v, const UnicodeAddition& a) { return v < a.first; });
  if (it == std::begin(kUnicodeAdditions)) return nullptr;
  --it;
  return c <= it->last ? it : nullptr;
}

// Two letters of the general category in Unicode 16.
std::string_view category(char32_t c) {
  if (const UnicodeAddition* addition = find_addition(c)) return addition->category;
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
}

// The normalizer behind published tokenizers knows Unicode 9. Marks that came later have no combining class for it,
// and characters that came later neither fall apart nor arise by composition.
constexpr CharacterRange kMarksSinceUnicode9[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},
    {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x16FF0, 0x16FF1}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
};
constexpr CharacterRange kDecompositionsSinceUnicode9[] = {
    {0x32FF, 0x32FF}, {0xA7F2, 0xA7F4}, {0xAB69, 0xAB69}, {0x10781, 0x107BA}, {0x11938, 0x11938}, {0x1FBF0, 0x1FBF9},
};

// The class of punctuation is Unicode 8's; so are these, which Unicode 14 counts as something else.
constexpr CharacterRange kPunctuationSinceUnicode8[] = {
    {0x061D, 0x061D},   {0x09FD, 0x09FD},   {0x0A76, 0x0A76},   {0x0C77, 0x0C77},   {0x0C84, 0x0C84},
    {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
    {0x10F86, 0x10F89}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C},
    {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8},
    {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};
constexpr char32_t kOncePunctuation[] = {0x166D, 0x111C9};

bool decomposes(char32_t c) { return !contains(kDecompositionsSinceUnicode9, c) && !find_addition(c); }

int combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const int value = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
  if (value == 0 || contains(kMarksSinceUnicode9, c) || find_addition(c)) return 0;
  return value;
}

// The one character that a starter and what follows it make, or 0.
char32_t compose_pair(char32_t a, char32_t b) {
  // utf8proc takes U+11A7, which stands before the first trailing Hangul letter, for one.
  if (b < 0x300 || b == 0x11A7) return 0;
  utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(a), static_cast<utf8proc_int32_t>(b)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  if (utf8proc_normalize_utf32(pair, 2, options) != 1) return 0;
  const auto made = static_cast<char32_t>(pair[0]);
  return decomposes(made) ? made : 0;
}

std::vector<char32_t> decompose(std::string_view text, bool compatible) {
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<char32_t> out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.size;
    // The longest decomposition has 18 characters.
    utf8proc_int32_t parts[32];
    int boundary = 0;
    utf8proc_ssize_t count = 0;
    if (c.value >= 0x80 && decomposes(c.value))
      count =
          utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), parts, std::size(parts), options, &boundary);
    if (count < 1 || count > static_cast<utf8proc_ssize_t>(std::size(parts))) {
      out.push_back(c.value);
    } else {
      out.insert(out.end(), parts, parts + count);
    }
  }
  return out;
}

// Sorts each run of marks by combining class. std::stable_sort keeps a hostile run of marks from taking quadratic time.
void order_marks(std::vector<char32_t>* text) {
  auto by_class = [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); };
  for (auto it = text->begin(); it != text->end();) {
    if (combining_class(*it) == 0) {
      ++it;
      continue;
    }
    auto end = std::find_if(it, text->end(), [](char32_t c) { return combining_class(c) == 0; });
    if (end - it > 1) std::stable_sort(it, end, by_class);
    it = end;
  }
}

void compose(std::vector<char32_t>* text) {
  size_t kept = 0;
  size_t starter = SIZE_MAX;
  int last_class = 0;  // of the last character kept after the starter
  for (char32_t c : *text) {
    const int cls = combining_class(c);
    // A mark is blocked when another of the same or a higher class stands between it and the starter.
    const bool reachable = starter != SIZE_MAX && (kept == starter + 1 || (last_class != 0 && last_class < cls));
    if (reachable) {
      if (char32_t made = compose_pair((*text)[starter], c)) {
        (*text)[starter] = made;
        continue;
      }
    }
    if (cls == 0) starter = kept;
    last_class = cls;
    (*text)[kept++] = c;
  }
  text->resize(kept);
}

// True where the normal form surely changes nothing: the common case, without the tables.
bool is_plainly_normal(std::string_view text, NormalForm form) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return true;
  if (form != NormalForm::Nfc) return false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.size;
    const bool plain = c.value < 0x300 || (c.value >= 0x3400 && c.value <= 0x9FFF) ||
                       (c.value >= 0xAC00 && c.value <= 0xD7A3) || (c.value >= 0x2010 && c.value <= 0x2027) ||
                       (c.value >= 0x3001 && c.value <= 0x3029) || (c.value >= 0xFF01 && c.value <= 0xFF60) ||
                       (c.value >= 0x410 && c.value <= 0x44F);
    if (!plain) return false;
  }
  return true;
}

}  // namespace

bool is_whitespace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  // The class behind the Digits pre-tokenizer already knows the digits of Unicode 17.
  if ((c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6)) return true;
  return category(c)[0] == 'N';
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  if (c == kOncePunctuation[0] || c == kOncePunctuation[1]) return true;
  return category(c)[0] == 'P' && !find_addition(c) && !contains(kPunctuationSinceUnicode8, c);
}

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
  const std::string_view cat = category(c);
  // Circled and squared letters are symbols, yet alphabetic.
  const bool alphabetic_symbol = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                 (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return cat[0] == 'L' || cat[0] == 'M' || cat == "Nd" || cat == "Nl" || cat == "Pc" || alphabetic_symbol ||
         c == 0x200C || c == 0x200D;
}

size_t cluster_size(std::string_view valid, size_t at) {
  CodePoint c = code_point_at(valid, at);
  utf8proc_int32_t state = 0;
  size_t end = at + c.size;
  while (end < valid.size()) {
    const CodePoint next = code_point_at(valid, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state))
      break;
    end += next.size;
    c = next;
  }
  return end - at;
}

std::string normalize(std::string_view valid, NormalForm form) {
  if (is_plainly_normal(valid, form)) return std::string(valid);
  std::vector<char32_t> text = decompose(valid, form == NormalForm::Nfkc || form == NormalForm::Nfkd);
  order_marks(&text);
  if (form == NormalForm::Nfc || form == NormalForm::Nfkc) compose(&text);
  std::string out;
  out.reserve(valid.size());
  for (char32_t c : text) append_utf8(c, &out);
  return out;
}

std::string to_lowercase(std::string_view valid) {
  std::string out;
  out.reserve(valid.size());
  for (size_t at = 0; at < valid.size();) {
    const CodePoint c = code_point_at(valid, at);
    at += c.size;
    if (c.value == 0x130) {  // the one character whose lower case is two
      out += "i\xCC\x87";
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))), &out);
    }
  }
  return out;
}

}  // namespace reprise::text
