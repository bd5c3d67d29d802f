// RunSettings: the settings of a model with those of the program that runs it: the log level, progress bars, and what
// the launch lines of other systems say. And open_engine(), which fetches the model first where it must. A plain value.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/model_settings.h"
#include "base/log.h"
#include "settings/launcher_settings.h"

namespace reprise::service {

struct RunSettings : api::ModelSettings {
  settings::LauncherSettings launcher;
  // No setting: the seats of this process in the worlds of all replicas, where a replica has several ranks.
  std::vector<std::shared_ptr<ranks::Member>> fronts = {};
  std::optional<std::string> log_level;
  bool quiet_start = false;  // no setting: a start says one line, and the report only with `verbose`
  bool verbose = false;
  std::optional<bool> bars;  // no setting: whether loading and capturing show how far they are; else by the log level

  // The least level of log lines; an error where two settings give one.
  Result<log::Level> level() const;
  // Errors that need more than one value to see.
  Status check_values() const;
  // What can be told without an engine about settings that change nothing.
  std::vector<std::string> plain_notices() const;
};

// The model on disk, fetched if it must be; Ctrl-C ends that.
Result<std::string> model_on_disk(const std::string& path, api::HubOptions hub);
// Those of its engine: with bars where this program shows them.
api::ModelSettings engine_settings(const RunSettings& chosen);
// Loads the model. Logs which settings are in effect.
Result<std::unique_ptr<engine::Engine>> open_engine(const RunSettings& chosen);

}  // namespace reprise::service
