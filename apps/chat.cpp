// `reprise chat`: a conversation in the terminal, or one question a line from a pipe.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>

#include "base/log.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "common/sampling_flags.h"
#include "common/terminal.h"
#include "common/text_generator.h"
#include "common/text_model.h"

namespace reprise::apps {
namespace {

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::optional<std::string> system;
  std::string chat_template;
};

OrderedJson beginning(const ChatFlags& f) {
  OrderedJson messages = OrderedJson::array();
  if (f.system) messages.push_back({{"role", "system"}, {"content", *f.system}});
  return messages;
}

// One turn: the answer streams and joins the conversation. An answer that was interrupted stays as far as it came.
Status answer(const ChatFlags& f, engine::Engine& engine, const TextModel& text, OrderedJson& messages) {
  ASSIGN_OR_RETURN(auto prompt, text.encode_chat(messages));
  const std::vector<engine::GenerationRequest> request{
      {std::move(prompt), f.sampling.params(text.defaults(), f.model.random_seed)}};
  const InterruptGuard guard;
  TextGenerator generator(engine, text.tokenizer());
  auto results = generator.run(request, [](size_t, std::string_view piece) {
    if (!piece.empty()) write_now(piece, stdout);
    return !InterruptGuard::interrupted();
  });
  write_now("\n", stdout);
  RETURN_IF_ERROR(results.status());
  messages.push_back({{"role", "assistant"}, {"content", results->front().text.value_or("")}});
  return Status::ok();
}

Status run_chat(const ChatFlags& f) {
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, f.chat_template, *engine));
  const bool person = is_terminal(stdin) && is_terminal(stdout);
  if (person)
    fmt::print("{}\n",
               coloured(Colour::Dim, "/reset starts over, /exit or Ctrl-D ends, Ctrl-C stops an answer", stdout));
  OrderedJson messages = beginning(f);
  for (std::string line;;) {
    if (person) write_now(coloured(Colour::Green, "> ", stdout), stdout);
    if (!std::getline(std::cin, line)) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line == "/exit" || line == "/quit") return Status::ok();
    if (line == "/reset") {
      messages = beginning(f);
      continue;
    }
    if (person && line[0] == '/') {
      fmt::print("{} is not a command; there are /reset and /exit\n", line);
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    const Status done = answer(f, *engine, text, messages);
    if (done.is_ok()) continue;
    if (!person) return done;
    // A conversation that outgrew the context can go on after /reset.
    messages.erase(messages.size() - 1);
    log::error("{}; /reset starts over", done.message());
  }
  if (person) write_now("\n", stdout);
  return Status::ok();
}

}  // namespace

Command add_chat(CLI::App& program) {
  auto flags = std::make_shared<ChatFlags>();
  flags->sampling.max_new_tokens = 1024;
  Command c;
  c.app = program.add_subcommand("chat", "Talk with a model in the terminal");
  add_text(*c.app, "--system,--system-prompt", flags->system, "system message at the beginning");
  add_text(*c.app, "--chat-template", flags->chat_template,
           "Jinja file, or chatml or llama-2, in place of the model's own template", "FILE");
  flags->sampling.add_to(*c.app);
  flags->model.add_to(*c.app);
  c.app->footer("Reads one message a line; works from a pipe as well. /reset starts over, /exit ends.");
  c.check = [flags] {
    const Status model = flags->model.check();
    return model.is_ok() ? flags->sampling.check() : model;
  };
  c.run = [flags] { return run_chat(*flags); };
  return c;
}

}  // namespace reprise::apps
