// MMMU as SGLang asks and scores it (sglang 0.5.23, sglang/test/simple_eval_mmmu_vlm.py): the first image of each
// question where its first tag stands, options by letter, and the rules that take the choice or the value out of an
// answer. Its oddities are kept, since scores are compared: without any sign of a choice the first option counts, and
// text between the first "<" and the first ">" of a question is left out. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"

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

// The letter that an answer chooses.
std::string mmmu_choice(std::string_view answer, const std::vector<std::string>& options);

// What an answer to an open question may mean: values rounded to two places, and texts in lower case.
using MmmuValue = std::variant<double, std::string>;
std::vector<MmmuValue> mmmu_values(std::string_view answer);

// `got`: what was taken out of the answer, for people.
bool mmmu_right(const MmmuQuestion& question, std::string_view answer, std::string* got);

}  // namespace reprise::evaluation
