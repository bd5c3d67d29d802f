// Answers in the harmony format against the PyPI package openai-harmony (tests/data/harmony), cut at every byte, and
// what breaks the format.
#include "server/harmony_reader.h"

#include <gtest/gtest.h>

#include "server/answer_splitter.h"
#include "support/goldens.h"

namespace reprise::server::harmony_reader_test {
namespace {

struct Said {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Said&) const = default;
};

Said read_in_pieces(const std::string& text, size_t cut, size_t each = std::string::npos) {
  AnswerSplitter splitter({.reasoning = true, .harmony = true});
  Said all;
  const auto take = [&](const SplitText& part) {
    all.content += part.content;
    all.reasoning += part.reasoning;
    for (const ToolCall& c : part.calls) all.calls.emplace_back(c.name, c.arguments);
  };
  take(splitter.push(text.substr(0, cut)));
  for (size_t at = cut; at < text.size(); at += std::min(each, text.size() - at))
    take(splitter.push(text.substr(at, each)));
  take(splitter.finish());
  EXPECT_EQ(splitter.called(), !all.calls.empty());
  return all;
}

// Messages of one kind stand on lines of their own.
void add_message(std::string& to, bool& before, const std::string& text) {
  if (text.empty()) return;
  to += (before ? "\n" : "") + text;
  before = true;
}

Said expected(const Json& messages) {
  constexpr std::string_view kFunctions = "functions.", kBlanks = " \n";
  Said out;
  bool said = false, thought = false;
  for (const Json& m : messages) {
    const auto text = m["content"].get<std::string>();
    const std::string to = m["recipient"].is_null() ? "" : m["recipient"].get<std::string>();
    if (to.starts_with(kFunctions))
      out.calls.emplace_back(to.substr(kFunctions.size()), text.substr(0, text.find_last_not_of(kBlanks) + 1));
    else if (m["channel"] == "analysis")
      add_message(out.reasoning, thought, text);
    else
      add_message(out.content, said, text);
  }
  return out;
}

TEST(HarmonyReader, ReadsWhatThePackageReadsHoweverItIsCut) {
  const Json cases = testing_support::golden_json("harmony/answers.json");
  ASSERT_GE(cases.size(), 60u);
  size_t calls = 0, thoughts = 0;
  for (const Json& c : cases) {
    const auto text = c["text"].get<std::string>();
    const Said want = expected(c["messages"]);
    calls += want.calls.size();
    thoughts += want.reasoning.empty() ? 0 : 1;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      const Said got = read_in_pieces(text, cut);
      ASSERT_EQ(got.content, want.content) << text << " cut at " << cut;
      ASSERT_EQ(got.reasoning, want.reasoning) << text << " cut at " << cut;
      ASSERT_EQ(got.calls, want.calls) << text << " cut at " << cut;
    }
    for (size_t each : {1, 2, 3, 7}) ASSERT_EQ(read_in_pieces(text, 0, each), want) << text << " in pieces of " << each;
  }
  EXPECT_GE(calls, 20u);
  EXPECT_GE(thoughts, 30u);
}

TEST(HarmonyReader, WhatBreaksTheFormatIsSaid) {
  const std::pair<const char*, Said> cases[] = {
      {"no header at all", {"no header at all", "", {}}},
      {"{\"held\": \"to a form\"}", {"{\"held\": \"to a form\"}", "", {}}},
      {"<|channel|>final never a message<|return|>", {"<|channel|>final never a message", "", {}}},
      {"<|channel|>fin", {"<|channel|>fin", "", {}}},
      {"<|chan", {"<|chan", "", {}}},
      {" ", {"", "", {}}},
      {"", {"", "", {}}},
      {"<|message|>no channel", {"no channel", "", {}}},
      {"<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|return|>", {"b", "a", {}}},
      {"<|channel|>analysis<|message|>a<|end|> and then<|end|>", {" and then", "a", {}}},
      {"<|channel|>commentary to=functions.f<|message|>{\"a\": <|call|>",
       {"<|channel|>commentary to=functions.f<|message|>{\"a\": ", "", {}}},
      {"<|channel|>commentary to=functions.f<|message|>{\"a\": 1",
       {"<|channel|>commentary to=functions.f<|message|>{\"a\": 1", "", {}}},
      {"<|channel|>commentary to=functions.f<|message|>[1]<|call|>",
       {"<|channel|>commentary to=functions.f<|message|>[1]", "", {}}},
      {"<|channel|>commentary to=functions.f<|message|><|call|>", {"", "", {{"f", "{}"}}}},
      {"<|channel|>commentary to=functions.<|message|>x<|call|>", {"", "x", {}}},
  };
  for (const auto& [text, want] : cases)
    for (size_t each : {1, 5, 1000}) {
      const Said got = read_in_pieces(text, 0, each);
      EXPECT_EQ(got.content, want.content) << text;
      EXPECT_EQ(got.reasoning, want.reasoning) << text;
      EXPECT_EQ(got.calls, want.calls) << text;
    }
}

TEST(HarmonyReader, ThoughtsAreSaidWhereTheyAreNotApart) {
  HarmonyReader reader(false);
  SplitText out;
  reader.push("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", out);
  reader.finish(out);
  EXPECT_EQ(out.content, "a\nb");
  EXPECT_EQ(out.reasoning, "");
}

TEST(HarmonyReader, TheTemplateOfGptOssShowsIt) {
  const auto source = read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/chat_templates/templates/gptoss.jinja");
  ASSERT_TRUE(source.is_ok());
  EXPECT_TRUE(shows_harmony(*source));
  EXPECT_EQ(tool_format_of_template(*source), ToolFormat::Harmony);
  EXPECT_EQ(*parse_tool_format("gpt-oss"), ToolFormat::Harmony);
  EXPECT_FALSE(shows_harmony("<|im_start|>assistant"));
}

}  // namespace
}  // namespace reprise::server::harmony_reader_test
