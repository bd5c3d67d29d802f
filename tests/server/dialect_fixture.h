// What the tests of all dialects share: a model of single bytes with a template that shows everything, and an answer
// that is written piece by piece without a server.
#pragma once

#include <gtest/gtest.h>

#include "apps/byte_tokenizer.h"
#include "base/file.h"
#include "server/api_fixture.h"
#include "server/dialect.h"

namespace reprise::server {

// How an answer ends.
struct End {
  sched::FinishReason finish = sched::FinishReason::Stop;
  int64_t tokens = 5, prompt = 20, cached = 8;
  std::string stop_string = {};
  Status status = Status::ok();
};

class DialectTest : public testing::Test {
 protected:
  // Thoughts and calls are shown as templates of published models show them.
  static constexpr const char* kTemplate =
      "{% for t in tools or [] %}<tool>{{ t.function | tojson }}{% endfor %}"
      "{% for m in messages %}<{{ m.role }}>"
      "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
      "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}"
      "<assistant>{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}";

  DialectTest() : chat_template_(text::ChatTemplate::compile(kTemplate, OrderedJson::object()).value()) {
    model_.name = "m";
    model_.path = "folder/m";
    model_.tokenizer = text::Tokenizer::from_json(apps::byte_tokenizer()).value();
    model_.chat_template = &chat_template_;
    model_.tool_format = ToolFormat::Hermes;
    model_.reasoning = true;
    model_.eos_tokens = {1};
    model_.context_length = 4096;
    model_.vocab_size = 256;
    grammars_.emplace(text::grammar::TokenTable::from_tokenizer(*model_.tokenizer, model_.eos_tokens, 256).value());
    model_.grammars = &*grammars_;
  }

  GenerateCall call(const Dialect& dialect, const char* body) {
    const ParsedCall parsed = dialect.parse(OrderedJson::parse(body), model_, limits_);
    if (const auto* wrong = std::get_if<ApiError>(&parsed)) {
      ADD_FAILURE() << wrong->message << " for " << body;
      return {};
    }
    return std::get<GenerateCall>(parsed);
  }
  ApiError refused(const Dialect& dialect, const std::string& body) {
    const ParsedCall parsed = dialect.parse(OrderedJson::parse(body), model_, limits_);
    if (const auto* wrong = std::get_if<ApiError>(&parsed)) return *wrong;
    ADD_FAILURE() << "it was taken: " << body;
    return {};
  }
  std::string prompt(const Dialect& dialect, const char* body) {
    const GenerateCall c = call(dialect, body);
    return c.prompt_texts.empty() ? std::string() : c.prompt_texts.front();
  }

  static sched::RequestResult result_of(const End& end) {
    using std::chrono::milliseconds;
    sched::RequestResult r;
    r.finish = end.finish;
    r.status = end.status;
    r.prompt_tokens = end.prompt;
    r.cached_tokens = end.cached;
    r.completion_tokens = end.tokens;
    r.admitted = r.arrived + milliseconds(1);
    r.first_token = r.arrived + milliseconds(3);
    r.finished = r.arrived + milliseconds(13);
    return r;
  }
  // The parts of an answer that comes in these pieces of text, as a job makes them.
  std::vector<AnswerPart> parts(const GenerateCall& call, const std::vector<std::string>& pieces, const End& end) {
    AnswerSplitter splitter(call.split);
    std::vector<AnswerPart> out;
    for (size_t i = 0; i <= pieces.size(); ++i) {
      AnswerPart p;
      SplitText split = i < pieces.size() ? splitter.push(pieces[i]) : splitter.finish();
      p.text = split.content;
      p.reasoning = split.reasoning;
      p.calls = split.calls;
      for (size_t c = 0; c < p.calls.size(); ++c) p.calls[c].id = "call_" + std::to_string(++calls_);
      if (i == pieces.size()) {
        p.result = result_of(end);
        p.stop_string = end.stop_string;
      }
      if (p.text.empty() && p.reasoning.empty() && p.calls.empty() && !p.result) continue;
      out.push_back(std::move(p));
    }
    calls_ = 0;
    return out;
  }
  std::string stream(const Dialect& dialect, const GenerateCall& call, const std::vector<std::string>& pieces,
                     const End& end = {}) {
    const auto writer = dialect.writer(model_, call);
    std::vector<server::Answer> answers(1);
    std::string out = writer->admitted(0, end.cached) + writer->first(0);
    for (const AnswerPart& p : parts(call, pieces, end)) {
      answers[0].add(p);
      out += writer->part(p, answers[0]);
    }
    return out + writer->end(answers);
  }
  OrderedJson whole(const Dialect& dialect, const GenerateCall& call, const std::vector<std::string>& pieces,
                    const End& end = {}) {
    std::vector<server::Answer> answers(1);
    for (const AnswerPart& p : parts(call, pieces, end)) answers[0].add(p);
    return dialect.writer(model_, call)->whole(answers);
  }

