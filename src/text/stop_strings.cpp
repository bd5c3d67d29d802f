#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace reprise::text {

std::string StopStrings::push(std::string_view piece) {
  if (hit_) return {};
  held_ += piece;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at >= first) continue;
    first = at;
    matched_ = stop;
  }
  if (first != std::string::npos) {
    hit_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  // The longest end of the text that begins some stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) {
        keep = n;
        break;
      }
    }
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace reprise::text
