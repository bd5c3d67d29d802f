#include "client/event_reader.h"

namespace reprise::client {

void EventReader::push(std::string_view bytes) {
  held_.erase(0, at_);
  at_ = 0;
  held_ += bytes;
}

std::optional<std::string> EventReader::next() {
  while (true) {
    const size_t end = held_.find('\n', at_);
    if (end == std::string::npos) return std::nullopt;
    std::string_view line = std::string_view(held_).substr(at_, end - at_);
    at_ = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (!data_) continue;
      std::optional<std::string> out = std::move(data_);
      data_.reset();
      return out;
    }
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (data_)
      *data_ += '\n';
    else
      data_.emplace();
    *data_ += line;
  }
}

}  // namespace reprise::client
