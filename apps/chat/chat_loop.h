// ChatLoop: a conversation: takes messages and commands from a source, streams answers, and says how fast they were.
// With a terminal there is a person, for whom errors are lines and Ctrl-C stops an answer; without one, the first error
// ends it. Borrows its parts; main thread.
#pragma once

#include "api/sampling_settings.h"
#include "api/text_generator.h"
#include "api/text_model.h"
#include "chat/commands.h"
#include "chat/conversation.h"
#include "chat/message_source.h"
#include "chat/terminal_session.h"

namespace reprise::apps {

class ChatLoop {
 public:
  // `terminal` may be null. `random_seed` draws where the flags say no seed.
  ChatLoop(engine::Engine& engine, const api::TextModel& text, const api::SamplingSettings& sampling,
           int64_t random_seed, std::optional<std::string> system, TerminalSession* terminal,
           const api::TextGeneratorOptions& options = {})
      : engine_(engine),
        text_(text),
        generator_(engine, text.tokenizer(), options),
        sampling_(sampling),
        random_seed_(random_seed),
        terminal_(terminal),
        conversation_(std::move(system)) {}

  Status run(MessageSource& source);

 private:
  Status take(const std::string& message);
  Status obey(const CommandLine& line);
  Status answer();
  Status regenerate();
  Status load(const std::string& path);
  void show_system(const std::string& wanted);
  void show_stats();
  void note(const api::TextResult& result, const sched::GenerationTimes& times);
  void tell(std::string_view text) const;  // what is not an answer
  engine::SamplingParams params() const;

  engine::Engine& engine_;
  const api::TextModel& text_;
  api::TextGenerator generator_;  // one for all answers: each prompt begins with the conversation so far
  const api::SamplingSettings& sampling_;
  const int64_t random_seed_;
  TerminalSession* const terminal_;
  Conversation conversation_;
  bool ended_ = false;
  uint64_t draw_ = 0;  // of the last message's answer; each has its own seed
  int64_t answers_ = 0, tokens_ = 0;
  sched::GenerationTimes times_;  // of all answers
};

}  // namespace reprise::apps
