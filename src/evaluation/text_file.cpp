#include "evaluation/text_file.h"

#include "base/file.h"

namespace reprise::evaluation {

// In the files that CMake makes from eval/builtin.
extern const unsigned char kEvalTextBytes[], kEvalChoicesBytes[];
extern const size_t kEvalTextSize, kEvalChoicesSize;

namespace {

Result<std::vector<JsonLine>> json_lines(const std::string& text, const std::string& path) {
  std::vector<JsonLine> lines;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    std::string place = fmt::format("{}:{}", path, ++number);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    ASSIGN_OR_RETURN(Json json, parse_json(line, place));
    if (!json.is_object()) return invalid("{}: a JSON object was expected", place);
    lines.push_back({std::move(place), std::move(json)});
  }
  if (lines.empty()) return invalid("{}: no lines", path);
  return lines;
}

}  // namespace

Result<std::vector<JsonLine>> read_json_lines(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return json_lines(text, path);
}

Result<std::vector<std::string>> read_prompts(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<JsonLine> lines, read_json_lines(path));
  std::vector<std::string> prompts;
  for (const JsonLine& line : lines) {
    const char* key = line.json.contains("prompt") ? "prompt" : "question";
    if (!line.json.contains(key) || !line.json[key].is_string())
      return invalid("{}: a text \"prompt\" or \"question\" was expected", line.place);
    prompts.push_back(line.json[key].get<std::string>());
  }
  return prompts;
}

std::vector<JsonLine> builtin_choices() {
  return json_lines(std::string(reinterpret_cast<const char*>(kEvalChoicesBytes), kEvalChoicesSize), kBuiltin).value();
}

std::string builtin_text() { return {reinterpret_cast<const char*>(kEvalTextBytes), kEvalTextSize}; }

Result<std::string> read_evaluation_text(const std::string& path) {
  if (!path.ends_with(".jsonl")) {
    ASSIGN_OR_RETURN(std::string text, read_file(path));
    if (text.empty()) return invalid("{}: the file is empty", path);
    return text;
  }
  ASSIGN_OR_RETURN(const auto lines, read_json_lines(path));
  const auto text_of = [](const Json& line, const char* key) {
    return line.contains(key) && line[key].is_string() ? line[key].get<std::string>() : std::string();
  };
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string one = text_of(lines[i].json, "text");
    if (one.empty()) one = text_of(lines[i].json, "prompt");
    if (one.empty()) {
      one = text_of(lines[i].json, "question");
      const std::string answer = text_of(lines[i].json, "answer");
      if (!one.empty() && !answer.empty()) one += "\n" + answer;
    }
    if (one.empty()) return invalid("{}: no \"text\", \"prompt\" or \"question\"", lines[i].place);
    if (i) text += "\n\n";
    text += one;
  }
  return text;
}

}  // namespace reprise::evaluation
