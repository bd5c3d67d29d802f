// Prompts, questions and texts to evaluate on, from a file: JSON lines one by one, or one text: plain as it stands, or
// JSON lines whose "text" (or "prompt"; or "question" with its "answer") are taken one after another. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::evaluation {

struct JsonLine {
  std::string place;  // "file:3", for errors about what is in it
  Json json;          // an object
};

// Every non-empty line of a JSONL file; errors name file and line. A file without any is an error.
Result<std::vector<JsonLine>> read_json_lines(const std::string& path);

// The "prompt" or "question" of each line; other keys (an answer, say) are of no interest here.
Result<std::vector<std::string>> read_prompts(const std::string& path);

// The whole text of a file; documents of a .jsonl are joined by one empty line. An empty text is an error.
Result<std::string> read_evaluation_text(const std::string& path);

// Written for Reprise and built in, for a first look without a data set: 40 questions with four choices each, and a
// story of 1,158 words. tests/data/tasks/README.md says what a reference scores on them.
std::vector<JsonLine> builtin_choices();
std::string builtin_text();
constexpr const char* kBuiltin = "built-in";  // in place of a file's name

}  // namespace reprise::evaluation
