#include "text/builtin_templates.h"

namespace reprise::text {
namespace {

// Turns between <|im_start|> and <|im_end|>; without a system message the usual one stands first.
constexpr std::string_view kChatMl =
    "{%- if not messages or messages[0].role != 'system' -%}"
    "{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' -}}{%- endif -%}"
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

// The user's turns between [INST] and [/INST]; the system message is a part of the first one.
constexpr std::string_view kLlama2 =
    "{%- set turns = messages -%}{{- (bos_token or '') + '[INST] ' -}}"
    "{%- if messages and messages[0].role == 'system' -%}{%- set turns = messages[1:] -%}"
    "{{- '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' -}}{%- endif -%}"
    "{%- for m in turns -%}{%- if m.role == 'user' -%}"
    "{{- ('' if loop.first else '[INST] ') + m.content + ' ' -}}"
    "{%- if loop.last and add_generation_prompt -%}{{- '[/INST]' -}}{%- endif -%}"
    "{%- elif m.role == 'assistant' -%}{{- '[/INST] ' + m.content + ' </s><s>' -}}"
    "{%- else -%}{{- raise_exception('the template llama-2 has turns of user and assistant alone') -}}{%- endif -%}"
    "{%- endfor -%}";

struct Named {
  std::string_view name, source;
};
constexpr Named kAll[] = {{"chatml", kChatMl}, {"llama-2", kLlama2}};

}  // namespace

std::vector<std::string> builtin_template_names() {
  std::vector<std::string> out;
  for (const Named& n : kAll) out.emplace_back(n.name);
  return out;
}

Result<std::string> builtin_template(std::string_view name) {
  for (const Named& n : kAll)
    if (n.name == name) return std::string(n.source);
  return invalid("\"{}\" is neither a file nor the name of a built-in chat template; allowed: a Jinja file, {}", name,
                 fmt::format("{}", fmt::join(builtin_template_names(), ", ")));
}

}  // namespace reprise::text
