#include "base/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace reprise {
namespace {

const char* code(Colour c) {
  switch (c) {
    case Colour::Dim: return "\033[2m";
    case Colour::Bold: return "\033[1m";
    case Colour::Green: return "\033[32m";
    case Colour::Yellow: return "\033[33m";
    case Colour::Red: return "\033[31m";
  }
  return "";
}

}  // namespace

bool is_terminal(FILE* stream) { return ::isatty(::fileno(stream)) != 0; }

std::string coloured(Colour colour, std::string_view text, FILE* stream) {
  const char* no_colour = std::getenv("NO_COLOR");
  if (!is_terminal(stream) || (no_colour && *no_colour)) return std::string(text);
  return fmt::format("{}{}\033[0m", code(colour), text);
}

void write_now(std::string_view text, FILE* stream) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

std::string visible(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool second = c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (second) {  // U+0080 to U+009F
      out += "?";
      ++i;
    } else if (c == '\r') {
      continue;  // of a text with the line ends of another system
    } else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += {'^', static_cast<char>(c ^ 0x40)};
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace reprise
