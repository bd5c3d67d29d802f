#include "common/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace reprise::apps {
namespace {

volatile sig_atomic_t g_interrupted = 0;
struct sigaction g_before {};

void on_interrupt(int) { g_interrupted = 1; }

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
  if (!is_terminal(stream) || std::getenv("NO_COLOR")) return std::string(text);
  return fmt::format("{}{}\033[0m", code(colour), text);
}

void write_now(std::string_view text, FILE* stream) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

InterruptGuard::InterruptGuard() {
  g_interrupted = 0;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, &g_before);
}

InterruptGuard::~InterruptGuard() { ::sigaction(SIGINT, &g_before, nullptr); }

bool InterruptGuard::interrupted() { return g_interrupted != 0; }

}  // namespace reprise::apps
