// `reprise chat`: a conversation in the terminal, or one question a line from a pipe.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "api/default_model.h"
#include "base/log.h"
#include "base/terminal.h"
#include "chat/chat_loop.h"
#include "chat/line_editor.h"
#include "chat/plain_input.h"
#include "command.h"
#include "common/chosen_adapter.h"
#include "common/flags.h"
#include "common/model_flags.h"

namespace reprise::apps {

using namespace api;

namespace {

struct ChatFlags {
  ModelFlags model;
  SamplingSettings sampling;
  std::optional<std::string> system, history;
  std::string chat_template;
};

std::string history_path(const std::optional<std::string>& wanted) {
  if (wanted) return *wanted == "off" ? "" : *wanted;
  const auto folder = cache_folder();
  return folder ? *folder + "/chat_history" : "";
}

Status run_chat(const ChatFlags& f) {
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, f.chat_template, *engine));
  // Errors of the template are told before the first message is typed.
  if (!text.tokenizer() || !text.chat_template()) RETURN_IF_ERROR(text.encode_chat(OrderedJson::array()).status());
  const bool person = is_terminal(stdin) && is_terminal(stdout);
  say_quiet_start(f.model, *engine, person ? "; /help lists the commands" : "");
  if (person && log::level() < log::Level::Notice)
    fmt::print("{}\n", coloured(Colour::Dim, "/help lists the commands", stdout));
  ASSIGN_OR_RETURN(const spec::SpecOptions speculation, f.model.speculation.options());
  ASSIGN_OR_RETURN(const ChosenAdapter adapter, ChosenAdapter::open(f.model, *engine));
  const TextGeneratorOptions options{!f.model.disable_radix_cache, speculation, adapter.get()};
  if (!person) {
    PlainInput lines(nullptr);
    return ChatLoop(*engine, text, f.sampling, f.model.random_seed, f.system, nullptr, options).run(lines);
  }
  TerminalSession terminal;
  ChatLoop loop(*engine, text, f.sampling, f.model.random_seed, f.system, &terminal, options);
  History history(history_path(f.history));
  if (const Status read = history.load(); !read.is_ok())
    log::warning("{}; the history ends with this session", read.message());
  const auto editor = LineEditor::open(terminal, history, complete_command);
  if (editor) return loop.run(**editor);
  log::notice("lines cannot be edited: {}", editor.status().message());
  PlainInput lines(&terminal);
  return loop.run(lines);
}

}  // namespace

Command add_chat(CLI::App& program) {
  auto flags = std::make_shared<ChatFlags>();
  flags->sampling.max_new_tokens = 1024;
  flags->model.quiet_start = true;
  Command c;
  c.app = program.add_subcommand("chat", "Talk with a model in the terminal");
  add_text(*c.app, "--system,--system-prompt", flags->system, "system message at the beginning");
  add_text(*c.app, "--chat-template", flags->chat_template,
           "Jinja file, or chatml or llama-2, in place of the model's own template", "FILE");
  add_text(*c.app, "--history", flags->history,
           "where typed messages are kept; off: nowhere; default: chat_history in $REPRISE_CACHE", "FILE");
  add_settings(*c.app, flags->sampling.bindings());
  flags->model.chooses_adapter = true;
  flags->model.add_to(*c.app);
  c.app->footer(
      "Reads one message a line; works from a pipe as well. /help lists the commands, /exit or Ctrl-D ends, Ctrl-C\n"
      "stops an answer.");
  c.check = [flags] {
    const Status model = flags->model.check();
    return model.is_ok() ? flags->sampling.check() : model;
  };
  c.over_ranks = [flags] { return &flags->model; };
  c.run = [flags] { return run_chat(*flags); };
  return c;
}

}  // namespace reprise::apps
