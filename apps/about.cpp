// `reprise version`, `reprise completion SHELL`, `reprise help settings` and `help --man`: the program about itself.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "command.h"
#include "common/completion.h"
#include "common/flags.h"
#include "common/man_page.h"
#include "common/version.h"
#include "settings/forms.h"

namespace reprise::apps {

Command add_version(CLI::App& program) {
  Command c;
  c.app = program.add_subcommand("version", "Version, commit, compiler and devices of this binary");
  c.check = [] { return Status::ok(); };
  c.run = [] {
    fmt::print("{}\n", version_text());
    return Status::ok();
  };
  return c;
}

Command add_completion(CLI::App& program) {
  auto shell = std::make_shared<std::string>();
  Command c;
  c.app = program.add_subcommand("completion", "Print a script that completes commands and flags in a shell");
  c.app->add_option("shell", *shell, fmt::format("{}", fmt::join(completion_shells(), ", ")))->required();
  c.app->footer("bash: source <(reprise completion bash)");
  c.check = [shell] {
    const auto& known = completion_shells();
    if (std::find(known.begin(), known.end(), *shell) != known.end()) return Status::ok();
    return invalid("shell \"{}\" is not known; allowed: {}", *shell, fmt::join(known, ", "));
  };
  c.run = [shell, &program] {
    fmt::print("{}", completion_script(program, *shell));
    return Status::ok();
  };
  return c;
}

namespace {

struct HelpFlags {
  std::vector<std::string> words;
  bool man = false, json = false, markdown = false, config = false;

  bool of_settings() const { return words == std::vector<std::string>{"settings"}; }
  Status check(const CLI::App& program) const;
  std::string page(const CLI::App& program) const;
};

Status HelpFlags::check(const CLI::App& program) const {
  if (man + json + markdown + config > 1)
    return invalid("--man, --json, --markdown and --config: allowed: one of them");
  if (of_settings()) return Status::ok();
  if (!man) return invalid("--json, --markdown and --config are forms of `help settings`");
  return command_at(program, words).status();
}

std::string HelpFlags::page(const CLI::App& program) const {
  const std::string version = version_number();
  if (!of_settings()) return manual_of(**command_at(program, words), version);
  if (man) return settings::table_as_manual(version);
  if (markdown) return settings::table_as_markdown();
  if (config) return settings::table_as_config();
  return json ? settings::table_as_json().dump() + "\n" : settings::table_as_text();
}

}  // namespace

// plain_words() turns all but what is declared here into --help.
Command add_help(CLI::App& program) {
  auto flags = std::make_shared<HelpFlags>();
  Command c;
  c.app = program.add_subcommand("help", "Flags of a command (help serve), all settings, manual pages");
  c.app->add_option("command", flags->words, "a command, or \"settings\"")->type_name("COMMAND");
  add_switch(*c.app, "--man", flags->man, "as a manual page: reprise help --man serve | man -l -");
  add_switch(*c.app, "--json", flags->json, "of settings: as JSON");
  add_switch(*c.app, "--markdown", flags->markdown, "of settings: as Markdown");
  add_switch(*c.app, "--config", flags->config, "of settings: as a file for serve --config");
  c.check = [flags, &program] { return flags->check(program); };
  c.run = [flags, &program] {
    fmt::print("{}", flags->page(program));
    return Status::ok();
  };
  return c;
}

}  // namespace reprise::apps
