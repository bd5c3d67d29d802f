// The library as a program of others sees it: the public header alone, and a program outside the tree that links it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "api/reprise.h"
#include "apps/byte_tokenizer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sanitizer.h"
#include "hub/folder.h"

namespace reprise::api::api_test {
namespace {

// A small model of random weights with a tokenizer of bytes and a chat template.
class ModelFolder : public hub::TestFolder {
 public:
  ModelFolder() {
    write("config.json",
          R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 260,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512, "eos_token_id": 259,
              "torch_dtype": "float32"})");
    write("tokenizer.json", apps::byte_tokenizer().dump());
    write("tokenizer_config.json",
          R"({"chat_template": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"})");
  }
  Options options() const {
    return {
        {"model_path", path()}, {"load_format", "dummy"}, {"threads", "2"}, {"device", "cpu"}, {"plan_cache", "off"}};
  }
};

class Library : public testing::Test {
 protected:
  void SetUp() override {
    set_log(LogLevel::Warning, {});
    model = Model::open(folder.options(), error);
    ASSERT_TRUE(model) << error.message;
  }
  Prompt greedy(const std::string& text, const std::string& tokens) const {
    Prompt p;
    p.text = text;
    p.sampling = {{"max_new_tokens", tokens}, {"temperature", "0"}, {"ignore_eos", "true"}};
    return p;
  }
  ModelFolder folder;
  Error error;
  std::unique_ptr<Model> model;
};

TEST_F(Library, StreamsWhatItAnswers) {
  std::string streamed;
  const auto answer = model->generate(greedy("Hello", "24"), error, [&](std::string_view piece) {
    streamed += piece;
    return true;
  });
  ASSERT_TRUE(answer) << error.message;
  EXPECT_EQ(answer->token_ids.size(), 24u);
  EXPECT_EQ(answer->prompt_tokens, 5);
  EXPECT_EQ(answer->finish, "length");
  EXPECT_EQ(answer->text, streamed);
  // The prefix cache has the prompt now; the bits do not change.
  const auto again = model->generate(greedy("Hello", "24"), error);
  ASSERT_TRUE(again) << error.message;
  EXPECT_EQ(again->token_ids, answer->token_ids);
  Prompt ids = greedy("", "24");
  ids.token_ids = {'H', 'e', 'l', 'l', 'o'};
  const auto by_ids = model->generate(ids, error);
  ASSERT_TRUE(by_ids) << error.message;
  EXPECT_NE(by_ids->token_ids, std::vector<int32_t>());
}

TEST_F(Library, MessagesGoThroughTheTemplate) {
  Prompt chat = greedy("", "8"), plain = greedy("<user>hi<assistant>", "8");
  chat.messages = {{"user", "hi"}};
  const auto by_template = model->generate(chat, error), by_hand = model->generate(plain, error);
  ASSERT_TRUE(by_template && by_hand) << error.message;
  EXPECT_EQ(by_template->token_ids, by_hand->token_ids);
}

TEST_F(Library, EndsWhereItIsTold) {
  int pieces = 0;
  const auto by_sink = model->generate(greedy("a", "400"), error, [&](std::string_view) { return ++pieces < 3; });
  ASSERT_TRUE(by_sink) << error.message;
  EXPECT_EQ(by_sink->finish, "cancelled");
  EXPECT_EQ(by_sink->token_ids.size(), 3u);

  // From another thread, once the answer runs; one that ends before would say "length".
  std::thread other;
  const auto by_thread = model->generate(greedy("a", "400"), error, [&](std::string_view) {
    if (!other.joinable()) {
      other = std::thread([&] { model->cancel(); });
      other.join();
    }
    return true;
  });
  ASSERT_TRUE(by_thread) << error.message;
  EXPECT_EQ(by_thread->finish, "cancelled");
  // It is about one answer.
  const auto next = model->generate(greedy("a", "4"), error);
  ASSERT_TRUE(next) << error.message;
  EXPECT_EQ(next->finish, "length");
}

