// `reprise serve` with a model whose layers keep states (Qwen3.5): answers over HTTP, alone, together and behind a
// cached prompt, are those of `generate`.
#include <gtest/gtest.h>

#include "apps/serving.h"
#include "support/http_client.h"

namespace reprise::apps::states_test {
namespace {

using testing_support::HttpAnswer;
using testing_support::HttpClient;

// Four layers, of which the last attends, with a tokenizer of bytes.
void write_model(const Folder& folder) {
  const OrderedJson config = {{"architectures", {"Qwen3_5ForCausalLM"}},
                              {"model_type", "qwen3_5_text"},
                              {"hidden_size", 64},
                              {"intermediate_size", 96},
                              {"num_hidden_layers", 4},
                              {"num_attention_heads", 2},
                              {"num_key_value_heads", 1},
                              {"head_dim", 32},
                              {"linear_num_key_heads", 2},
                              {"linear_num_value_heads", 4},
                              {"linear_key_head_dim", 24},
                              {"linear_value_head_dim", 16},
                              {"vocab_size", 260},
                              {"max_position_embeddings", 1024},
                              {"eos_token_id", 259},
                              {"torch_dtype", "float32"}};
  folder.write("config.json", config.dump());
  folder.write("tokenizer.json", byte_tokenizer().dump());
  folder.write("tokenizer_config.json",
               R"({"chat_template": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"})");
}

TEST(States, AnswersOverHttpAreThoseOfGenerate) {
  const Folder folder;
  write_model(folder);
  const Model model(fmt::format("--model-path {} --load-format dummy --threads 2", folder.path()));
  Server server(model, "--chunked-prefill-size 200");
  ASSERT_NE(server.port(), 0) << server.said();
  std::string prompt;
  for (int i = 0; i < 40; ++i) prompt += fmt::format("line {} of it. ", i * i);
  const OrderedJson alone =
      json_of(run_binary("generate " + model.flags() +
                         " --json --temperature 0 --ignore-eos --max-new-tokens 30 --prompt '" + prompt + "'"));
  const auto size = alone["prompt_tokens"].get<int64_t>();
  ASSERT_GT(size, 300);
  std::vector<std::unique_ptr<HttpClient>> others;
  for (int i = 0; i < 6; ++i) {
    others.push_back(std::make_unique<HttpClient>(server.port()));
    const OrderedJson call{{"prompt", std::string(static_cast<size_t>(50 * i + 3), 'q')}, {"max_tokens", 40}};
    const std::string body = call.dump();
    others.back()->send(fmt::format("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}",
                                    body.size(), body));
  }
  HttpClient c(server.port());
  const OrderedJson call{{"prompt", prompt},   {"max_tokens", 30}, {"temperature", 0},
                         {"ignore_eos", true}, {"n", 2},           {"return_token_ids", true}};
  for (const int64_t cached : {int64_t{0}, (size - 1) / 128 * 128}) {
    const HttpAnswer a = c.post("/v1/completions", call.dump());
    ASSERT_EQ(a.status, 200) << a.body;
    const OrderedJson out = OrderedJson::parse(a.body);
    ASSERT_EQ(out["choices"].size(), 2u);
    for (const OrderedJson& choice : out["choices"]) EXPECT_EQ(choice["token_ids"], alone["output"]["token_ids"]);
    EXPECT_GE(out["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>(), cached) << a.body;
  }
  for (auto& o : others) EXPECT_TRUE(o->read().complete);
  const HttpAnswer chat =
      c.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5})");
  EXPECT_EQ(chat.status, 200) << chat.body;
  EXPECT_FALSE(holds(server.said(), "no prefix cache")) << server.said();
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
}

}  // namespace
}  // namespace reprise::apps::states_test
