// CommandSettings: the settings of the table that a command has: where their values go, and what was given to each on
// the command line, in the environment and in the file of --config. It belongs to the command's CLI::App, in the place
// that CLI11 has for what reads configurations.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "settings/binding.h"
#include "settings/precedence.h"

namespace reprise::apps {

class CommandSettings final : public CLI::ConfigBase {
 public:
  // Those of the command, made when it is first asked; null where it has none.
  static std::shared_ptr<CommandSettings> of(CLI::App& command);
  static std::shared_ptr<CommandSettings> find(const CLI::App& command);

  // A setting with its option; the target's value is its default.
  void add(const settings::Binding& binding, const CLI::Option* option);

  // After the command line was parsed: gives the settings that it does not name the values of the environment, and
  // then those of the file. Errors name the variable, or the file.
  Status take(const char* const* environment);
  // Gives the targets of a command whose line was not parsed what is in effect.
  Status assign(const settings::Precedence& given);
  const settings::Precedence& given() const { return given_; }
  // What was given, with what the file says now in place of what it said.
  Result<settings::Precedence> with_file_of_now() const;

  // --print-settings of the command.
  void add_print_flag(CLI::App& command);
  bool asked_to_print() const { return !print_.empty(); }
  std::string printed() const;

 private:
  struct Entry {
    settings::Binding binding;
    const CLI::Option* option = nullptr;
    std::vector<std::string> initial;
  };
  const Entry* entry(std::string_view key) const;
  Status take_environment(const char* const* environment);
  Status take_file(settings::Precedence& given) const;
  // The file of settings in effect; "" = none.
  std::string config_path() const;

  std::vector<Entry> entries_;
  settings::Precedence given_;
  std::vector<std::string> unread_;  // variables of settings that other commands have
  std::string command_, print_;
};

}  // namespace reprise::apps
