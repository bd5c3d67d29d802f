// MMMU as SGLang asks and scores it (sglang 0.5.23, sglang/test/simple_eval_mmmu_vlm.py): the first image of each
// question where its first tag stands, options by letter, and the rules that take the choice or the value out of an
// answer. Its oddities are kept, since scores are compared: without any sign of a choice the first option counts, and
// text between the first "<" and the first ">" of a question is left out. Pure functions, but for those that ask; one
// thread.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/text_model.h"
#include "base/json.h"
#include "base/status.h"
#include "evaluation/answers.h"

namespace reprise::evaluation {

struct MmmuQuestion {
  std::string id, subject;
  std::string before, behind;        // of the image
  std::string image;                 // its file, as the data set names it
  std::vector<std::string> options;  // by letter; none: an open question
  std::vector<std::string> answers;  // the letter, or values of which each is right
};

// {"id", "question", "options" (a list, or a list of Python as a text), "answer", "image_1", "subject"}. `place` begins
// errors.
Result<MmmuQuestion> mmmu_question(const Json& line, const std::string& place);

// Those of folder/questions.jsonl in the order of their ids, as SGLang takes them; the first `most` of them, 0: all.
Result<std::vector<MmmuQuestion>> read_mmmu(const std::string& folder, int64_t most);

// Greedy answers of at most `max_new_tokens` through the chat template, with the images from `folder`; those of a
// server come through /v1/chat/completions. An engine that reads no images is an error.
Result<Answers> ask_mmmu(api::TextGenerator& generator, const api::TextModel& model, const engine::Engine& engine,
                         const std::vector<MmmuQuestion>& questions, const std::string& folder, int64_t max_new_tokens);
Result<Answers> ask_mmmu(const AskedServer& server, const std::vector<MmmuQuestion>& questions,
                         const std::string& folder, int64_t max_new_tokens);

struct MmmuShare {
  size_t questions = 0, right = 0;
  double share() const { return static_cast<double>(right) / static_cast<double>(std::max<size_t>(questions, 1)); }
};
struct MmmuScore {
  MmmuShare all;
  std::map<std::string, MmmuShare> subjects;
  std::string answers;  // JSON lines {"id", "expected", "got", "right", "text"}
};
MmmuScore score_mmmu(const std::vector<MmmuQuestion>& questions, const std::vector<std::string>& answers);

// The letter that an answer chooses.
std::string mmmu_choice(std::string_view answer, const std::vector<std::string>& options);

// What an answer to an open question may mean: values rounded to two places, and texts in lower case.
using MmmuValue = std::variant<double, std::string>;
std::vector<MmmuValue> mmmu_values(std::string_view answer);

// `got`: what was taken out of the answer, for people.
bool mmmu_right(const MmmuQuestion& question, std::string_view answer, std::string* got);

}  // namespace reprise::evaluation
