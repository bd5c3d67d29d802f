#include "text/jinja/unicode.h"

#include <utf8proc.h>

namespace reprise::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Characters whose upper or title case is more than one character: the ones that occur in text.
struct LongCase {
  char32_t c;
  const char* upper;
  const char* title;
};
constexpr LongCase kLongCases[] = {
    {0x00DF, "SS", "Ss"},
    {0x0149, "\u02BCN", "\u02BCN"},
    {0x01F0, "J\u030C", "J\u030C"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
    {0x0587, "\u0535\u0552", "\u0535\u0582"},
};

enum class Case { Upper, Lower, Title };

void append_case(std::string& out, char32_t c, Case to) {
  if (c < 0x80) {
    if (to == Case::Lower && c >= 'A' && c <= 'Z') c += 32;
    if (to != Case::Lower && c >= 'a' && c <= 'z') c -= 32;
    out.push_back(static_cast<char>(c));
    return;
  }
  if (to == Case::Lower) {
    if (c == 0x130)
      out += "i\u0307";
    else
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), &out);
    return;
  }
  for (const LongCase& special : kLongCases) {
    if (special.c == c) {
      out += to == Case::Upper ? special.upper : special.title;
      return;
    }
  }
  const auto point = static_cast<utf8proc_int32_t>(c);
  append_utf8(static_cast<char32_t>(to == Case::Upper ? utf8proc_toupper(point) : utf8proc_totitle(point)), &out);
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_titlecase(c); }

// Greek sigma has its own form at the end of a word.
bool is_final_sigma(std::string_view s, size_t pos, bool after_cased) {
  if (!after_cased) return false;
  const size_t next = pos + 2;
  if (next >= s.size()) return true;
  return !is_cased(point_or_byte_at(s, next).value);
}

template <typename Choose>
std::string map_case(std::string_view s, Choose choose) {
  std::string out;
  out.reserve(s.size());
  bool after_cased = false;
  for (size_t i = 0; i < s.size();) {
    const auto [c, n] = point_or_byte_at(s, i);
    if (is_stray_byte(c)) {
      out.push_back(s[i]);
    } else {
      const Case to = choose(c, after_cased, i == 0);
      if (c == 0x3A3 && to == Case::Lower && is_final_sigma(s, i, after_cased))
        out += "\u03C2";
      else
        append_case(out, c, to);
    }
    after_cased = !is_stray_byte(c) && is_cased(c);
    i += n;
  }
  return out;
}

}  // namespace

size_t count_points(std::string_view s) {
  size_t count = 0;
  for (size_t i = 0; i < s.size(); i += static_cast<uint8_t>(s[i]) < 0x80 ? 1 : point_bytes(s, i)) ++count;
  return count;
}

size_t byte_offset(std::string_view s, size_t index) {
  size_t i = 0;
  while (index-- > 0 && i < s.size()) i += point_bytes(s, i);
  return i;
}

std::vector<std::string_view> split_points(std::string_view s) {
  std::vector<std::string_view> out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const size_t n = point_bytes(s, i);
    out.push_back(s.substr(i, n));
    i += n;
  }
  return out;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto cat = category(c);
  return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  // Superscripts, subscripts and the first circled digits are digits without being decimal.
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490);
}

bool is_numeric(char32_t c) {
  if (is_digit(c)) return true;
  if (c < 0x80) return false;
  const auto cat = category(c);
  if (cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO) return true;
  // The common Chinese numerals are letters that count as numbers.
  constexpr std::u32string_view kNumerals =
      U"\u4E00\u4E8C\u4E09\u56DB\u4E94\u516D\u4E03\u516B\u4E5D\u5341\u767E\u5343"
      U"\u4E07\u5104\u96F6\u3007";
  return kNumerals.find(c) != std::u32string_view::npos;
}

bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF);
}
bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F) ||
         (c >= 0x24D0 && c <= 0x24E9) || (c >= 0x2B0 && c <= 0x2B8);
}
bool is_titlecase(char32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const auto cat = category(c);
  return !(cat == UTF8PROC_CATEGORY_CN || (cat >= UTF8PROC_CATEGORY_ZS && cat <= UTF8PROC_CATEGORY_CO));
}

bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

std::string to_upper(std::string_view s) {
  return map_case(s, [](char32_t, bool, bool) { return Case::Upper; });
}
std::string to_lower(std::string_view s) {
  return map_case(s, [](char32_t, bool, bool) { return Case::Lower; });
}
std::string to_title(std::string_view s) {
  return map_case(s, [](char32_t, bool after_cased, bool) { return after_cased ? Case::Lower : Case::Title; });
}
std::string to_capitalized(std::string_view s) {
  return map_case(s, [](char32_t, bool, bool first) { return first ? Case::Title : Case::Lower; });
}
std::string_view strip_left(std::string_view s) {
  size_t i = 0;
  while (i < s.size()) {
    const auto [c, n] = point_or_byte_at(s, i);
    if (!is_space(c)) break;
    i += n;
  }
  return s.substr(i);
}

std::string_view strip_right(std::string_view s) {
  size_t end = s.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && end - start < 4 && (static_cast<uint8_t>(s[start]) & 0xC0) == 0x80) --start;
    const auto [c, n] = point_or_byte_at(s, start);
    if (n != end - start || !is_space(c)) break;
    end = start;
  }
  return s.substr(0, end);
}

}  // namespace reprise::text::jinja