TEST_F(Library, ErrorsNameSettingsByKey) {
  const auto code_of = [&](const Options& more) {
    Options all = folder.options();
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_FALSE(Model::open(all, error)) << more.front().first;
    return error.code;
  };
  EXPECT_EQ(code_of({{"max_running_requests", "0"}}), "invalid");
  EXPECT_EQ(error.message, "`max_running_requests`: 0 is out of range; allowed: 1 to 4096");
  EXPECT_EQ(error.settings, std::vector<std::string>{"max_running_requests"});
  EXPECT_EQ(code_of({{"max_runing_requests", "1"}}), "invalid");
  EXPECT_NE(error.message.find("close names: max_running_requests"), std::string::npos) << error.message;
  // Found by the engine, and by two settings together.
  EXPECT_EQ(code_of({{"context_length", "100000"}}), "invalid");
  EXPECT_EQ(error.settings, (std::vector<std::string>{"context_length", "override"})) << error.message;
  EXPECT_EQ(code_of({{"graph", "off"}, {"graph_decode", "whole"}}), "invalid");
  EXPECT_EQ(error.settings, (std::vector<std::string>{"graph", "graph_decode"})) << error.message;
  EXPECT_EQ(code_of({{"model_path", folder / "none"}}), "not found");

  Prompt wrong = greedy("a", "0");
  EXPECT_FALSE(model->generate(wrong, error));
  EXPECT_EQ(error.settings, std::vector<std::string>{"max_new_tokens"});
  EXPECT_FALSE(model->generate({}, error));
  EXPECT_NE(error.message.find("one of"), std::string::npos);
  EXPECT_FALSE(options_of_json("{", error));
  const auto options = options_of_json(R"({"threads": 2, "override": ["a=1"]})", error);
  ASSERT_TRUE(options);
  EXPECT_EQ(*options, (Options{{"threads", "2"}, {"override", "a=1"}}));
}

TEST_F(Library, ExplainsWhatWasCompiled) {
  const OrderedJson j = OrderedJson::parse(model->explain("decode", error));
  for (const char* key : {"passes", "pieces", "kernels", "sizes", "memory", "decisions"})
    EXPECT_TRUE(j.contains(key)) << key;
  EXPECT_FALSE(j["kernels"].empty());
  EXPECT_EQ(model->explain("neither", error), "");
  EXPECT_EQ(error.code, "invalid");
}

TEST_F(Library, LogLinesGoToTheSink) {
  std::vector<std::pair<LogLevel, std::string>> lines;
  set_log(LogLevel::Notice, [&](LogLevel level, std::string_view line) { lines.emplace_back(level, line); });
  testing::internal::CaptureStderr();
  Options options = folder.options();
  options.emplace_back("disable_cuda_graph", "true");
  const auto opened = Model::open(options, error);
  log::info("below the level");
  set_log(LogLevel::Warning, {});
  log::info("below the level");
  log::warning("seen");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("warning: seen"), std::string::npos);
  ASSERT_TRUE(opened) << error.message;
  EXPECT_NE(std::find(lines.begin(), lines.end(),
                      std::pair(LogLevel::Notice, std::string("`disable_cuda_graph`: `graph_decode` off"))),
            lines.end());
  for (const auto& [level, line] : lines) EXPECT_GE(level, LogLevel::Notice) << line;
}

// As its reader would: configured by itself, against what find_package() finds in the build tree.
TEST(Embed, AProgramOutsideTheTreeGenerates) {
  if (REPRISE_CROSS) GTEST_SKIP() << "the packages that it links are not this machine's";
  if (REPRISE_ASAN || REPRISE_TSAN) GTEST_SKIP() << "this archive is instrumented; the release build makes the program";
  const ModelFolder folder;
  const std::string source = std::string(REPRISE_SOURCE_DIR) + "/examples/embed";
  const auto run = [&](const std::string& command, const std::string& log) {
    const int status = std::system((command + " >" + (folder / log) + " 2>&1").c_str());
    EXPECT_EQ(status, 0) << command << "\n" << folder.read(log);
    return folder.read(log);
  };
  run(fmt::format("{} -S {} -B {} -DCMAKE_PREFIX_PATH={} -DCMAKE_CXX_COMPILER={}", REPRISE_CMAKE, source,
                  folder / "build", REPRISE_LIBRARY_PREFIX, REPRISE_COMPILER),
      "configure.log");
  run(fmt::format("{} --build {}", REPRISE_CMAKE, folder / "build"), "build.log");
  const std::string out =
      run(fmt::format("{} hello model_path={} load_format=dummy device=cpu plan_cache=off threads=2",
                      folder / "build/embed", folder.path()),
          "out.log");
  EXPECT_NE(out.find(" tokens, "), std::string::npos) << out;
  const std::string text = *read_file(source + "/embed.cpp");
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40);
}

}  // namespace
}  // namespace reprise::api::api_test
