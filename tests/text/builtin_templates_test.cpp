// The built-in chat templates against the prompts that SGLang's conversation templates of the same names write.
#include "text/builtin_templates.h"

#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace reprise::text::builtin_templates_test {
namespace {

std::string rendered(const char* name, const std::vector<OrderedJson>& messages, bool answer = true) {
  auto source = builtin_template(name);
  EXPECT_TRUE(source.is_ok());
  auto compiled = ChatTemplate::compile(*source, {{"bos_token", "<s>"}});
  EXPECT_TRUE(compiled.is_ok()) << compiled.status().message();
  RenderOptions options;
  options.add_generation_prompt = answer;
  auto text = compiled->render(OrderedJson(messages), nullptr, options);
  return text ? *text : text.status().message();
}

OrderedJson turn(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

TEST(BuiltinTemplates, ChatMl) {
  EXPECT_EQ(rendered("chatml", {turn("user", "Hi")}),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(rendered("chatml", {turn("system", "S"), turn("user", "a"), turn("assistant", "b")}, false),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
}

TEST(BuiltinTemplates, Llama2) {
  EXPECT_EQ(rendered("llama-2", {turn("user", "Hi")}), "<s>[INST] Hi [/INST]");
  EXPECT_EQ(rendered("llama-2", {turn("system", "S"), turn("user", "a"), turn("assistant", "b"), turn("user", "c")}),
            "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\na [/INST] b </s><s>[INST] c [/INST]");
  EXPECT_NE(rendered("llama-2", {turn("tool", "x")}).find("user and assistant alone"), std::string::npos);
}

TEST(BuiltinTemplates, OthersNameTheAllowedOnes) {
  EXPECT_NE(builtin_template("qwen2-vl").status().message().find("allowed: a Jinja file, chatml, llama-2"),
            std::string::npos);
}

}  // namespace
}  // namespace reprise::text::builtin_templates_test
