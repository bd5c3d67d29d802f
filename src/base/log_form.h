// The form of log lines, for the whole process: plain ones for a person at a command, lines with time and level for a
// service, or JSON for a collector. Set it once, before other threads log. Safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/log.h"

namespace reprise::log {

enum class Form {
  Plain,  // "warning: text", in colour on a terminal
  Timed,  // "2026-11-22T21:59:36.123Z warning text"; fields follow as name=value
  Json,   // {"ts": "2026-11-22T21:59:36.123Z", "level": "warning", "msg": "text", fields}
};

void set_form(Form form);
Form form();

// A line with named values, which a collector can count by: an object of numbers, texts and flags.
void write(Level level, std::string_view message, const OrderedJson& fields);

// Where log lines go in place of standard error: a function of the code that embeds the library, for the whole process.
// It is called on the thread that logs, and by several threads at once; it may not log. An empty one is standard error
// again. Lines below the level do not reach it.
using Sink = std::function<void(Level level, std::string_view message, const OrderedJson& fields)>;
void set_sink(Sink sink);
// What becomes of a line without a sink; for sinks that change a line and print it.
void write_to_standard_error(Level level, std::string_view message, const OrderedJson& fields);

// What goes to standard error, with its line break, without colours. `seconds` since 1970.
std::string line(Form form, Level level, double seconds, std::string_view message, const OrderedJson& fields);

}  // namespace reprise::log
