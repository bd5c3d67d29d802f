// Chat templates of published families against Python's jinja2 (tests/data/chat_templates), and the helpers around.
#include <gtest/gtest.h>

#include "base/file.h"
#include "text/chat_template.h"

namespace reprise::text::chat_template_test {
namespace {

OrderedJson load(const std::string& name) {
  const std::string path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/chat_templates/" + name;
  const auto text = read_file(path);
  if (!text) {
    ADD_FAILURE() << text.status().message();
    return nullptr;
  }
  auto parsed = parse_ordered_json(*text, path);
  if (!parsed) {
    ADD_FAILURE() << parsed.status().message();
    return nullptr;
  }
  return std::move(parsed).value();
}

std::string fnv1a64(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

std::tm golden_time() {
  std::tm now{};
  now.tm_year = 2025 - 1900;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 14;
  now.tm_min = 5;
  now.tm_sec = 9;
  now.tm_wday = 6;
  now.tm_yday = 206;
  return now;
}

TEST(ChatTemplate, EqualsJinja2OnEveryConversation) {
  const OrderedJson templates = load("templates.json");
  const OrderedJson conversations = load("conversations.json");
  ASSERT_GE(templates.size(), 8u);
  ASSERT_GE(conversations.size(), 200u);
  int texts = 0;
  int raised = 0;
  for (const auto& entry : templates) {
    const std::string name = entry["name"];
    const auto source =
        read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/chat_templates/" + entry["file"].get<std::string>());
    ASSERT_TRUE(source.is_ok()) << source.status().message();
    OrderedJson tokens = {{"bos_token", entry["bos_token"]}, {"eos_token", entry["eos_token"]}};
    const auto compiled = ChatTemplate::compile(*source, tokens);
    ASSERT_TRUE(compiled.is_ok()) << name << ": " << compiled.status().message();
    const OrderedJson rendered = load("rendered/" + name + ".json");
    ASSERT_EQ(rendered.size(), conversations.size()) << name;
    for (size_t i = 0; i < conversations.size(); ++i) {
      const OrderedJson& c = conversations[i];
      RenderOptions options;
      options.add_generation_prompt = c["add_generation_prompt"];
      options.extra = c["kwargs"];
      options.now = golden_time();
      const auto got = compiled->render(c["messages"], c["tools"], options);
      const OrderedJson& want = rendered[i];
      const std::string where = fmt::format("{}, conversation {}", name, i);
      if (want.contains("raises")) {
        ++raised;
        ASSERT_FALSE(got.is_ok()) << where << " rendered: " << *got;
        if (want["kind"] == "raise_exception") {
          EXPECT_TRUE(got.status().message().ends_with(": " + want["raises"].get<std::string>()))
              << where << ": " << got.status().message() << " instead of " << want["raises"];
        }
        continue;
      }
      ++texts;
      ASSERT_TRUE(got.is_ok()) << where << ": " << got.status().message();
      if (want.contains("text")) {
        EXPECT_EQ(*got, want["text"].get<std::string>()) << where;
      } else {
        EXPECT_EQ(got->size(), want["bytes"].get<size_t>()) << where;
        EXPECT_EQ(fnv1a64(*got), want["fnv1a64"].get<std::string>()) << where << ": " << *got;
      }
    }
  }
  EXPECT_GT(texts, 1000);
  RecordProperty("texts", texts);
  RecordProperty("raised", raised);
}

OrderedJson json(std::string_view text) { return parse_ordered_json(text, "test").value(); }

TEST(ChatTemplate, FindsTheTemplateAndTokens) {
  const OrderedJson one = json(
      R"({"chat_template": "{{ bos_token }}A", "bos_token": {"content": "<s>", "lstrip": false},
          "eos_token": "</s>", "pad_token": null, "additional_special_tokens": ["<x>", {"content": "<y>"}]})");
  EXPECT_EQ(find_special_tokens(one).dump(),
            R"({"bos_token":"<s>","eos_token":"</s>","additional_special_tokens":["<x>","<y>"]})");
  const auto compiled = ChatTemplate::from_config(one);
  ASSERT_TRUE(compiled.is_ok());
  EXPECT_EQ(*compiled->render(OrderedJson::array(), nullptr, {}), "<s>A");
  EXPECT_EQ(*ChatTemplate::from_config(one, "{{ eos_token }}B")->render(OrderedJson::array(), nullptr, {}), "</s>B");

  const OrderedJson several = json(
      R"({"chat_template": [{"name": "default", "template": "D"},
                            {"name": "tool_use", "template": "T{{ tools | length }}"}]})");
  const auto named = ChatTemplate::from_config(several);
  ASSERT_TRUE(named.is_ok());
  EXPECT_EQ(*named->render(OrderedJson::array(), nullptr, {}), "D");
  EXPECT_EQ(*named->render(OrderedJson::array(), json("[{}]"), {}), "T1");
  EXPECT_EQ(*find_chat_template(several, "tool_use"), "T{{ tools | length }}");
  EXPECT_EQ(find_chat_template(several, "rag").status().code(), Code::NotFound);
  EXPECT_EQ(find_chat_template(json("{}")).status().code(), Code::NotFound);
  EXPECT_FALSE(find_chat_template(json(R"({"chat_template": 5})")).is_ok());
  EXPECT_FALSE(find_chat_template(json(R"({"chat_template": [5]})")).is_ok());
}

TEST(ChatTemplate, ExtraVariablesWin) {
  const auto compiled =
      ChatTemplate::compile("{{ bos_token }}{{ enable_thinking }}{{ tools }}{{ documents }}", {{"bos_token", "a"}});
  ASSERT_TRUE(compiled.is_ok());
  RenderOptions options;
  options.extra = {{"bos_token", "b"}, {"enable_thinking", false}};
  EXPECT_EQ(*compiled->render(OrderedJson::array(), nullptr, options), "bFalseNoneNone");
}

TEST(ChatTemplate, KnowsWhetherItTakesParts) {
  const auto strings = ChatTemplate::compile("{% for m in messages %}{{ m.content }}{% endfor %}", nullptr);
  const auto parts = ChatTemplate::compile(
      "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}", nullptr);
  EXPECT_FALSE(strings->takes_parts());
  EXPECT_TRUE(parts->takes_parts());
  const OrderedJson messages = json(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
          {"role": "x", "content": null}])");
  const auto joined = join_text_parts(messages);
  ASSERT_TRUE(joined.is_ok());
  EXPECT_EQ((*joined)[0]["content"], "a b");
  EXPECT_FALSE(join_text_parts(json(R"([{"role": "user", "content": [{"type": "image"}]}])")).is_ok());
}

TEST(ChatTemplate, BadInputIsAnError) {
  const auto compiled = ChatTemplate::compile("x", nullptr);
  ASSERT_TRUE(compiled.is_ok());
  EXPECT_FALSE(compiled->render(nullptr, nullptr, {}).is_ok());
  EXPECT_FALSE(compiled->render(json("[1]"), nullptr, {}).is_ok());
  EXPECT_FALSE(compiled->render(json("[]"), json("{}"), {}).is_ok());
  const auto bad = ChatTemplate::compile("a\n{% if %}", nullptr);
  ASSERT_FALSE(bad.is_ok());
  EXPECT_EQ(bad.status().message(), "chat template line 2: expected an expression, got '%}'");
}

}  // namespace
}  // namespace reprise::text::chat_template_test
