// A program with a model in it: streams an answer.
//   embed "What is the capital of France?" model_path=smollm2 threads=2
#include <reprise/reprise.h>
#include <cstdio>

int main(int argc, char** argv) {
  using namespace reprise::api;
  if (argc < 3) return std::fprintf(stderr, "usage: embed QUESTION model_path=MODEL [SETTING=VALUE...]\n"), 2;
  set_log(LogLevel::Notice, [](LogLevel, std::string_view line) {
    std::fprintf(stderr, "reprise: %.*s\n", static_cast<int>(line.size()), line.data());
  });

  Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    const size_t at = word.find('=');
    if (at == word.npos) return std::fprintf(stderr, "%s is not SETTING=VALUE\n", argv[i]), 2;
    options.emplace_back(word.substr(0, at), word.substr(at + 1));
  }
  Error error;
  const auto model = Model::open(options, error);
  if (!model) return std::fprintf(stderr, "error: %s\n", error.message.c_str()), 1;

  Prompt prompt;
  prompt.messages = {{"user", argv[1]}};
  prompt.sampling = {{"max_new_tokens", "64"}, {"temperature", "0"}};
  const auto answer = model->generate(prompt, error, [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    return std::fflush(stdout) == 0;
  });
  if (!answer) return std::fprintf(stderr, "error: %s\n", error.message.c_str()), 1;
  std::printf("\n(%zu tokens, %s)\n", answer->token_ids.size(), answer->finish.c_str());
  return 0;
}
