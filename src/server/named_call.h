// NamedCall: a call of a tool as a model wrote it. A plain value; any thread.
#pragma once

#include <string>
#include <string_view>

namespace reprise::server {

struct NamedCall {
  std::string name;
  std::string arguments;  // JSON
  std::string id = {};    // as the model wrote it; empty: it wrote none
};

constexpr std::string_view kCallBlanks = " \t\r\n";

inline std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(kCallBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kCallBlanks) - first + 1);
}

}  // namespace reprise::server
