// Reprise as a library: open a model, generate text, stream it, cancel, and see what was compiled.
//
// This header needs the standard library alone; CMake finds it and the archive by find_package(reprise), and
// examples/embed shows a whole program. Nothing throws, exits, or writes to standard output. Options are the settings
// of docs/configuration.md by name, "max_running_requests" for the flag --max-running-requests. There is no stable
// binary interface: build the program and the library together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reprise::api {

// Why a call failed. Calls set it when they fail and leave it alone otherwise.
struct Error {
  std::string code;                   // "invalid", "not found", "unsupported", "out of memory", "busy", "device", ...
  std::string message;                // one sentence, with what is allowed; settings by name, in backquotes
  std::vector<std::string> settings;  // those that the message names
};

// Names and values as text, {{"model_path", "smollm2"}, {"threads", "2"}}; a name twice is one value more where several
// are allowed, else the last one counts.
using Options = std::vector<std::pair<std::string, std::string>>;
// The same from a JSON object; nothing, and the reason, where it is none.
std::optional<Options> options_of_json(std::string_view json, Error& error);

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// The prompt is one of the first three.
struct Prompt {
  std::string text;                // as it stands
  std::vector<Message> messages;   // a conversation, through the model's chat template
  std::vector<int32_t> token_ids;  // needs no tokenizer
  Options sampling;                // the group "Sampling": max_new_tokens, temperature, seed, stop, ...
};

struct Answer {
  std::string text;  // without end token and stop string; empty for a model without a tokenizer
  std::vector<int32_t> token_ids;
  std::string finish;  // "stop", "length", "cancelled"
  int64_t prompt_tokens = 0;
};

// Gets the text that each token made certain, often empty, on the thread of generate(). False ends the answer.
using TextSink = std::function<bool(std::string_view piece)>;

// One loaded model, with its device and its prefix cache. One thread at a time, but for cancel(); models are
// independent of each other.
class Model {
 public:
  // Loads the model. Options: "model_path", and those of the groups Model, Engine and Graphs, and "chat_template".
  // Null, and the reason, when it cannot be.
  static std::unique_ptr<Model> open(const Options& options, Error& error);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Blocks until the answer has ended. Nothing, and the reason, when there is none; a cancelled answer is what there
  // was.
  std::optional<Answer> generate(const Prompt& prompt, Error& error, const TextSink& on_text = {});
  // Ends the answer that is being generated, at its next token; without one it does nothing. Any thread.
  void cancel();

  // What was compiled and why, as `reprise graph explain --json` prints it; "decode" or "prefill". Empty, and the
  // reason, for another word.
  std::string explain(const std::string& phase, Error& error) const;

 private:
  struct Parts;
  explicit Model(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

enum class LogLevel : uint8_t { Debug, Info, Notice, Warning, Error, Off };
// Gets each log line of the process from `least` on, on the thread that logs and maybe on several at once; it may not
// call the library. Until it is set, warnings and errors go to standard error.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;
void set_log(LogLevel least, LogSink sink);

}  // namespace reprise::api
