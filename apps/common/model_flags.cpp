#include "common/model_flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "backends/cpu/isa.h"
#include "base/log.h"
#include "common/flags.h"
#include "common/interrupt_guard.h"
#include "common/terminal.h"

namespace reprise::apps {

void ModelFlags::add_to(CLI::App& app) {
  const std::string isa_help = "CPU instruction set: " + cpu::isa_choices();
  for (const settings::Binding& b : bindings()) add_setting(app, b, b.key == "isa" ? isa_help : std::string());
  add_setting(app, {"log_level", &log_level},
              quiet_start ? "least level of log lines on standard error; default: notice"
                          : "least level of log lines on standard error; default: info");
  if (quiet_start) add_setting(app, {"verbose", &verbose});
  launcher.add_to(app);
  add_settings(app, graph.bindings());
  add_settings(app, speculation.bindings());
}

std::vector<std::string> ModelFlags::plain_notices() const {
  std::vector<std::string> out = launcher.notices();
  for (std::string& text : ModelSettings::plain_notices()) out.push_back(std::move(text));
  return out;
}

Status ModelFlags::check() const {
  if (verbose && log_level) return invalid("-v is --log-level info; it cannot go with --log-level {}", *log_level);
  ASSIGN_OR_RETURN(log::Level level, log::parse_level(log_level.value_or(quiet_start && !verbose ? "notice" : "info")));
  log::set_level(level);
  RETURN_IF_ERROR(launcher.check());
  return ModelSettings::check();
}

Result<std::string> model_on_disk(const std::string& path, api::HubOptions hub) {
  const InterruptGuard guard;
  hub.progress = log::level() <= log::Level::Notice;
  hub.stop = InterruptGuard::interrupted;
  return api::resolve_model_path(path, hub);
}

Result<std::unique_ptr<engine::Engine>> open_engine(const ModelFlags& flags) {
  RETURN_IF_ERROR(model_on_disk(flags.model_path, flags.hub).status());
  api::ModelSettings chosen = flags;
  // A quiet start has a bar to show, but no lines to add to a file.
  const bool bar = log::level() == log::Level::Notice && is_terminal(stderr);
  chosen.progress = flags.bars.value_or(log::level() <= log::Level::Info || bar);
  return api::open_engine(chosen, flags.launcher.notices());
}

void say_quiet_start(const ModelFlags& flags, engine::Engine& engine, std::string_view more) {
  if (log::level() != log::Level::Notice) return;
  std::filesystem::path path(flags.model_path);
  if (!path.has_filename()) path = path.parent_path();
  const std::string line =
      fmt::format("{}: {}, {}, context {}{}", path.filename().string(), device_kind_name(engine.device().info().kind),
                  dtype_name(engine.dtype()), engine.context_length(), more);
  log::write(log::Level::Info, coloured(Colour::Dim, line, stderr));
}

}  // namespace reprise::apps
