#include "common/model_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "backends/cpu/isa.h"
#include "common/flags.h"
#include "common/interrupt_guard.h"
#include "common/terminal.h"
#include "sched/adapter_table.h"

namespace reprise::apps {

void ModelFlags::add_to(CLI::App& app) {
  const std::string isa_help = "CPU instruction set: " + cpu::isa_choices();
  for (const settings::Binding& b : bindings()) add_setting(app, b, b.key == "isa" ? isa_help : std::string());
  add_setting(app, {"log_level", &log_level},
              quiet_start ? "least level of log lines on standard error; default: notice"
                          : "least level of log lines on standard error; default: info");
  if (quiet_start) add_setting(app, {"verbose", &verbose});
  if (chooses_adapter)
    add_text(app, "--adapter", adapter,
             "the LoRA adapter of `--lora-modules` to answer with, or none; default: the one that is named there alone",
             "NAME");
  launcher.add_to(app);
  add_settings(app, graph.bindings());
  add_settings(app, speculation.bindings());
}

std::vector<std::string> ModelFlags::plain_notices() const {
  std::vector<std::string> out = launcher.notices();
  for (std::string& text : ModelSettings::plain_notices()) out.push_back(std::move(text));
  return out;
}

Result<std::string> ModelFlags::chosen_adapter() const {
  std::vector<std::string> names;
  for (const std::string& text : lora_modules) {
    ASSIGN_OR_RETURN(const sched::AdapterPlace place, sched::parse_adapter_place(text));
    names.push_back(place.name);
  }
  const std::string allowed = fmt::format("{}{}none", fmt::join(names, ", "), names.empty() ? "" : ", ");
  if (!adapter) {
    if (names.size() > 1)
      return invalid("--lora-modules names {} adapters; --adapter chooses one; allowed: {}", names.size(), allowed);
    return names.empty() ? "" : names.front();
  }
  if (std::find(names.begin(), names.end(), *adapter) != names.end()) return *adapter;
  if (*adapter == "none") return std::string();
  return invalid("--adapter {}: --lora-modules names no such adapter; allowed: {}", *adapter, allowed);
}

Result<log::Level> ModelFlags::level() const {
  if (verbose && log_level) return invalid("-v is --log-level info; it cannot go with --log-level {}", *log_level);
  return log::parse_level(log_level.value_or(quiet_start && !verbose ? "notice" : "info"));
}

Status ModelFlags::check() const {
  ASSIGN_OR_RETURN(const log::Level chosen, level());
  log::set_level(chosen);
  return check_values();
}

Status ModelFlags::check_values() const {
  RETURN_IF_ERROR(launcher.check());
  RETURN_IF_ERROR(ModelSettings::check());
  return chooses_adapter ? chosen_adapter().status() : Status::ok();
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
  const auto adapter = flags.chooses_adapter ? flags.chosen_adapter() : std::string();
  const std::string line =
      fmt::format("{}: {}, {}, context {}{}{}", path.filename().string(), device_kind_name(engine.device().info().kind),
                  dtype_name(engine.dtype()), engine.context_length(),
                  adapter && !adapter->empty() ? ", adapter " + *adapter : "", more);
  log::write(log::Level::Info, coloured(Colour::Dim, line, stderr));
}

}  // namespace reprise::apps
