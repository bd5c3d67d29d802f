// ToolFormat: how a model writes its calls of tools: its names, its marks, and which one a chat template shows. Formats
// and marks are those of the models' published chat templates. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::server {

enum class ToolFormat : uint8_t {
  None,
  Hermes,      // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them (Hermes, Qwen)
  Llama,       // the whole answer is {"name": ..., "parameters": {...}}, or several of them between semicolons
  DeepSeek,    // V3: function<sep>NAME and a fenced block of JSON; V3.1: NAME<sep>JSON; both between marks
  Mistral,     // [TOOL_CALLS] and a list of {"name", "arguments"}, or NAME[CALL_ID]ID[ARGS]{...} after each mark
  Qwen3Coder,  // <tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>
  Glm,         // <tool_call>NAME, <arg_key>KEY</arg_key>, <arg_value>VALUE</arg_value>, ..., </tool_call> (GLM-4.5)
  Kimi,        // functions.NAME:INDEX and JSON in marks of their own, within marks of all calls (Kimi K2)
  MiniMax,     // <minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter>...</invoke>...
  SeedOss,     // Qwen3Coder's tags within <seed:tool_call>
  Cohere,      // <|START_ACTION|>, a list of {"tool_name", "parameters"}, <|END_ACTION|> (Command-R7B and later)
  Phi4,        // <|tool_call|>, a call or a list of them, <|/tool_call|>; or functools and the list (Phi-4-mini)
  Granite,     // <|tool_call|> or <tool_call> and a list up to the end of the answer (Granite 3)
  Hunyuan,     // <tool_calls> and a list (A13B), or calls with GLM's tags (Hy3)
  Nemotron,    // <TOOLCALL>, a list, </TOOLCALL> (Nemotron Nano 2)
  Olmo3,       // <function_calls>, NAME(key=value, ...) on each line, </function_calls>
  Harmony,     // messages to functions, in OpenAI's format (harmony_reader.h)
  Pythonic,    // the whole answer is [NAME(key=value, ...), ...] (Llama 3.2 and 4)
  List,        // the whole answer is [{"name": ..., "arguments": {...}}, ...]: what tool_choice "required" is held to
  Arguments,   // the whole answer is the arguments of one given tool
};
// By SGLang's names and by vLLM's.
Result<ToolFormat> parse_tool_format(std::string_view name);
std::vector<std::string> tool_format_names();
ToolFormat tool_format_of_template(std::string_view chat_template);  // None when it shows none of them

// Marks around the calls of a format; `end` is empty where they go on to the end of the answer. A format has none where
// the whole answer is the call.
struct CallMarks {
  std::string_view begin, end;
};
// A call may stand between any of these.
std::span<const CallMarks> call_marks(ToolFormat format);
// The marks are special tokens, which the text of the answer must keep.
bool marks_are_special(ToolFormat format);

}  // namespace reprise::server
