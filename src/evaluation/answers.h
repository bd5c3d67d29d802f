// What a model says to all questions of a task: a model of this process, or that of a server. A question without an
// answer is an error: a score over the others would be another one. Plain functions; they work on the calling thread
// and show how far they are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/text_generator.h"
#include "client/load.h"

namespace reprise::evaluation {

struct Answers {
  std::vector<std::string> texts;  // in the order of the questions
  int64_t tokens = 0;              // of all of them
  int64_t cut = 0;                 // answers that were as long as they may be before they ended
  double seconds = 0;
};

// The questions of a task, for a model of this process.
struct ModelQuestions {
  std::string_view title;  // of the progress bar
  size_t count = 0;
  size_t together = SIZE_MAX;  // requests that exist at a time
  int64_t max_new_tokens = 0;  // of each answer, for the bar
  std::function<Result<sched::GenerationRequest>(size_t question)> request = {};
};
Result<Answers> ask_model(api::TextGenerator& generator, const ModelQuestions& questions);

// The server that answers in place of it.
struct AskedServer {
  std::string base_url;
  std::string model;  // "": the first of /v1/models
  std::string api_key;
  std::string_view model_from;  // what sets `model`, for errors
  int64_t parallel = 32;        // questions in flight
  double timeout_s = 600;       // without a byte, after which a question failed
};
// For a server: a call for each question. `style` needs no model.
struct ServerQuestions {
  std::string_view title;  // of the progress bar
  std::vector<client::GenerationCall> calls = {};
  client::GenerationStyle style = {};
  std::function<std::string(size_t question)> name = {};  // for errors
};
Result<Answers> ask_server(const AskedServer& server, const ServerQuestions& questions);

}  // namespace reprise::evaluation
