// Logging: one line to standard error per message, "warning: ..." in colour only on a terminal. Standard output belongs
// to answers and JSON. Safe from any thread. Levels: debug, info, notice, warning, error. A notice says that a setting
// is not honoured, and what is in effect; the report of a start is info, so that a quiet start still shows notices.
// base/log_form.h has other forms. On a thread with hooks (base/hooks.h) lines go to those alone.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "base/status.h"

namespace reprise::log {

enum class Level { Debug, Info, Notice, Warning, Error, Off };

void set_level(Level level);
Level level();
Result<Level> parse_level(std::string_view name);
void write(Level level, std::string_view message);
// A text that was asked for, as it stands; where there are hooks, a line of level info.
void show(std::string_view text);

template <typename... Args>
void debug(fmt::format_string<Args...> f, Args&&... args) {
  if (level() <= Level::Debug) write(Level::Debug, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> f, Args&&... args) {
  if (level() <= Level::Info) write(Level::Info, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void notice(fmt::format_string<Args...> f, Args&&... args) {
  if (level() <= Level::Notice) write(Level::Notice, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> f, Args&&... args) {
  if (level() <= Level::Warning) write(Level::Warning, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> f, Args&&... args) {
  if (level() <= Level::Error) write(Level::Error, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace reprise::log
