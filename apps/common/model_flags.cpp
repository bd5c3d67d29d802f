#include "common/model_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "backends/cpu/isa.h"
#include "base/terminal.h"
#include "common/flags.h"
#include "sched/adapter_table.h"

namespace reprise::apps {

void add_run_settings(CLI::App& app, service::RunSettings& s) {
  const std::string isa_help = "CPU instruction set: " + cpu::isa_choices();
  for (const settings::Binding& b : s.bindings()) add_setting(app, b, b.key == "isa" ? isa_help : std::string());
  add_setting(app, {"log_level", &s.log_level},
              s.quiet_start ? "least level of log lines on standard error; default: notice"
                            : "least level of log lines on standard error; default: info");
  if (s.quiet_start) add_setting(app, {"verbose", &s.verbose});
  add_settings(app, s.launcher.bindings());
  add_settings(app, s.graph.bindings());
  add_settings(app, s.speculation.bindings());
}

void ModelFlags::add_to(CLI::App& app) {
  add_run_settings(app, *this);
  if (chooses_adapter)
    add_text(app, "--adapter", adapter,
             "the LoRA adapter of `--lora-modules` to answer with, or none; default: the one that is named there alone",
             "NAME");
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

Status ModelFlags::check() const {
  ASSIGN_OR_RETURN(const log::Level chosen, level());
  log::set_level(chosen);
  RETURN_IF_ERROR(check_values());
  return chooses_adapter ? chosen_adapter().status() : Status::ok();
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

void add_rank(CLI::App& app, int64_t& rank) {
  add_integer(app, "--rank", rank, {0, ranks::kMaxRanks - 1}, "with --tp-size: the rank that is shown");
}

Status check_rank(const ModelFlags& flags, int64_t rank) {
  if (rank < flags.tp_size) return Status::ok();
  return invalid("--rank {} with `tp_size` {}: allowed: 0 to {}", rank, flags.tp_size, flags.tp_size - 1);
}

}  // namespace reprise::apps
