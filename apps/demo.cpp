// `reprise demo`: the default model, fetched once, answers a question, with a summary. It becomes `reprise generate`.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <memory>

#include "api/default_model.h"
#include "command.h"
#include "common/flags.h"

namespace reprise::apps {
namespace {

Status run_demo(const std::string& question) {
  RETURN_IF_ERROR(pull_default_model());
  std::vector<std::string> words = {"reprise",
                                    "generate",
                                    "--model-path",
                                    std::string(api::kDefaultModelName),
                                    "--apply-chat-template",
                                    "--summary",
                                    "--temperature",
                                    "0",
                                    "--prompt",
                                    question};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv("/proc/self/exe", arguments.data());
  return error(Code::Internal, "/proc/self/exe cannot be started again: {}", std::strerror(errno));
}

}  // namespace

Command add_demo(CLI::App& program) {
  auto question = std::make_shared<std::string>("What is the capital of France?");
  Command c;
  c.app = program.add_subcommand("demo", "Fetch the default model once, and let it answer a question");
  c.app->add_option("question", *question, "what it is asked, in quotes")->capture_default_str();
  c.app->footer(
      "Like `reprise pull smollm2`, then `reprise generate --apply-chat-template --summary --temperature 0`.");
  c.check = [] { return Status::ok(); };
  c.run = [question] { return run_demo(*question); };
  return c;
}

}  // namespace reprise::apps
