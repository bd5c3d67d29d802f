// ThoughtMarks: what stands around the thoughts of an answer, and around what it says after them, family by family.
// Marks are those of the models' published chat templates. Plain values and functions; any thread.
#pragma once

#include <string_view>
#include <vector>

namespace reprise::server {

struct ThoughtMarks {
  std::string_view begin = "<think>", end = "</think>";
  // Around the words of the answer; they are no part of them. Empty: there are none.
  std::string_view answer = {}, answer_end = {};
  // They are special tokens, which the text of the answer must keep.
  bool special = false;

  bool operator==(const ThoughtMarks&) const = default;
};

// Parsers of thoughts by SGLang's names and by vLLM's. Thoughts stand between marks, or in messages of the harmony
// format. thinks_first: the model thinks with or without the opening mark.
struct ReasoningParser {
  std::string_view name;
  bool thinks_first = false;
  ThoughtMarks marks = {};
  bool harmony = false;
};
const std::vector<ReasoningParser>& reasoning_parsers();
// Newer tokenizers of Hunyuan have the marks with a suffix, which the chat template shows.
ThoughtMarks marks_of(const ReasoningParser& parser, std::string_view chat_template);

// The marks of the thoughts that a chat template shows; <think> where it shows none.
ThoughtMarks thought_marks_of_template(std::string_view chat_template);
// The template shows the end of a thought, so answers may have some.
bool shows_thoughts(std::string_view chat_template);

// The prompt has opened a thought that the answer goes on with.
bool ends_in_thought(std::string_view prompt, const ThoughtMarks& marks);
// It has opened the words of the answer.
bool ends_in_answer(std::string_view prompt, const ThoughtMarks& marks);

}  // namespace reprise::server
