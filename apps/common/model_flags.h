// ModelFlags: the settings of a model and of the program that runs it, as a command line gives them, with the adapter
// that the requests of a command go through. A plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "service/run_settings.h"

namespace CLI {
class App;
}

namespace reprise::apps {

// The flags of all settings of a run; where they lie stays as long as the command.
void add_run_settings(CLI::App& app, service::RunSettings& settings);

struct ModelFlags : service::RunSettings {
  std::optional<std::string> adapter;

  void add_to(CLI::App& app);
  // Usage errors; also sets the log level.
  Status check() const;
  // The adapter that the requests of a command go through (`chooses_adapter`); "": none.
  Result<std::string> chosen_adapter() const;
};

// The one line of a quiet start: "smollm2: cpu, float32, context 2048", then `more`. Nothing at other log levels.
void say_quiet_start(const ModelFlags& flags, engine::Engine& engine, std::string_view more = {});

// --rank of commands that show one, and whether there is such a rank.
void add_rank(CLI::App& app, int64_t& rank);
Status check_rank(const ModelFlags& flags, int64_t rank);

}  // namespace reprise::apps
