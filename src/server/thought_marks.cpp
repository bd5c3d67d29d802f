#include "server/thought_marks.h"

#include "server/harmony_reader.h"

namespace reprise::server {
namespace {

// A thought without a budget begins with a note of that, within a mark of its own.
constexpr std::string_view kSeedNote = "<seed:cot_budget_reflect>";

constexpr ThoughtMarks kThink{}, kSeed{"<seed:think>", "</seed:think>", {}, {}, true},
    kCohere{"<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", true},
    kCohere4{"<|START_THINKING|>", "<|END_THINKING|>", "<|START_TEXT|>", "<|END_TEXT|>", true},
    kHunyuan{"<think>", "</think>", "<answer>", "</answer>", false},
    kHunyuan3{"<think:opensource>", "</think:opensource>", {}, {}, true},
    kResponse{"<think>", "</think>", "<response>", "</response>", false},
    kGranite{"Here is my thought process:", "Here is my response:", {}, {}, false},
    kMistral{"[THINK]", "[/THINK]", {}, {}, true}, kKimi{"◁think▷", "◁/think▷", {}, {}, true};

bool ends_with_mark(std::string_view prompt, std::string_view mark) {
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  return !mark.empty() && last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(mark);
}

}  // namespace

const std::vector<ReasoningParser>& reasoning_parsers() {
  static const std::vector<ReasoningParser> list{{"qwen3"},
                                                 {"qwen3-thinking", true},
                                                 {"deepseek-r1", true},
                                                 {"deepseek_r1", true},
                                                 {"deepseek-v3"},
                                                 {"deepseek_v3"},
                                                 {"glm45"},
                                                 {"glm47"},
                                                 {"kimi", false, kKimi},
                                                 {"kimi_k2"},
                                                 {"minimax", true},
                                                 {"minimax_m2", true},
                                                 {"cohere_command3", false, kCohere},
                                                 {"cohere_command4", false, kCohere4},
                                                 {"seed_oss", false, kSeed},
                                                 {"hunyuan", false, kHunyuan},
                                                 {"hunyuan_a13b", false, kHunyuan},
                                                 {"hy_v3", false, kHunyuan},
                                                 {"ernie45", false, kResponse},
                                                 {"granite", false, kGranite},
                                                 {"granite_thinking_parser", false, kResponse},
                                                 {"nano_v3"},
                                                 {"nemotron_3"},
                                                 {"nemotron_v3"},
                                                 {"olmo3", true},
                                                 {"mistral", false, kMistral},
                                                 {"gpt-oss", false, {}, true},
                                                 {"openai_gptoss", false, {}, true}};
  return list;
}

ThoughtMarks marks_of(const ReasoningParser& parser, std::string_view chat_template) {
  const bool suffixed = parser.marks == kHunyuan && thought_marks_of_template(chat_template) == kHunyuan3;
  return suffixed ? kHunyuan3 : parser.marks;
}

ThoughtMarks thought_marks_of_template(std::string_view t) {
  const auto shows = [&](std::string_view mark) { return t.find(mark) != std::string_view::npos; };
  if (shows(kSeed.begin)) return kSeed;
  if (shows(kCohere.begin) || shows(kCohere.answer)) return shows(kCohere4.answer) ? kCohere4 : kCohere;
  if (shows("<tool_calls{}>") || shows(kHunyuan3.begin)) return kHunyuan3;
  if (shows("<tool_calls>") || shows(kHunyuan.answer)) return kHunyuan;
  if (shows(kMistral.end)) return kMistral;
  if (shows(kKimi.end)) return kKimi;
  // MiniMax writes results of tools between the same tags.
  if (shows(kThink.end) && shows(kResponse.answer_end) && !shows("<minimax:tool_call>")) return kResponse;
  if (shows(kGranite.begin) && !shows(kThink.end)) return kGranite;
  return kThink;
}

bool shows_thoughts(std::string_view t) {
  const ThoughtMarks marks = thought_marks_of_template(t);
  for (const std::string_view mark : {std::string_view("</think>"), marks.end, marks.begin})
    if (t.find(mark) != std::string_view::npos) return true;
  return shows_harmony(t) || t.find("</think{}>") != std::string_view::npos;
}

bool ends_in_thought(std::string_view prompt, const ThoughtMarks& marks) {
  if (marks == kSeed && prompt.ends_with(kSeedNote)) prompt.remove_suffix(kSeedNote.size());
  return ends_with_mark(prompt, marks.begin);
}

bool ends_in_answer(std::string_view prompt, const ThoughtMarks& marks) { return ends_with_mark(prompt, marks.answer); }

}  // namespace reprise::server
