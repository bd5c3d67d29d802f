// A model in a program of one's own: opens it, streams an answer, and says how it ended.
//
//   embed "What is the capital of France?" [NAME=VALUE...]    settings of docs/configuration.md, "model-path=smollm2"
#include <cstdio>
#include <reprise.hpp>
#include <string>

int main(int argc, char** argv) {
  try {
    reprise::Settings settings{{"model-path", "smollm2"}, {"log-level", "notice"}};
    for (int i = 2; i < argc; ++i) {
      const std::string word = argv[i];
      const size_t equals = word.find('=');
      settings.set(word.substr(0, equals), equals == std::string::npos ? "true" : word.substr(equals + 1));
    }
    reprise::Hooks hooks;
    hooks.log = [](int, std::string_view line) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    };
    reprise::Engine engine(settings, hooks);
    reprise::Request request;
    request.prompt = argc > 1 ? argv[1] : "Once upon a time";
    request.sampling.max_tokens = 48;
    for (const reprise::Event& event : engine.stream(request)) {
      std::fwrite(event.text.data(), 1, event.text.size(), stdout);
      std::fflush(stdout);
      if (event.kind == REPRISE_FINISHED)
        std::printf("\n%lld tokens, %s\n", static_cast<long long>(event.completion_tokens),
                    event.finish == REPRISE_STOP ? "stop" : "length");
    }
    return 0;
  } catch (const reprise::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
