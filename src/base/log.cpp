#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace reprise::log {
namespace {

std::atomic<Level> g_level{Level::Info};
std::mutex g_mutex;

struct Look {
  const char* word;
  const char* colour;
};

Look look(Level level) {
  switch (level) {
    case Level::Debug: return {"debug: ", "\033[2m"};
    case Level::Info: return {"", ""};
    case Level::Notice: return {"notice: ", ""};
    case Level::Warning: return {"warning: ", "\033[33m"};
    case Level::Error: return {"error: ", "\033[31m"};
    case Level::Off: break;
  }
  return {"", ""};
}

}  // namespace

void set_level(Level level) { g_level.store(level, std::memory_order_relaxed); }
Level level() { return g_level.load(std::memory_order_relaxed); }

Result<Level> parse_level(std::string_view name) {
  if (name == "debug") return Level::Debug;
  if (name == "info") return Level::Info;
  if (name == "notice") return Level::Notice;
  if (name == "warning" || name == "warn") return Level::Warning;
  if (name == "error") return Level::Error;
  if (name == "off") return Level::Off;
  return invalid("log level \"{}\" is not known; allowed: debug, info, notice, warning, error, off", name);
}

void write(Level level, std::string_view message) {
  static const char* const no_colour = std::getenv("NO_COLOR");
  static const bool colours = ::isatty(STDERR_FILENO) != 0 && !(no_colour && *no_colour);
  const Look l = look(level);
  std::string line = colours && *l.colour ? fmt::format("{}{}\033[0m{}\n", l.colour, l.word, message)
                                          : fmt::format("{}{}\n", l.word, message);
  std::lock_guard lock(g_mutex);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace reprise::log
