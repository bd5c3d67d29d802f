// The C++ face of the library, as a program in C++17 has it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <reprise.hpp>
#include <thread>

namespace {

using reprise::Error;

reprise::Settings small() {
  const char* folder = std::getenv("REPRISE_CAPI_MODEL");
  return {{"model-path", folder ? folder : ""},
          {"load-format", "dummy"},
          {"threads", "1"},
          {"device", "cpu"},
          {"plan-cache", "off"}};
}

reprise::Request hello(int64_t tokens) {
  reprise::Request r;
  r.prompt = "Hello";
  r.sampling.temperature = 0;
  r.sampling.max_tokens = tokens;
  r.sampling.ignore_eos = true;
  return r;
}

TEST(Face, StreamsWhatItAnswers) {
  reprise::Engine engine(small());
  reprise::Request r = hello(24);
  r.sampling.logprobs = 1;
  const reprise::Answer whole = engine.generate(r);
  EXPECT_EQ(whole.ids.size(), 24u);
  EXPECT_EQ(whole.logprobs.size(), 24u);
  EXPECT_EQ(whole.finish, REPRISE_LENGTH);
  EXPECT_EQ(whole.prompt_tokens, 5);
  std::string streamed;
  for (const reprise::Event& e : engine.stream(r)) streamed += e.text;
  EXPECT_EQ(streamed, whole.text);
  reprise::Request by_ids = hello(24);
  by_ids.prompt.clear();
  by_ids.ids = engine.encode("Hello");
  EXPECT_EQ(by_ids.ids, (std::vector<int32_t>{'H', 'e', 'l', 'l', 'o'}));
  EXPECT_EQ(engine.generate(by_ids).text, whole.text);
  EXPECT_EQ(engine.decode(by_ids.ids), "Hello");
  reprise::Request chat = hello(8), plain = hello(8);
  chat.prompt.clear();
  chat.messages = R"([{"role": "user", "content": "hi"}])";
  plain.prompt = "<user>hi<assistant>";
  EXPECT_EQ(engine.generate(chat).ids, engine.generate(plain).ids);
  EXPECT_EQ(engine.decode(engine.encode_chat(chat.messages)), plain.prompt);
}

TEST(Face, AStreamThatIsLeftIsCancelled) {
  reprise::Engine engine(small());
  for (const reprise::Event& e : engine.stream(hello(400)))
    if (e.kind == REPRISE_TOKENS) break;
  reprise::Stream held = engine.stream(hello(400));
  held.cancel();
  int finish = REPRISE_RUNNING;
  for (const reprise::Event& e : held) finish = e.finish;
  EXPECT_EQ(finish, REPRISE_ENDED);
  EXPECT_EQ(engine.generate(hello(4)).finish, REPRISE_LENGTH);
}

TEST(Face, ErrorsHaveCodeAndPlace) {
  try {
    (void)small().set("max-running-requests", "0");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), REPRISE_INVALID);
    EXPECT_EQ(e.place(), "max_running_requests");
    EXPECT_STREQ(e.what(), "`max_running_requests`: 0 is out of range; allowed: 1 to 4096");
  }
  EXPECT_THROW(reprise::Engine(small().set("model-path", "/none")), Error);
  reprise::Engine engine(small());
  reprise::Request wrong = hello(4);
  wrong.sampling.top_p = 3;
  EXPECT_THROW((void)engine.generate(wrong), Error);
  EXPECT_THROW((void)engine.embed({"a"}), Error);
  EXPECT_THROW((void)engine.score("a", {"b"}), Error);
  EXPECT_NE(engine.describe("graph").find("\"passes\""), std::string::npos);
}

TEST(Face, GivesVectorsAndScores) {
  const char* encoders = std::getenv("REPRISE_ENCODERS");
  ASSERT_NE(encoders, nullptr);
  const auto open = [&](const char* name) {
    return reprise::Engine(
        {{"model-path", std::string(encoders) + name}, {"threads", "1"}, {"device", "cpu"}, {"plan-cache", "off"}});
  };
  reprise::Engine vectors = open("/bert_mean");
  const std::vector<std::string> texts = {"The sea is blue.", "A graph is captured once."};
  const reprise::Matrix m = vectors.embed(texts), one = vectors.embed({texts[1]});
  ASSERT_EQ(m.values.size(), 2 * m.dimension);
  EXPECT_EQ(one.values,
            std::vector<float>(m.values.begin() + static_cast<std::ptrdiff_t>(m.dimension), m.values.end()));
  EXPECT_NEAR(vectors.score(texts[0], texts)[0], 1, 1e-3);
  EXPECT_THROW((void)vectors.embed({}), Error);
  EXPECT_THROW((void)vectors.generate(hello(2)), Error);
  reprise::Engine scores = open("/bert_scores");
  EXPECT_EQ(scores.score("what is captured?", texts).size(), 2u);
  EXPECT_THROW((void)scores.embed(texts), Error);
}

TEST(Face, HooksHearOfThreadsAndStages) {
  std::atomic<int> threads{0}, stages{0}, lines{0};
  reprise::Hooks hooks;
  hooks.log = [&](int, std::string_view) { ++lines; };
  hooks.progress = [&](const char*, uint64_t, uint64_t) { return ++stages > 0; };
  hooks.thread = [&](const char*) { ++threads; };
  reprise::Engine engine(small().set("log-level", "info"), hooks);
  reprise::Engine moved = std::move(engine);
  EXPECT_EQ(moved.generate(hello(2)).ids.size(), 2u);
  EXPECT_GT(threads, 0);
  EXPECT_GT(stages, 0);
  EXPECT_GT(lines, 0);
}

}  // namespace
