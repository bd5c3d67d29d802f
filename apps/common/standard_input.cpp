#include "common/standard_input.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "text/utf8.h"

namespace reprise::apps {

Status check_utf8(std::string_view text, std::string_view place) {
  if (text::is_valid_utf8(text)) return Status::ok();
  size_t at = 0;
  for (bool good = true; good && at < text.size();) {
    good = false;
    for (size_t size = 1; size <= std::min<size_t>(4, text.size() - at) && !good; ++size)
      if (text::is_valid_utf8(text.substr(at, size))) {
        at += size;
        good = true;
      }
  }
  return invalid("{}: byte {} is not UTF-8 (0x{:02x}); allowed: text in UTF-8", place, at,
                 static_cast<unsigned char>(text[at]));
}

Result<std::string> read_standard_input(std::string_view flag) {
  std::string text;
  for (size_t got = 0;;) {
    text.resize(std::min(kMostStandardInput + 1, std::max<size_t>(64 * 1024, 2 * got)));
    const ssize_t n = ::read(STDIN_FILENO, text.data() + got, text.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return invalid("{}: standard input: {}", flag, std::strerror(errno));
    got += static_cast<size_t>(n);
    if (got > kMostStandardInput)
      return invalid("{}: standard input has more than {} bytes, which is the most", flag, kMostStandardInput);
    if (n > 0) continue;
    text.resize(got);
    break;
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (text.empty()) return invalid("{}: standard input is empty", flag);
  RETURN_IF_ERROR(check_utf8(text, fmt::format("{}: standard input", flag)));
  return text;
}

}  // namespace reprise::apps
