// ModelFlags: the settings of a model as a command line gives them, with what only a program has: the log level, bars,
// and the flags of other launchers. A plain value.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/model_settings.h"
#include "base/log.h"
#include "common/launcher_flags.h"

namespace reprise::apps {

struct ModelFlags : api::ModelSettings {
  LauncherFlags launcher;
  // No flag: the seats of this process in the worlds of all replicas, where a replica has several ranks.
  std::vector<std::shared_ptr<ranks::Member>> fronts = {};
  std::optional<std::string> log_level;
  std::optional<std::string> adapter;
  bool quiet_start = false;  // no flag: a start says one line, and the report only with -v
  bool verbose = false;
  std::optional<bool> bars;  // no flag: whether loading and capturing show how far they are; else by the log level

  void add_to(CLI::App& app);
  // Usage errors; also sets the log level.
  Status check() const;
  // The same without the latter, and what level that is.
  Status check_values() const;
  Result<log::Level> level() const;
  // The adapter that the requests of a command go through (`chooses_adapter`); "": none.
  Result<std::string> chosen_adapter() const;
  // Flags that need no engine to tell what is in effect.
  std::vector<std::string> plain_notices() const;
};

// The model on disk, fetched if it must be; Ctrl-C ends that.
Result<std::string> model_on_disk(const std::string& path, api::HubOptions hub);
// Loads the model. Says on standard error which settings are in effect, unless the start is quiet.
Result<std::unique_ptr<engine::Engine>> open_engine(const ModelFlags& flags);

// The one line of a quiet start: "smollm2: cpu, float32, context 2048", then `more`. Nothing at other log levels.
void say_quiet_start(const ModelFlags& flags, engine::Engine& engine, std::string_view more = {});

}  // namespace reprise::apps
