// MessageSource: where the messages of a conversation come from: a terminal whose lines are edited (LineEditor), or
// plain lines (PlainInput). Used by the main thread.
#pragma once

#include <string>

#include "base/status.h"

namespace reprise::apps {

struct NextMessage {
  enum class Kind {
    Message,
    Interrupted,  // Ctrl-C at the prompt; `text` stood there and is given up
    End,          // Ctrl-D, or the end of the input
  };
  Kind kind = Kind::End;
  std::string text;
  bool typed = false;  // Interrupted: keys came before
};

class MessageSource {
 public:
  virtual ~MessageSource() = default;
  // Waits. An error is about one message; the next one can be read.
  virtual Result<NextMessage> read() = 0;
};

}  // namespace reprise::apps
