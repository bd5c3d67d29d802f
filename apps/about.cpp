// `reprise version`, `reprise completion SHELL` and `reprise help COMMAND`: the program about itself.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "command.h"
#include "common/completion.h"
#include "common/flags.h"
#include "common/version.h"

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

// Never parsed: plain_words() turns it into --help. Here it is listed and completed.
void add_help(CLI::App& program) { program.add_subcommand("help", "Flags of a command: help serve"); }

}  // namespace reprise::apps
