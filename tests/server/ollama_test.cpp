// Ollama's chats and texts: what a body becomes, what is written, and the routes.
#include <regex>

#include "server/dialect_fixture.h"

namespace reprise::server::ollama_test {
namespace {

class OllamaTest : public DialectTest {};
class OllamaServerTest : public DialectServerTest {};

const Dialect &kChat = ollama_chat_dialect(), &kGenerate = ollama_generate_dialect();

TEST_F(OllamaTest, ABodyIsTheConversationThatItSays) {
  struct Case {
    const Dialect* dialect;
    const char *ours, *openai;
  };
  for (const auto& [dialect, ours, openai] : std::vector<Case>{
           {&kChat, R"({"messages": [{"role": "user", "content": "Hi"}]})",
            R"({"messages": [{"role": "user", "content": "Hi"}]})"},
           {&kGenerate, R"({"prompt": "Hi", "system": "Be brief."})",
            R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]})"},
           {&kChat, R"({"think": false, "messages": [
                {"role": "user", "content": "look"},
                {"role": "assistant", "thinking": "hm",
                 "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
                {"role": "tool", "tool_name": "f", "content": "3"}],
                "tools": [{"function": {"name": "f", "parameters": {"type": "object"}}}]})",
            R"({"reasoning_effort": "none", "messages": [
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": "", "reasoning_content": "hm",
                 "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
                {"role": "tool", "content": "3"}],
                "tools": [{"function": {"name": "f", "parameters": {"type": "object"}}, "type": "function"}]})"}}) {
    const GenerateCall got = call(*dialect, ours), want = call(chat_dialect(), openai);
    EXPECT_EQ(got.prompt_texts, want.prompt_texts);
    EXPECT_EQ(got.prompts, want.prompts);
    EXPECT_EQ(got.split.tools, want.split.tools);
  }
  EXPECT_EQ(prompt(kGenerate, R"({"prompt": "as it is", "raw": true})"), "as it is");
}

TEST_F(OllamaTest, FieldsOfTheCall) {
  const GenerateCall c = call(kChat, R"({"model": "m:latest", "messages": [{"role": "user", "content": "a"}],
      "format": "json", "logprobs": true, "top_logprobs": 2, "keep_alive": "5m",
      "options": {"temperature": 0.5, "top_p": 0.25, "top_k": 3, "min_p": 0.125, "seed": 9, "num_predict": 7,
                  "stop": ["x"], "repeat_penalty": 1.5, "presence_penalty": 1, "frequency_penalty": -1,
                  "num_ctx": 100, "num_gpu": 1}})");
  EXPECT_EQ(c.model_name, "m:latest");
  EXPECT_EQ(c.sampling.temperature, 0.5);
  EXPECT_EQ(c.sampling.top_p, 0.25);
  EXPECT_EQ(c.sampling.top_k, 3);
  EXPECT_EQ(c.sampling.min_p, 0.125);
  EXPECT_EQ(c.sampling.seed, 9u);
  EXPECT_EQ(c.sampling.max_new_tokens, 7);
  EXPECT_EQ(c.sampling.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(c.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(c.sampling.presence_penalty, 1);
  EXPECT_EQ(c.sampling.frequency_penalty, -1);
  EXPECT_EQ(c.sampling.logprobs, 2);
  EXPECT_NE(c.grammar, nullptr);
  EXPECT_TRUE(c.stream);
  std::vector<std::string> named;
  for (const FieldWarning& w : c.warnings) named.push_back(w.field);
  EXPECT_EQ(named, (std::vector<std::string>{"keep_alive", "options.num_ctx"}));
  const char* endless = R"({"messages": [{"role": "user", "content": "a"}], "options": {"num_predict": -1}})";
  EXPECT_EQ(call(kChat, endless).sampling.max_new_tokens, model_.context_length);
}

TEST_F(OllamaTest, WhatIsWrongIsNamed) {
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"({"messages": 5})", "messages"},
           {R"({"messages": [{"content": "a"}]})", "messages[0].role"},
           {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
           {R"({"messages": [{"role": "user", "content": "a", "images": ["x"]}]})", "messages[0].images[0]"},
           {R"({"messages": [{"role": "assistant", "tool_calls": [5]}]})", "messages[0].tool_calls"},
           {R"({"messages": [{"role": "user", "content": "a", "tool_calls": {}}]})", "messages[0].tool_calls"},
           {R"({"messages": [], "tools": 5})", "tools"},
           {R"({"messages": [], "format": 5})", "format"},
           {R"({"messages": [], "think": 5})", "think"},
           {R"({"messages": [], "think": "a lot"})", "think"},
           {R"({"messages": [], "options": {"temperature": "hot"}})", "options.temperature"},
           {R"({"messages": [], "options": {"num_predict": -3}})", "options.num_predict"},
           {R"({"messages": [], "options": {"stop": [""]}})", "options.stop"},
           {R"({"messages": [], "model": "other"})", "model"}})
    EXPECT_EQ(refused(kChat, body).param, param) << body;
  for (const auto& [body, param] :
       std::vector<std::pair<std::string, std::string>>{{R"({"prompt": 5})", "prompt"},
                                                        {R"({"prompt": "a", "suffix": "b"})", "suffix"},
                                                        {R"({"prompt": "a", "template": "b"})", "template"},
                                                        {R"({"prompt": "a", "context": [1]})", "context"},
                                                        {R"({"prompt": "a", "images": ["b"]})", "images[0]"},
                                                        {R"({"images": "b"})", "images"},
                                                        {R"({"images": [5]})", "images[0]"},
                                                        {R"({"prompt": "a", "raw": 1})", "raw"}})
    EXPECT_EQ(refused(kGenerate, body).param, param) << body;
}

