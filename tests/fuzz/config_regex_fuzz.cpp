// A pattern of a quantisation configuration (first line) against the names of modules (the others): nothing hangs,
// crashes or grows, and whatever was translated compiles or is refused in words.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/name_pattern.h"

using namespace reprise::checkpoint;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto line = [&] {
    const size_t end = text.find('\n');
    const std::string_view out = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return out;
  };
  const auto pattern = NamePattern::compile(line());
  if (!pattern.is_ok()) {
    if (pattern.status().message().empty()) std::abort();
    return 0;
  }
  while (!text.empty()) {
    const std::string_view name = line();
    if (pattern->matches(name) != pattern->matches(name)) std::abort();
  }
  return 0;
}
