// Setting: one row of the table of settings: its name, type, default, what is allowed, and one sentence of help. Flags,
// the library's setters, docs/configuration.md and the spelling in messages all come from these rows; a new setting is
// one row and one line where its value goes (settings/binding.h). The table is constant; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "settings/precedence.h"

namespace reprise::settings {

enum class Kind : uint8_t {
  Switch,    // true or false; a flag without a value
  Text,      //
  Texts,     // may be given several times
  Words,     // one or more after the flag
  Choice,    // one of `choices`
  Integer,   //
  Integers,  // "1,8,32"
  Real,
};

// Where a setting belongs: the heading over its flag, and which commands take it.
enum class Group : uint8_t { Model, Engine, Graphs, GraphAliases, Speculation, Sampling, Server, Library, Launcher };

struct IntegerRange {
  int64_t low, high;
};
struct RealRange {
  double low, high;
  bool low_excluded = false;
};

struct Setting {
  std::string_view key;  // "max_running_requests"; its flag is --max-running-requests
  Kind kind = Kind::Text;
  std::string_view initial = {};  // the value where nothing is said; empty: none, or by a rule that the help tells
  IntegerRange integers = {0, std::numeric_limits<int64_t>::max()};
  RealRange reals = {0, std::numeric_limits<double>::infinity()};
  std::vector<std::string> choices = {};
  std::string_view also = {};   // other names of the flag, "-c,--max-model-len"
  std::string_view value = {};  // what stands for the value in help; empty: by the kind
  std::string_view help = {};
  bool refused = false;           // of Group::Launcher: giving it is an error, for which `help` is the reason
  bool live = false;              // a server takes it anew at SIGHUP
  bool secret = false;            // its value is not printed
  Origin rule = Origin::Default;  // who decides where nothing is said: Device or Model, for which the help has the rule
  Group group = Group::Model;
};

// The rows of a group in the order of the help, and all of them.
std::span<const Setting> rows(Group group);
std::span<const Setting> table();
// Null when there is no such row.
const Setting* find(std::string_view key);

// "max_running_requests" as "max-running-requests", which is how files, the library and tables name it; and back.
std::string name_of(std::string_view key);
std::string key_of(std::string_view name);
// "max_running_requests" as "--max-running-requests".
std::string flag_of(std::string_view key);
// All names of the flag, its own among them: "-c,--context-length,--max-model-len".
std::string flag_names(const Setting& setting);

// The heading of a group, and the commands that take its settings.
std::string_view title_of(Group group);
std::string_view commands_of(Group group);

// A message as a command line spells it. Messages of the library name a setting by its key in backquotes, which is how
// its setters spell it; here each "`max_total_tokens`" becomes "--max-total-tokens". Other words in backquotes stay.
std::string as_flags(std::string_view message);

// The settings that a message names so, in its order.
std::vector<std::string> named_in(std::string_view message);

}  // namespace reprise::settings
