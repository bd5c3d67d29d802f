// Flags: options of a command with ranges and choices in words. A value outside them is a usage error that names what
// is allowed. The targets must outlive the parse. Nothing here throws; CLI11's own exceptions end in parse_arguments().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "settings/binding.h"

namespace CLI {
class App;
}

namespace reprise::apps {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;  // the work failed
constexpr int kExitUsage = 2;   // the command line is wrong
constexpr int kExitInterrupted = 130;

using settings::IntegerRange;
using settings::RealRange;

// Where a flag's value goes: a variable of a type that a setting may have.
struct Place {
  template <typename Value>
  Place(Value& value) : target(&value) {}  // NOLINT: a variable is a place
  settings::Target target;
};

// The flag of a setting, by its row in the table; `help` in place of the row's, where a command has more to say.
void add_setting(CLI::App& app, const settings::Binding& binding, std::string_view help = {},
                 std::string_view group = {});
// `group`: the heading in --help, in place of the rows' own.
void add_settings(CLI::App& app, std::span<const settings::Binding> bindings, std::string_view group = {});

// Flags of one command alone, which are about what it prints or measures, and stand in no table.
void add_switch(CLI::App& app, const std::string& names, bool& target, const std::string& help);
void add_text(CLI::App& app, const std::string& names, Place place, const std::string& help,
              const char* value = "TEXT");
// May be given several times, one value each.
void add_texts(CLI::App& app, const std::string& names, std::vector<std::string>& target, const std::string& help,
               const char* value = "TEXT");
void add_choice(CLI::App& app, const std::string& names, Place place, std::vector<std::string> allowed,
                const std::string& help);
void add_integer(CLI::App& app, const std::string& names, Place place, IntegerRange range, const std::string& help);
// "1,8,32"
void add_integers(CLI::App& app, const std::string& names, std::vector<int64_t>& target, IntegerRange range,
                  const std::string& help);
void add_real(CLI::App& app, const std::string& names, Place place, RealRange range, const std::string& help);

// Parses, and prints help or the error of a wrong command line. nullopt: go on; else the exit code.
std::optional<int> parse_arguments(CLI::App& app, const std::vector<std::string>& words);

}  // namespace reprise::apps
