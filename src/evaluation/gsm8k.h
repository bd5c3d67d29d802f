// GSM8K: the few-shot prompts and the scoring of grade-school arithmetic, as the task is commonly run: five solved
// questions in front, greedy answer, and the last number of the answer compared with the one behind "####". Pure
// functions over the dataset's JSON lines ({"question", "answer"}).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::evaluation {

struct Gsm8kTask {
  std::string prompt;
  std::string expected;  // a plain decimal number
};

// Prompts for `questions`, with `shots` in front of each. A line without question, answer or final number is an error
// that says which.
Result<std::vector<Gsm8kTask>> gsm8k_tasks(const std::vector<Json>& questions, const std::vector<Json>& shots);

// Where an answer ends: the next question.
std::vector<std::string> gsm8k_stops();

// The last number in the text without grouping commas, nullopt when there is none: "is $1,200.50." -> "1200.50".
std::optional<std::string> last_number(std::string_view text);
// Equal as numbers: "18", "18.0" and "018" are.
bool same_number(std::string_view a, std::string_view b);

}  // namespace reprise::evaluation
