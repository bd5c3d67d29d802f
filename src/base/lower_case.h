// Lower case of ASCII, for names that are the same in any case. All other bytes stay as they are, in every locale, so
// UTF-8 stays whole; letters beyond ASCII are text/unicode.h's. Plain functions.
#pragma once

#include <string>
#include <string_view>

namespace reprise {

constexpr char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

inline std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower_case(c);
  return out;
}

}  // namespace reprise
