// AnswerSplitter: takes the text of a chat answer apart while it arrives: what the model thought (<think>), the tools
// it calls, and what it says. Text that may be the beginning of a mark is held back, so the parts do not depend on how
// the text was cut into pieces. One answer, one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::server {

// How a model writes its calls.
enum class ToolFormat : uint8_t {
  None,
  Hermes,     // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them (Hermes, Qwen)
  Llama,      // the whole answer is {"name": ..., "parameters": {...}}, or several of them between semicolons
  List,       // the whole answer is [{"name": ..., "arguments": {...}}, ...]: what tool_choice "required" is held to
  Arguments,  // the whole answer is the arguments of one given tool
};
Result<ToolFormat> parse_tool_format(std::string_view name);         // "none", "hermes", "qwen", "qwen25", "llama3"
ToolFormat tool_format_of_template(std::string_view chat_template);  // None when it shows neither

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON
};

struct SplitText {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
};

struct SplitOptions {
  bool reasoning = false;          // <think> is a mark
  bool begins_in_thought = false;  // the prompt ended with it
  ToolFormat tools = ToolFormat::None;
  std::string tool = {};  // of Arguments
};

class AnswerSplitter {
 public:
  explicit AnswerSplitter(SplitOptions options);

  SplitText push(std::string_view piece);
  // The end of the answer. A call that is not complete, or not JSON, comes out as content.
  SplitText finish();
  bool called() const { return called_; }

 private:
  enum class Place : uint8_t { Content, Thought, Call, Whole };

  void walk(SplitText& out);
  void say(std::string_view text, SplitText& out);
  void think(std::string_view text, SplitText& out);
  bool call(std::string_view json, SplitText& out);
  bool call_whole(SplitText& out);

  SplitOptions options_;
  Place place_ = Place::Content;
  std::string held_;
  std::string blank_;      // at the end of a thought, dropped when nothing follows
  bool trim_ = false;      // blanks at the beginning of what comes next are dropped
  bool may_think_ = true;  // nothing was said yet
  bool called_ = false;
};

}  // namespace reprise::server
