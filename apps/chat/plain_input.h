// PlainInput: messages as plain lines: from a pipe or file, or from a terminal whose lines cannot be edited here. A
// line that ends in \ goes on in the next one. Main thread.
#pragma once

#include "chat/message_source.h"
#include "chat/terminal_session.h"

namespace reprise::apps {

class PlainInput final : public MessageSource {
 public:
  static constexpr size_t kLongestLine = 16 << 20;

  // With a terminal it shows a prompt.
  explicit PlainInput(TerminalSession* terminal) : terminal_(terminal) {}

  Result<NextMessage> read() override;

 private:
  enum class Line { Complete, Interrupted, End, TooLong };
  Line read_line(std::string& line);

  TerminalSession* terminal_;
  std::string buffer_;
  size_t used_ = 0;  // of the buffer
  int64_t lines_ = 0;
};

}  // namespace reprise::apps
