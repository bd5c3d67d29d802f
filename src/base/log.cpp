#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>

#include "base/hooks.h"
#include "base/log_form.h"

namespace reprise::log {
namespace {

std::atomic<Level> g_level{Level::Info};
std::atomic<Form> g_form{Form::Plain};
std::mutex g_mutex;
std::shared_ptr<const Sink> g_sink;

std::string_view word(Level level) {
  switch (level) {
    case Level::Debug: return "debug";
    case Level::Info: return "info";
    case Level::Notice: return "notice";
    case Level::Warning: return "warning";
    case Level::Error: return "error";
    case Level::Off: break;
  }
  return "off";
}

std::string_view colour(Level level) {
  switch (level) {
    case Level::Debug: return "\033[2m";
    case Level::Warning: return "\033[33m";
    case Level::Error: return "\033[31m";
    case Level::Info:
    case Level::Notice:
    case Level::Off: break;
  }
  return "";
}

// RFC 3339, in UTC, with milliseconds.
std::string time_text(double seconds) {
  const auto ms = static_cast<int64_t>(std::floor(seconds * 1000));
  const std::time_t whole = ms / 1000;
  std::tm t{};
  ::gmtime_r(&whole, &t);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour,
                     t.tm_min, t.tm_sec, ms % 1000);
}

std::string dumped(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// A text without spaces and quotes needs no quotes.
std::string plain_value(const OrderedJson& value) {
  if (!value.is_string()) return dumped(value);
  const auto& text = value.get_ref<const std::string&>();
  const bool simple = !text.empty() && text.find_first_of(" \"=\\") == std::string::npos &&
                      text.find_first_not_of(
                          "!#$%&'()*+,-./0123456789:;<>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`"
                          "abcdefghijklmnopqrstuvwxyz{|}~") == std::string::npos;
  return simple ? text : dumped(value);
}

double now_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

void print(std::string_view text) {
  std::lock_guard lock(g_mutex);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

void set_level(Level level) { g_level.store(level, std::memory_order_relaxed); }
Level level() {
  if (const Hooks* hooks = current_hooks()) return hooks->log ? hooks->least : Level::Off;
  return g_level.load(std::memory_order_relaxed);
}
void set_form(Form form) { g_form.store(form, std::memory_order_relaxed); }
Form form() { return g_form.load(std::memory_order_relaxed); }

Result<Level> parse_level(std::string_view name) {
  if (name == "debug") return Level::Debug;
  if (name == "info") return Level::Info;
  if (name == "notice") return Level::Notice;
  if (name == "warning" || name == "warn") return Level::Warning;
  if (name == "error") return Level::Error;
  if (name == "off") return Level::Off;
  return invalid("log level \"{}\" is not known; allowed: debug, info, notice, warning, error, off", name);
}

std::string line(Form form, Level level, double seconds, std::string_view message, const OrderedJson& fields) {
  if (form == Form::Json) {
    OrderedJson j = {{"ts", time_text(seconds)}, {"level", word(level)}, {"msg", message}};
    for (const auto& [name, value] : fields.items()) j[name] = value;
    return dumped(j) + "\n";
  }
  std::string out;
  if (form == Form::Timed) {
    // A table has them in each of its lines.
    const std::string first = fmt::format("{} {:7} ", time_text(seconds), word(level));
    out = first;
    for (const char c : message) {
      out += c;
      if (c == '\n') out += first;
    }
  } else {
    out = level == Level::Info ? std::string(message) : fmt::format("{}: {}", word(level), message);
  }
  for (const auto& [name, value] : fields.items()) out += fmt::format(" {}={}", name, plain_value(value));
  return out + "\n";
}

void set_sink(Sink sink) {
  auto kept = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  std::lock_guard lock(g_mutex);
  g_sink = std::move(kept);
}

void write(Level level, std::string_view message, const OrderedJson& fields) {
  if (const Hooks* hooks = current_hooks()) {
    if (hooks->log) hooks->log(level, message);
    return;
  }
  std::shared_ptr<const Sink> sink;
  {
    std::lock_guard lock(g_mutex);
    sink = g_sink;
  }
  if (sink)
    (*sink)(level, message, fields);
  else
    write_to_standard_error(level, message, fields);
}

void write_to_standard_error(Level level, std::string_view message, const OrderedJson& fields) {
  static const char* const no_colour = std::getenv("NO_COLOR");
  static const bool colours = ::isatty(STDERR_FILENO) != 0 && !(no_colour && *no_colour);
  std::string text = line(form(), level, now_s(), message, fields);
  if (const std::string_view c = colour(level); colours && !c.empty() && form() != Form::Json) {
    // The word of the level alone, as far as it stands for itself.
    const size_t at = text.find(word(level));
    const size_t end = at + word(level).size() + (form() == Form::Plain ? 2 : 0);
    text = fmt::format("{}{}{}\033[0m{}", text.substr(0, at), c, text.substr(at, end - at), text.substr(end));
  }
  print(text);
}

void write(Level level, std::string_view message) { write(level, message, OrderedJson::object()); }

void show(std::string_view text) {
  if (!current_hooks()) return print(text);
  if (level() <= Level::Info) write(Level::Info, text);
}

}  // namespace reprise::log
