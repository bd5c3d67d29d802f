// GSM8K: the few-shot prompts and the scoring of grade-school arithmetic, as the task is commonly run: five solved
// questions in front, greedy answer, and the last number of the answer compared with the one behind "####". Over the
// dataset's JSON lines ({"question", "answer"}). Pure functions, but for those that ask; one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/text_model.h"
#include "base/json.h"
#include "base/status.h"
#include "evaluation/answers.h"

namespace reprise::evaluation {

struct Gsm8kTask {
  std::string prompt;
  std::string expected;  // a plain decimal number
};

// Prompts for `questions`, with `shots` in front of each. A line without question, answer or final number is an error
// that says which.
Result<std::vector<Gsm8kTask>> gsm8k_tasks(const std::vector<Json>& questions, const std::vector<Json>& shots);

// Where the questions of a run come from.
struct Gsm8kSource {
  std::string questions;         // a file
  std::string shots;             // likewise; "": the first questions are the solved ones, and are not asked
  int64_t most_questions = 200;  // 0: all
  int64_t shots_each = 5;
  std::string_view shots_from;  // what sets `shots_each`, for errors
};
Result<std::vector<Gsm8kTask>> read_gsm8k(const Gsm8kSource& source);

// Where an answer ends: the next question.
std::vector<std::string> gsm8k_stops();

// Greedy answers of at most `max_new_tokens`; those of a server come through /v1/completions.
Result<Answers> ask_gsm8k(api::TextGenerator& generator, const api::TextModel& model,
                          const std::vector<Gsm8kTask>& tasks, int64_t max_new_tokens);
Result<Answers> ask_gsm8k(const AskedServer& server, const std::vector<Gsm8kTask>& tasks, int64_t max_new_tokens);

struct Gsm8kScore {
  size_t questions = 0, right = 0;
  size_t without = 0;   // answers without any number
  std::string answers;  // JSON lines {"expected", "got", "right", "text"}
};
Gsm8kScore score_gsm8k(const std::vector<Gsm8kTask>& tasks, const std::vector<std::string>& answers);

// The last number in the text without grouping commas, nullopt when there is none: "is $1,200.50." -> "1200.50".
std::optional<std::string> last_number(std::string_view text);
// Equal as numbers: "18", "18.0" and "018" are.
bool same_number(std::string_view a, std::string_view b);

}  // namespace reprise::evaluation
