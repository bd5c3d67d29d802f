// LauncherSettings: settings of launch lines of SGLang, vLLM and llama.cpp that change nothing here, each with what is
// in effect instead, and those that ask for what this build cannot do, each refused in one line. Programs do not show
// them in their help; docs/configuration.md lists them. Their rows are in the table of settings. A plain value; the
// targets of its bindings are its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "settings/binding.h"

namespace reprise::settings {

class LauncherSettings {
 public:
  LauncherSettings();
  std::vector<Binding> bindings();
  // What was given and cannot be done.
  Status check() const;
  // One line for each flag that was given.
  std::vector<std::string> notices() const;

 private:
  struct Given {
    std::optional<std::string> text = {};
    std::optional<int64_t> number = {};
    std::optional<double> real = {};
    std::vector<std::string> words = {};
    bool on = false;
  };
  std::vector<Given> given_;  // by row of the table
};

}  // namespace reprise::settings
