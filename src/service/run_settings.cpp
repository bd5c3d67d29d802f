#include "service/run_settings.h"

#include "base/terminal.h"
#include "service/interrupt_guard.h"

namespace reprise::service {

std::vector<std::string> RunSettings::plain_notices() const {
  std::vector<std::string> out = launcher.notices();
  for (std::string& text : ModelSettings::plain_notices()) out.push_back(std::move(text));
  return out;
}

Result<log::Level> RunSettings::level() const {
  if (verbose && log_level)
    return invalid("`verbose` is `log_level` info; it cannot go with `log_level` {}", *log_level);
  return log::parse_level(log_level.value_or(quiet_start && !verbose ? "notice" : "info"));
}

Status RunSettings::check_values() const {
  RETURN_IF_ERROR(launcher.check());
  return ModelSettings::check();
}

Result<std::string> model_on_disk(const std::string& path, api::HubOptions hub) {
  const InterruptGuard guard;
  hub.progress = log::level() <= log::Level::Notice;
  hub.stop = InterruptGuard::interrupted;
  return api::resolve_model_path(path, hub);
}

api::ModelSettings engine_settings(const RunSettings& settings) {
  api::ModelSettings chosen = settings;
  // A quiet start has a bar to show, but no lines to add to a file.
  const bool bar = log::level() == log::Level::Notice && is_terminal(stderr);
  chosen.progress = settings.bars.value_or(log::level() <= log::Level::Info || bar);
  return chosen;
}

Result<std::unique_ptr<engine::Engine>> open_engine(const RunSettings& settings) {
  RETURN_IF_ERROR(model_on_disk(settings.model_path, settings.hub).status());
  return api::open_engine(engine_settings(settings), settings.launcher.notices());
}

}  // namespace reprise::service
