// Texts to evaluate on, from a file: plain text as it stands, or JSON lines whose "text" (or "prompt"; or "question"
// with its "answer") are taken one after another. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::apps {

// Every non-empty line of a JSONL file as an object; errors name file and line.
Result<std::vector<Json>> read_json_lines(const std::string& path);

// The whole text of a file; documents of a .jsonl are joined by one empty line. An empty text is an error.
Result<std::string> read_evaluation_text(const std::string& path);

}  // namespace reprise::apps
