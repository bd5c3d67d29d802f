// Flags: options of a command with ranges and choices in words. A value outside them is a usage error that names what
// is allowed. The targets must outlive the parse. Nothing here throws; CLI11's own exceptions end in parse_arguments().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}

namespace reprise::apps {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;  // the work failed
constexpr int kExitUsage = 2;   // the command line is wrong
constexpr int kExitInterrupted = 130;

void add_switch(CLI::App& app, const std::string& names, bool& target, const std::string& help);
void add_text(CLI::App& app, const std::string& names, std::string& target, const std::string& help,
              const std::string& value = "TEXT");
void add_text(CLI::App& app, const std::string& names, std::optional<std::string>& target, const std::string& help,
              const std::string& value = "TEXT");
// May be given several times, one value each.
void add_texts(CLI::App& app, const std::string& names, std::vector<std::string>& target, const std::string& help,
               const std::string& value = "TEXT");
// One value or more after the flag, up to the next flag: "1 2 4".
void add_words(CLI::App& app, const std::string& names, std::vector<std::string>& target, const std::string& help,
               const std::string& value = "TEXT");
void add_choice(CLI::App& app, const std::string& names, std::string& target, std::vector<std::string> allowed,
                const std::string& help);
void add_choice(CLI::App& app, const std::string& names, std::optional<std::string>& target,
                std::vector<std::string> allowed, const std::string& help);

struct IntegerRange {
  int64_t low, high;
};
void add_integer(CLI::App& app, const std::string& names, int64_t& target, IntegerRange range, const std::string& help);
void add_integer(CLI::App& app, const std::string& names, std::optional<int64_t>& target, IntegerRange range,
                 const std::string& help);
// "1,8,32"
void add_integers(CLI::App& app, const std::string& names, std::vector<int64_t>& target, IntegerRange range,
                  const std::string& help);

struct RealRange {
  double low, high;
  bool low_excluded = false;
};
void add_real(CLI::App& app, const std::string& names, double& target, RealRange range, const std::string& help);
void add_real(CLI::App& app, const std::string& names, std::optional<double>& target, RealRange range,
              const std::string& help);

Result<int64_t> parse_integer(std::string_view text, IntegerRange range);
Result<std::vector<int64_t>> parse_integers(std::string_view text, IntegerRange range);

// Parses, and prints help or the error of a wrong command line. nullopt: go on; else the exit code.
std::optional<int> parse_arguments(CLI::App& app, const std::vector<std::string>& words);

}  // namespace reprise::apps
