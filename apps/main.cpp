// The binary: declares the commands, parses the command line, and turns a Status into one line and an exit code.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "backends/cpu/isa.h"
#include "base/check.h"
#include "base/log_form.h"
#include "command.h"
#include "common/command_settings.h"
#include "common/flags.h"
#include "common/help.h"
#include "common/kernels_here.h"
#include "common/ranked_run.h"
#include "common/spellings.h"
#include "common/version.h"
#include "settings/setting.h"

namespace reprise::apps {
namespace {

// A command under its group, both as they are typed; the group is empty for a command of the program itself.
struct Declaration {
  std::string_view group, name;
  Command (*add)(CLI::App&);
};

constexpr Declaration kCommands[] = {
    {"", "generate", add_generate},
    {"", "chat", add_chat},
    {"", "embed", add_embed},
    {"", "serve", add_serve},
    {"bench", "compare", add_bench_compare},
    {"bench", "one-batch", add_bench_one_batch},
    {"bench", "ops", add_bench_ops},
    {"bench", "serving", add_bench_serving},
    {"bench", "startup", add_bench_startup},
    {"graph", "explain", add_graph_explain},
    {"graph", "dump", add_graph_dump},
    {"graph", "diff", add_graph_diff},
    {"graph", "profile", add_graph_profile},
    {"graph", "verify", add_graph_verify},
    {"eval", "choice", add_eval_choice},
    {"eval", "gsm8k", add_eval_gsm8k},
    {"eval", "mmmu", add_eval_mmmu},
    {"eval", "perplexity", add_eval_perplexity},
    {"key", "new", add_key_new},
    {"", "quantize", add_quantize},
    {"", "demo", add_demo},
    {"", "tune", add_tune},
    {"", "pull", add_pull},
    {"", "models", add_models},
    {"", "doctor", add_doctor},
    {"", "version", add_version},
    {"", "completion", add_completion},
    {"", "help", add_help},
};

constexpr std::pair<std::string_view, const char*> kGroups[] = {
    {"bench", "Measure speed"},
    {"graph", "See what is captured and fused, and compare it with eager"},
    {"eval", "Score a model on a task or a text"},
    {"key", "Keys of `reprise serve`"},
};

CLI::App& group_of(CLI::App& program, std::string_view name) {
  if (name.empty()) return program;
  for (CLI::App* known : program.get_subcommands([&](const CLI::App* app) { return app->get_name() == name; }))
    return *known;
  for (const auto& [group, summary] : kGroups)
    if (group == name) return *program.add_subcommand(std::string(name), summary)->require_subcommand(1);
  CHECK(false, "no group of that name");
}

// The command that the line is about, or null where it needs all of them: pages, completions and what is misspelled.
const Declaration* command_of(const std::vector<std::string>& words) {
  const auto word = [&](size_t i) { return i < words.size() ? std::string_view(words[i]) : std::string_view(); };
  for (const Declaration& d : kCommands) {
    if (d.add == add_completion || d.add == add_help) continue;
    if (d.group.empty() ? word(1) == d.name : word(1) == d.group && word(2) == d.name) return &d;
  }
  return nullptr;
}

// Only what the line may ask for: the parser compares each flag with all before it, so that the flags of all commands
// take longer to declare than most commands to run.
std::vector<Command> declare(CLI::App& program, const std::vector<std::string>& words) {
  std::vector<Command> out;
  if (words.size() == 2 && (words[1] == "--version" || words[1] == "-V")) return out;
  const Declaration* one = command_of(words);
  for (const Declaration& d : kCommands)
    if (!one || one == &d) {
      out.push_back(d.add(group_of(program, d.group)));
      CHECK(out.back().app->get_name() == d.name);
    }
  return out;
}

}  // namespace
}  // namespace reprise::apps

int main(int argc, char** argv) {
  using namespace reprise;
  using namespace reprise::apps;
  // The library names settings by their keys; here they are flags.
  log::set_sink([](log::Level level, std::string_view message, const OrderedJson& fields) {
    log::write_to_standard_error(level, settings::as_flags(message), fields);
  });
  if (const Status status = kernels_here(cpu::built_isas(), cpu::supported_isas()); !status.is_ok()) {
    log::write(log::Level::Error, status.message());
    return kExitFailed;
  }
  CLI::App program("Reprise: a server and toolbox for large language models, with execution graphs you can see.",
                   "reprise");
  program.require_subcommand(1);
  set_help_form(program);
  program.set_version_flag("-V,--version", version_text, "version, commit, compiler and devices");
  program.footer(
      "reprise help COMMAND lists the flags of a command.\n"
      "First steps: reprise pull smollm2; reprise chat smollm2");
  const std::vector<std::string> words = plain_words(argc, argv);
  std::vector<Command> commands = declare(program, words);
  for (const Command& c : commands)
    if (const auto settings = CommandSettings::find(*c.app)) settings->add_print_flag(*c.app);
  add_help_all(program);
  if (const auto code = parse_arguments(program, words)) return *code;

  for (const Command& c : commands) {
    if (!c.app->parsed()) continue;
    const Status usage = c.check();
    const auto settings = CommandSettings::find(*c.app);
    if (settings && settings->asked_to_print()) {
      if (ranks::launched_rank(::getenv) == 0) std::fputs(settings->printed().c_str(), stdout);
      if (usage.is_ok()) break;
    }
    const auto ranks = usage.is_ok() ? ranks_of(c) : Result<Ranks>(usage);
    if (!ranks.is_ok()) {
      // All ranks of a launcher have read the same line.
      if (ranks::launched_rank(::getenv) == 0) log::write(log::Level::Error, ranks.status().message());
      return kExitUsage;
    }
    if (const Status done = run_over_ranks(c, *ranks); !done.is_ok()) {
      std::fflush(stdout);
      // `graph diff` has said what it has to say.
      if (!done.message().empty()) log::write(log::Level::Error, done.message());
      return done.code() == Code::Cancelled ? kExitInterrupted : kExitFailed;
    }
  }
  // A reader that went away, or a full disk, must not look like success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    log::write(log::Level::Error, "standard output could not be written");
    return kExitFailed;
  }
  return kExitOk;
}
