#include "chat/plain_input.h"

#include <unistd.h>

#include <cerrno>

#include "base/terminal.h"
#include "common/standard_input.h"

namespace reprise::apps {

Result<NextMessage> PlainInput::read() {
  NextMessage message{NextMessage::Kind::Message, {}};
  if (terminal_) terminal_->show_keys();
  for (bool more = false;; more = true) {
    if (terminal_) write_now(coloured(Colour::Green, more ? ". " : "> ", stdout), stdout);
    std::string line;
    const Line end = read_line(line);
    if (end == Line::Interrupted) return NextMessage{NextMessage::Kind::Interrupted, {}};
    if (end == Line::TooLong)
      return invalid("line {} of standard input has more than {} bytes, which is the most", lines_, kLongestLine);
    if (end == Line::End && line.empty()) {
      if (!more) message.kind = NextMessage::Kind::End;
      break;
    }
    if (line.ends_with('\r')) line.pop_back();
    RETURN_IF_ERROR(check_utf8(line, fmt::format("line {} of standard input", lines_)));
    const bool goes_on = line.ends_with('\\') && end != Line::End;
    if (goes_on) line.back() = '\n';
    message.text += line;
    if (!goes_on) break;
  }
  if (terminal_) terminal_->hide_keys();
  return message;
}

PlainInput::Line PlainInput::read_line(std::string& line) {
  ++lines_;
  bool too_long = false;
  for (;;) {
    const size_t end = buffer_.find('\n', used_);
    const size_t taken = std::min(end, buffer_.size()) - used_;
    too_long |= line.size() + taken > kLongestLine;
    if (!too_long) line.append(buffer_, used_, taken);
    if (end != std::string::npos) {
      used_ = end + 1;
      return too_long ? Line::TooLong : Line::Complete;
    }
    used_ = 0;
    buffer_.resize(64 * 1024);
    if (terminal_) {
      const TerminalSession::Event event = terminal_->wait();
      if (event == TerminalSession::Event::Interrupted) {
        buffer_.clear();
        write_now("\n", stdout);
        return Line::Interrupted;
      }
      if (event != TerminalSession::Event::Input) {
        buffer_.clear();
        continue;
      }
    }
    const ssize_t n = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
    buffer_.resize(n > 0 ? static_cast<size_t>(n) : 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return too_long ? Line::TooLong : Line::End;
  }
}

}  // namespace reprise::apps
