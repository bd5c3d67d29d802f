// The binary: declares the commands, parses the command line, and turns a Status into one line and an exit code.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "base/log_form.h"
#include "command.h"
#include "common/command_settings.h"
#include "common/flags.h"
#include "common/help.h"
#include "common/ranked_run.h"
#include "common/spellings.h"
#include "common/version.h"
#include "settings/setting.h"

int main(int argc, char** argv) {
  using namespace reprise;
  using namespace reprise::apps;
  // The library names settings by their keys; here they are flags.
  log::set_sink([](log::Level level, std::string_view message, const OrderedJson& fields) {
    log::write_to_standard_error(level, settings::as_flags(message), fields);
  });
  CLI::App program("Reprise: a server and toolbox for large language models, with execution graphs you can see.",
                   "reprise");
  program.require_subcommand(1);
  set_help_form(program);
  program.set_version_flag("-V,--version", version_text, "version, commit, compiler and devices");
  program.footer(
      "reprise help COMMAND lists the flags of a command.\n"
      "First steps: reprise pull smollm2; reprise chat smollm2");
  std::vector<Command> commands{add_generate(program), add_chat(program), add_embed(program), add_serve(program)};
  CLI::App* bench = program.add_subcommand("bench", "Measure speed");
  bench->require_subcommand(1);
  commands.push_back(add_bench_compare(*bench));
  commands.push_back(add_bench_one_batch(*bench));
  commands.push_back(add_bench_ops(*bench));
  commands.push_back(add_bench_serving(*bench));
  commands.push_back(add_bench_startup(*bench));
  CLI::App* graph = program.add_subcommand("graph", "See what is captured and fused, and compare it with eager");
  graph->require_subcommand(1);
  commands.push_back(add_graph_explain(*graph));
  commands.push_back(add_graph_dump(*graph));
  commands.push_back(add_graph_diff(*graph));
  commands.push_back(add_graph_profile(*graph));
  commands.push_back(add_graph_verify(*graph));
  CLI::App* eval = program.add_subcommand("eval", "Score a model on a task or a text");
  eval->require_subcommand(1);
  commands.push_back(add_eval_choice(*eval));
  commands.push_back(add_eval_gsm8k(*eval));
  commands.push_back(add_eval_mmmu(*eval));
  commands.push_back(add_eval_perplexity(*eval));
  CLI::App* key = program.add_subcommand("key", "Keys of `reprise serve`");
  key->require_subcommand(1);
  commands.push_back(add_key_new(*key));
  commands.push_back(add_quantize(program));
  commands.push_back(add_demo(program));
  commands.push_back(add_tune(program));
  commands.push_back(add_pull(program));
  commands.push_back(add_models(program));
  commands.push_back(add_doctor(program));
  commands.push_back(add_version(program));
  commands.push_back(add_completion(program));
  commands.push_back(add_help(program));
  for (const Command& c : commands)
    if (const auto settings = CommandSettings::find(*c.app)) settings->add_print_flag(*c.app);
  add_help_all(program);
  if (const auto code = parse_arguments(program, plain_words(argc, argv))) return *code;
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