// The time of writing is the only thing that changes.
std::string without_times(const std::string& text) {
  static const std::regex time(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z)");
  return std::regex_replace(text, time, "NOW");
}

TEST_F(OllamaTest, LinesByteForByte) {
  const GenerateCall c = call(kChat, R"({"messages": [{"role": "user", "content": "a"}],
      "tools": [{"type": "function", "function": {"name": "look"}}]})");
  EXPECT_EQ(without_times(stream(kChat, c,
                                 {"<think>Let ", "me.</think>", "I look.", "<tool_call>",
                                  R"({"name": "look", "arguments": {"at": "x"}})", "</tool_call>"})),
            expected_stream("ollama_chat_lines.txt"));
  const GenerateCall g = call(kGenerate, R"({"prompt": "a"})");
  EXPECT_EQ(without_times(stream(kGenerate, g, {"<think>Let me.</think>", "Yes."})),
            expected_stream("ollama_generate_lines.txt"));
}

TEST_F(OllamaTest, EveryCutOfTheTextGivesTheWholeAnswer) {
  const GenerateCall c = call(kChat, R"({"messages": [{"role": "user", "content": "a"}],
      "tools": [{"type": "function", "function": {"name": "look"}}]})");
  const Json want = whole(kChat, c, {kFullAnswer})["message"];
  EXPECT_EQ(want["thinking"], "Let me see.");
  EXPECT_EQ(want["content"], "I look it up.");
  EXPECT_EQ(want["tool_calls"][0]["function"]["arguments"], (Json{{"at", "x"}}));
  for (size_t cut = 0; cut <= kFullAnswer.size(); ++cut) {
    std::istringstream lines(stream(kChat, c, {kFullAnswer.substr(0, cut), kFullAnswer.substr(cut)}));
    std::string content, thinking;
    Json calls;
    bool done = false;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_FALSE(done);
      const Json json = Json::parse(line);
      const Json& m = json["message"];
      content += m["content"].get<std::string>();
      thinking += m.value("thinking", "");
      if (m.contains("tool_calls")) calls = m["tool_calls"];
      done = json["done"];
    }
    EXPECT_TRUE(done);
    EXPECT_EQ(content, want["content"]) << cut;
    EXPECT_EQ(thinking, want["thinking"]) << cut;
    EXPECT_EQ(calls, want["tool_calls"]) << cut;
  }
}