  text::ChatTemplate chat_template_;
  ServedModel model_;
  std::optional<AnswerGrammars> grammars_;
  CallLimits limits_;
  int calls_ = 0;
};

// A file of tests/data/dialects.
inline std::string expected_stream(const char* name) {
  const auto text = read_file(fmt::format("{}/tests/data/dialects/{}", REPRISE_SOURCE_DIR, name));
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return text ? std::string(text->begin(), text->end()) : std::string();
}

// Named events of a stream: name and data. The name is the data's type, which clients go by.
inline std::vector<std::pair<std::string, Json>> named_events(const std::string& body) {
  std::vector<std::pair<std::string, Json>> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at), line = body.find('\n', at);
    EXPECT_EQ(body.substr(at, 7), "event: ");
    EXPECT_EQ(body.substr(line + 1, 6), "data: ");
    out.emplace_back(body.substr(at + 7, line - at - 7), Json::parse(body.substr(line + 7, end - line - 7)));
    EXPECT_EQ(out.back().second["type"], out.back().first);
    at = end + 2;
  }
  return out;
}

// An answer with everything in it, and its cuts into two pieces at every byte.
inline const std::string kFullAnswer =
    "<think>Let me see.</think>I look it up.<tool_call>{\"name\": \"look\", \"arguments\": {\"at\": "
    "\"x\"}}</tool_call>";

// The routes over a server whose model has letters for its few tokens, so that text goes in and comes out.
class DialectServerTest : public ApiTest {
 protected:
  // The pieces of JSON, so that answers may be held to a schema, and letters.
  static constexpr std::string_view kLetters = "[]{}\":, namefrgutsiodlhkpwy";

  static Json letters() {
    Json file = apps::byte_tokenizer(
        {{{"id", 0}, {"content", "<pad>"}, {"special", true}}, {{"id", 1}, {"content", "<eos>"}, {"special", true}}});
    Json vocab = {{"<pad>", 0}, {"<eos>", 1}};
    int id = 2;
    for (const char c : kLetters) vocab[c == ' ' ? std::string("\xc4\xa0") : std::string(1, c)] = id++;
    file["model"]["vocab"] = std::move(vocab);
    return file;
  }
  void start_with_letters(ApiOptions options = {}, sched::SchedulerOptions scheduling = {}) {
    model_.tokenizer = text::Tokenizer::from_json(letters()).value();
    chat_template_.emplace(
        text::ChatTemplate::compile("{% if tools %}{% endif %}{% for m in messages %}{{ m.content }} {% endfor %}",
                                    OrderedJson::object())
            .value());
    model_.chat_template = &*chat_template_;
    model_.defaults.eos_token_ids = {FakeExecutor::kEos};
    const std::vector<int32_t> ends = {FakeExecutor::kEos};
    grammars_.emplace(text::grammar::TokenTable::from_tokenizer(*model_.tokenizer, ends, FakeExecutor::kVocab).value());
    model_.grammars = &*grammars_;
    start(std::move(options), std::move(scheduling));
  }
  // What the model says, by its own formula.
  std::string greedy(const std::string& prompt, int64_t most) {
    Tokens out = sched::expected(model_.tokenizer->encode(prompt, {.add_special_tokens = false}).value(), most);
    if (out.back() == FakeExecutor::kEos) out.pop_back();
    return model_.tokenizer->decode(out, true).value();
  }

  std::optional<text::ChatTemplate> chat_template_;
  std::optional<AnswerGrammars> grammars_;
};

}  // namespace reprise::server
