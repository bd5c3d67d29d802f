// Fuzzes the Jinja interpreter: the input is a template, rendered with a small context and little fuel.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const OrderedJson context = OrderedJson::parse(
      R"({"n": 7, "f": 2.5, "s": "Hello, Wörld 世界", "x": null, "t": true, "l": [3, 1, 2],
          "d": {"a": 1, "b": [1, "x"]},
          "messages": [{"role": "user", "content": "Hi <b>"},
                       {"role": "assistant", "content": [{"type": "text", "text": "y"}]}],
          "tools": null, "add_generation_prompt": true, "bos_token": "<s>"})");
  if (size > 4096) return 0;
  const auto compiled = text::jinja::Template::compile(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!compiled) return 0;
  text::jinja::Variables variables;
  for (const auto& [name, value] : context.items()) variables.emplace_back(name, &value);
  text::jinja::Limits limits;
  limits.max_steps = 20'000;
  limits.max_output_bytes = size_t{1} << 16;
  limits.max_memory_bytes = size_t{1} << 20;
  const auto rendered = compiled->render(variables, std::tm{}, limits);
  (void)rendered.is_ok();
  return 0;
}