TEST_F(OllamaServerTest, SaysWhatTheModelSays) {
  start_with_letters();
  const std::string want = greedy("lets look my friend ", 12);
  const Json options = {{"temperature", 0}, {"num_predict", 12}};
  Json chat = {
      {"model", "fake:latest"},
      {"stream", false},
      {"options", options},
      {"messages", {{{"role", "system"}, {"content", "lets look"}}, {{"role", "user"}, {"content", "my friend"}}}}};
  const Json whole = post("/api/chat", chat);
  EXPECT_EQ(whole["message"]["content"], want);
  EXPECT_EQ(whole["model"], "fake:latest");
  EXPECT_EQ(whole["prompt_eval_count"], 20);
  EXPECT_EQ(
      post("/api/generate",
           {{"stream", false}, {"options", options}, {"system", "lets look"}, {"prompt", "my friend"}})["response"],
      want);
  EXPECT_EQ(
      post("/api/generate",
           {{"stream", false}, {"options", options}, {"raw", true}, {"prompt", "lets look my friend "}})["response"],
      want);
  chat.erase("stream");
  HttpClient c(http_->port());
  const HttpAnswer a = c.post("/api/chat", chat.dump());
  EXPECT_EQ(a.headers.at("content-type"), "application/x-ndjson");
  std::istringstream lines(a.body);
  std::string text;
  Json last;
  for (std::string line; std::getline(lines, line); text += last["message"]["content"].get<std::string>())
    last = Json::parse(line);
  EXPECT_EQ(text, want);
  EXPECT_EQ(last["done"], true);
  EXPECT_EQ(last["eval_count"], whole["eval_count"]);
}

TEST_F(OllamaServerTest, NothingIsAnsweredAtOnce) {
  start_with_letters();
  const int64_t steps = executor_->steps;
  const Json chat = post("/api/chat", {{"model", "fake"}}), text = post("/api/generate", {{"model", "fake"}});
  EXPECT_EQ(chat["done_reason"], "load");
  EXPECT_EQ(chat["message"]["content"], "");
  EXPECT_EQ(text["done"], true);
  EXPECT_EQ(text["response"], "");
  EXPECT_EQ(executor_->steps, steps);
}

TEST_F(OllamaServerTest, RoutesAboutTheModel) {
  model_.weights = {"llama", "gguf", "Q4_1", "abc", 134515008, 91000000, 0, 0};
  start_with_letters();
  HttpClient c(http_->port());
  HttpClient head(http_->port());
  EXPECT_TRUE(head.send("HEAD / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"));
  EXPECT_TRUE(head.receive().starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(Json::parse(c.get("/api/version").body)["version"].is_string());
  const Json model = Json::parse(c.get("/api/tags").body)["models"][0];
  EXPECT_EQ(model["name"], "fake:latest");
  EXPECT_EQ(model["size"], 91000000);
  EXPECT_EQ(model["digest"], "abc");
  EXPECT_EQ(model["modified_at"], "1970-01-01T00:00:00Z");
  EXPECT_EQ(model["details"]["parameter_size"], "134.5M");
  EXPECT_EQ(Json::parse(c.get("/api/ps").body)["models"][0]["model"], "fake:latest");
  const Json shown = post("/api/show", {{"model", "fake"}});
  EXPECT_EQ(shown["model_info"]["general.architecture"], "llama");
  EXPECT_EQ(shown["model_info"]["llama.context_length"], model_.context_length);
  EXPECT_EQ(shown["capabilities"], (Json{"completion", "tools"}));
  EXPECT_EQ(shown["template"], model_.chat_template->source());
  const auto error = [](const Json& e) { return e.size() == 1 && e["error"].is_string(); };
  EXPECT_TRUE(error(post("/api/show", {{"model", "other"}}, 404)));
  EXPECT_TRUE(error(post("/api/show", Json::object(), 400)));
  EXPECT_TRUE(error(post("/api/embed", {{"model", "fake"}, {"input", "a"}}, 400)));
  for (const char* path : {"/api/pull", "/api/push", "/api/create", "/api/copy"})
    EXPECT_TRUE(error(post(path, {{"model", "fake"}}, 501))) << path;
  EXPECT_TRUE(error(post("/api/nothing", Json::object(), 404)));
  EXPECT_TRUE(error(post("/api/chat", {{"messages", 5}}, 400)));
}

}  // namespace
}  // namespace reprise::server::ollama_test
