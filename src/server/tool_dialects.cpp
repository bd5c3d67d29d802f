#include "server/tool_dialects.h"

#include "server/harmony_reader.h"

namespace reprise::server {
namespace {

constexpr std::string_view kDeepSeekCalls = "<｜tool▁calls▁begin｜>", kDeepSeekCallsEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kMistralCalls = "[TOOL_CALLS]";

struct FormatName {
  std::string_view name;
  ToolFormat format;
};
constexpr FormatName kFormats[] = {{"none", ToolFormat::None},
                                   {"hermes", ToolFormat::Hermes},
                                   {"qwen", ToolFormat::Hermes},
                                   {"qwen25", ToolFormat::Hermes},
                                   {"llama3", ToolFormat::Llama},
                                   {"llama3_json", ToolFormat::Llama},
                                   {"llama4_json", ToolFormat::Llama},
                                   {"deepseekv3", ToolFormat::DeepSeek},
                                   {"deepseekv31", ToolFormat::DeepSeek},
                                   {"deepseek_v3", ToolFormat::DeepSeek},
                                   {"deepseek_v31", ToolFormat::DeepSeek},
                                   {"mistral", ToolFormat::Mistral},
                                   {"qwen3_coder", ToolFormat::Qwen3Coder},
                                   {"qwen3_xml", ToolFormat::Qwen3Coder},
                                   {"glm", ToolFormat::Glm},
                                   {"glm45", ToolFormat::Glm},
                                   {"glm47", ToolFormat::Glm},
                                   {"kimi_k2", ToolFormat::Kimi},
                                   {"minimax-m2", ToolFormat::MiniMax},
                                   {"minimax_m2", ToolFormat::MiniMax},
                                   {"seed_oss", ToolFormat::SeedOss},
                                   {"cohere_command3", ToolFormat::Cohere},
                                   {"cohere_command4", ToolFormat::Cohere},
                                   {"phi4_mini_json", ToolFormat::Phi4},
                                   {"granite", ToolFormat::Granite},
                                   {"granite4", ToolFormat::Hermes},
                                   {"hunyuan", ToolFormat::Hunyuan},
                                   {"hunyuan_a13b", ToolFormat::Hunyuan},
                                   {"hy_v3", ToolFormat::Hunyuan},
                                   {"ernie45", ToolFormat::Hermes},
                                   {"nemotron_json", ToolFormat::Nemotron},
                                   {"llama_nemotron_json", ToolFormat::Nemotron},
                                   {"olmo3", ToolFormat::Olmo3},
                                   {"pythonic", ToolFormat::Pythonic},
                                   {"llama4_pythonic", ToolFormat::Pythonic},
                                   {"gpt-oss", ToolFormat::Harmony},
                                   {"openai", ToolFormat::Harmony}};

}  // namespace

Result<ToolFormat> parse_tool_format(std::string_view name) {
  for (const FormatName& f : kFormats)
    if (f.name == name) return f.format;
  return invalid("\"{}\" is not a tool call parser; allowed: auto, {}", name,
                 fmt::format("{}", fmt::join(tool_format_names(), ", ")));
}

std::vector<std::string> tool_format_names() {
  std::vector<std::string> out;
  for (const FormatName& f : kFormats) out.emplace_back(f.name);
  return out;
}

ToolFormat tool_format_of_template(std::string_view t) {
  const auto shows = [&](std::string_view mark) { return t.find(mark) != std::string_view::npos; };
  if (shows_harmony(t)) return ToolFormat::Harmony;
  if (shows(kDeepSeekCalls)) return ToolFormat::DeepSeek;
  if (shows("<|tool_calls_section_begin|>") || shows("tool_declare<|im_middle|>")) return ToolFormat::Kimi;
  if (shows("<minimax:tool_call>")) return ToolFormat::MiniMax;
  if (shows("<seed:tool_call>")) return ToolFormat::SeedOss;
  if (shows("<|START_ACTION|>")) return ToolFormat::Cohere;
  // Hy3 makes its marks from a suffix.
  if (shows("<tool_calls>") || shows("<tool_calls{}>") || shows("<tool_calls:opensource>")) return ToolFormat::Hunyuan;
  if (shows("<TOOLCALL>")) return ToolFormat::Nemotron;
  if (shows("<function_calls>")) return ToolFormat::Olmo3;
  if (shows("<arg_key>")) return ToolFormat::Glm;
  if (shows("<function=")) return ToolFormat::Qwen3Coder;
  if (shows("<|/tool|>") || shows("<|/tool_call|>") || shows("functools[")) return ToolFormat::Phi4;
  if (shows("<|tool_call|>")) return ToolFormat::Granite;
  if (shows("<tool_call>")) return ToolFormat::Hermes;
  if (shows(kMistralCalls)) return ToolFormat::Mistral;
  if ((shows("<|python_tag|>") || shows("<|python_start|>")) && shows("parameters")) return ToolFormat::Llama;
  return ToolFormat::None;
}

std::span<const CallMarks> call_marks(ToolFormat format) {
  static constexpr CallMarks kTag[] = {{"<tool_call>", "</tool_call>"}},
                             kDeepSeek[] = {{kDeepSeekCalls, kDeepSeekCallsEnd}}, kMistral[] = {{kMistralCalls, ""}},
                             // Both numbers are seen.
      kKimi[] = {{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
                 {"<|tool_call_section_begin|>", "<|tool_call_section_end|>"}},
                             kMiniMax[] = {{"<minimax:tool_call>", "</minimax:tool_call>"}},
                             kSeed[] = {{"<seed:tool_call>", "</seed:tool_call>"}},
                             kCohere[] = {{"<|START_ACTION|>", "<|END_ACTION|>"}},
                             kPhi[] = {{"<|tool_call|>", "<|/tool_call|>"}, {"functools[", ""}},
                             kGranite[] = {{"<|tool_call|>", ""}, {"<tool_call>", ""}},
                             kHunyuan[] = {{"<tool_calls>", "</tool_calls>"},
                                           {"<tool_calls:opensource>", "</tool_calls:opensource>"}},
                             kNemotron[] = {{"<TOOLCALL>", "</TOOLCALL>"}},
                             kOlmo[] = {{"<function_calls>", "</function_calls>"}};
  switch (format) {
    case ToolFormat::Hermes:
    case ToolFormat::Qwen3Coder:
    case ToolFormat::Glm: return kTag;
    case ToolFormat::DeepSeek: return kDeepSeek;
    case ToolFormat::Mistral: return kMistral;
    case ToolFormat::Kimi: return kKimi;
    case ToolFormat::MiniMax: return kMiniMax;
    case ToolFormat::SeedOss: return kSeed;
    case ToolFormat::Cohere: return kCohere;
    case ToolFormat::Phi4: return kPhi;
    case ToolFormat::Granite: return kGranite;
    case ToolFormat::Hunyuan: return kHunyuan;
    case ToolFormat::Nemotron: return kNemotron;
    case ToolFormat::Olmo3: return kOlmo;
    default: return {};
  }
}

bool marks_are_special(ToolFormat format) {
  switch (format) {
    case ToolFormat::DeepSeek:
    case ToolFormat::Mistral:
    case ToolFormat::Kimi:
    case ToolFormat::MiniMax:
    case ToolFormat::SeedOss:
    case ToolFormat::Cohere:
    case ToolFormat::Phi4:
    case ToolFormat::Granite:
    case ToolFormat::Hunyuan:
    case ToolFormat::Nemotron: return true;
    default: return false;
  }
}

}  // namespace reprise::server
