// ToolFormat: how a model writes its calls of tools, and the readers of the dialects whose calls are not plain JSON
// objects between marks. Formats and marks are those of the models' published chat templates. Plain functions; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::server {

enum class ToolFormat : uint8_t {
  None,
  Hermes,      // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them (Hermes, Qwen)
  Llama,       // the whole answer is {"name": ..., "parameters": {...}}, or several of them between semicolons
  DeepSeek,    // V3: function<sep>NAME and a fenced block of JSON; V3.1: NAME<sep>JSON; both between marks
  Mistral,     // [TOOL_CALLS] and a list of {"name", "arguments"}, or NAME[ARGS]{...} after each mark
  Qwen3Coder,  // <tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>
  Harmony,     // messages to functions, in OpenAI's format (harmony_reader.h)
  Pythonic,    // the whole answer is [NAME(key=value, ...), ...] (Llama 3.2 and 4)
  List,        // the whole answer is [{"name": ..., "arguments": {...}}, ...]: what tool_choice "required" is held to
  Arguments,   // the whole answer is the arguments of one given tool
};
// By SGLang's names: "none", "hermes", "qwen", "qwen25", "llama3", "deepseekv3", "deepseekv31", "mistral",
// "qwen3_coder", "pythonic", "gpt-oss".
Result<ToolFormat> parse_tool_format(std::string_view name);
std::vector<std::string> tool_format_names();
ToolFormat tool_format_of_template(std::string_view chat_template);  // None when it shows none of them

// SGLang's names of the parsers of thoughts, which stand between <think> marks, or in messages of the harmony format.
// thinks_first: the model does so with or without the opening mark.
struct ReasoningParser {
  std::string_view name;
  bool thinks_first;
  bool harmony = false;
};
const std::vector<ReasoningParser>& reasoning_parsers();

// Marks around the calls of a format; `end` is empty where they go on to the end of the answer. Both are empty where
// the whole answer is the call.
struct CallMarks {
  std::string_view begin, end;
};
CallMarks call_marks(ToolFormat format);
// The marks are special tokens, which the text of the answer must keep.
bool marks_are_special(ToolFormat format);

struct NamedCall {
  std::string name;
  std::string arguments;  // JSON
};
// The calls between the marks, or of the whole answer; nullopt when the text is not in the dialect's form. `tools` is
// the request's list: where values are plain text its schemas say what they are. Of DeepSeek, Mistral, Qwen3Coder and
// Pythonic.
std::optional<std::vector<NamedCall>> read_dialect(ToolFormat format, std::string_view text, const OrderedJson& tools);

}  // namespace reprise::server
