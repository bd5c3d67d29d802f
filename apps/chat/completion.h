// Completion: what Tab may put in place of the text from byte `begin` on. A plain value.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::apps {

struct Completion {
  size_t begin = 0;
  std::vector<std::string> choices;
};
using Completer = std::function<Completion(std::string_view before_cursor)>;

}  // namespace reprise::apps
