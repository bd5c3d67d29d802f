#include "chat/chat_loop.h"

#include "base/log.h"
#include "base/terminal.h"
#include "see/graph_report.h"
#include "settings/setting.h"

namespace reprise::apps {

using namespace api;
using namespace see;

namespace {

std::string speed_of(const sched::GenerationTimes& times) {
  if (times.decode_tokens == 0 || times.decode_s <= 0) return {};
  return fmt::format(", {:.1f} tokens/s", static_cast<double>(times.decode_tokens) / times.decode_s);
}

std::string counted(size_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

}  // namespace

Status ChatLoop::run(MessageSource& source) {
  for (bool hinted = false; !ended_;) {
    Result<NextMessage> next = source.read();
    if (!next) {
      if (!terminal_) return next.status();
      log::error("{}", next.status().message());
      continue;
    }
    if (next->kind == NextMessage::Kind::End) {
      tell(terminal_ ? "\n" : "");
      break;
    }
    if (next->kind == NextMessage::Kind::Interrupted) {
      if (hinted && !next->typed) break;
      hinted = next->text.empty();
      if (hinted) tell("Ctrl-C once more ends; so do Ctrl-D and /exit\n");
      continue;
    }
    hinted = false;
    const Status done = take(next->text);
    if (done.is_ok()) continue;
    if (!terminal_) return done;
    log::error("{}", done.message());
  }
  return Status::ok();
}

Status ChatLoop::take(const std::string& message) {
  if (message.find_first_not_of(" \t\r\n") == std::string::npos) return Status::ok();
  ASSIGN_OR_RETURN(const std::optional<CommandLine> command, parse_command(message));
  if (command) return obey(*command);
  std::string text = unescaped(message);
  while (text.ends_with('\n')) text.pop_back();  // of pasted lines
  conversation_.ask(std::move(text));
  draw_ = 0;
  const Status done = answer();
  if (done.is_ok()) return done;
  conversation_.take_last("user");
  return Status(done.code(), done.message() + "; /reset starts over");
}

Status ChatLoop::obey(const CommandLine& line) {
  switch (line.command) {
    case ChatCommand::Help: tell(chat_help()); break;
    case ChatCommand::System: show_system(line.argument); break;
    case ChatCommand::Regen: return regenerate();
    case ChatCommand::Save: {
      const std::string path = expanded_path(line.argument);
      RETURN_IF_ERROR(conversation_.save(path));
      tell(fmt::format("{} written to {}\n", counted(conversation_.messages().size(), "message"), path));
      break;
    }
    case ChatCommand::Load: return load(expanded_path(line.argument));
    case ChatCommand::Stats: show_stats(); break;
    case ChatCommand::Reset: conversation_.forget(); break;
    case ChatCommand::Exit: ended_ = true; break;
  }
  return Status::ok();
}

// The answer streams and joins the conversation. One that was stopped stays as far as it came.
Status ChatLoop::answer() {
  ASSIGN_OR_RETURN(auto prompt, text_.encode_chat(conversation_.messages()));
  const std::vector<sched::GenerationRequest> request{{std::move(prompt), params()}};
  if (terminal_) {
    terminal_->hide_keys();
    terminal_->forget_interrupt();
  }
  const bool person = is_terminal(stdout);
  auto results = generator_.run(request, [&](size_t, std::string_view piece) {
    if (!piece.empty()) write_now(person ? visible(piece) : std::string(piece), stdout);
    return !terminal_ || !terminal_->interrupted();
  });
  if (terminal_) terminal_->forget_interrupt();
  write_now("\n", stdout);
  RETURN_IF_ERROR(results.status());
  conversation_.answer(results->front().text.value_or(""));
  note(results->front(), generator_.times());
  return Status::ok();
}

void ChatLoop::note(const TextResult& result, const sched::GenerationTimes& times) {
  ++answers_;
  tokens_ += static_cast<int64_t>(result.token_ids.size());
  times_.decode_tokens += times.decode_tokens;
  times_.decode_s += times.decode_s;
  const std::string cut = settings::as_flags(cut_at(result, sampling_.max_new_tokens, engine_.context_length()));
  if (!terminal_) {
    if (!cut.empty() && !sampling_.ignore_eos) log::notice("the answer was cut at {}", cut);
    return;
  }
  std::string line = fmt::format("{}{}, first token after {:.2f} s", counted(result.token_ids.size(), "token"),
                                 speed_of(times), result.ttft_s);
  if (!cut.empty()) line += "; cut at " + cut;
  if (result.finish == sched::FinishReason::Cancelled) line += "; stopped";
  tell(coloured(Colour::Dim, line, stdout) + "\n");
}

Status ChatLoop::regenerate() {
  const std::optional<std::string> before = conversation_.take_last("assistant");
  std::optional<std::string> question = conversation_.take_last("user");
  if (!question) {
    if (before) conversation_.answer(*before);
    return invalid("there is no answer to draw again");
  }
  conversation_.ask(std::move(*question));
  if (params().temperature == 0) tell("the temperature is 0, at which every draw is the same; see --temperature\n");
  ++draw_;
  const Status done = answer();
  if (!done.is_ok() && before) conversation_.answer(*before);
  return done;
}

Status ChatLoop::load(const std::string& path) {
  ASSIGN_OR_RETURN(conversation_, Conversation::load(path));
  draw_ = 0;
  const size_t messages = conversation_.messages().size();
  const bool open = messages > 0 && conversation_.messages().back()["role"] == "user";
  tell(fmt::format("{} read from {}{}\n", counted(messages, "message"), path,
                   open ? "; /regen answers the last one" : ""));
  return Status::ok();
}

void ChatLoop::show_system(const std::string& wanted) {
  if (wanted == "-") {
    conversation_.set_system(std::nullopt);
  } else if (!wanted.empty()) {
    conversation_.set_system(wanted);
  } else {
    tell(conversation_.system().value_or("there is no system message; /system TEXT sets one") + "\n");
  }
}

void ChatLoop::show_stats() {
  const engine::SamplingParams p = params();
  const auto line = [&](std::string_view name, const std::string& value) {
    tell(coloured(Colour::Dim, fmt::format("{:<13}", name), stdout) + value + "\n");
  };
  const size_t messages = conversation_.messages().size();
  const auto prompt = messages > 0 ? text_.encode_chat(conversation_.messages()) : std::vector<int32_t>();
  line("conversation", fmt::format("{}, {} of {} tokens of context", counted(messages, "message"),
                                   prompt ? prompt->size() : 0, engine_.context_length()));
  line("answers", fmt::format("{}, {}{}", answers_, counted(static_cast<size_t>(tokens_), "token"), speed_of(times_)));
  line("sampling",
       fmt::format("temperature {:g}, top-p {:g}, top-k {}, min-p {:g}, seed {}, at most {} tokens", p.temperature,
                   p.top_p, p.top_k > 0 ? fmt::format("{}", p.top_k) : "all", p.min_p, p.seed, p.max_new_tokens));
  line("graphs", settings::as_flags(graph_summary(engine_)));
}

void ChatLoop::tell(std::string_view text) const { write_now(text, terminal_ ? stdout : stderr); }

engine::SamplingParams ChatLoop::params() const {
  engine::SamplingParams p = sampling_.params(text_.defaults(), random_seed_);
  p.seed += draw_;
  return p;
}

}  // namespace reprise::apps
