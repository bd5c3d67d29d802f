// EventReader: the data of server-sent events out of bytes that come in any pieces. Comments and fields other than data
// are skipped; several data lines of one event are joined by line ends. A plain value; one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace reprise::client {

class EventReader {
 public:
  void push(std::string_view bytes);
  // The data of the next whole event; nullopt when more bytes are needed.
  std::optional<std::string> next();
  // The stream has ended: an event without its empty line counts.
  void end() { push("\n\n"); }

 private:
  std::string held_;  // from at_ on not yet read
  size_t at_ = 0;
  std::optional<std::string> data_;
};

}  // namespace reprise::client
