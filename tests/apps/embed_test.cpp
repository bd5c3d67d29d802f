// `reprise embed` and the routes for vectors and scores, on tiny encoders: against what transformers gave
// (tests/data/encoders, tools/golden/make_encoders.py).
#include <gtest/gtest.h>

#include <cstring>

#include "apps/serving.h"
#include "support/http_client.h"
#include "support/smollm2.h"

namespace reprise::apps::embed_test {
namespace {

using testing_support::HttpAnswer;
using testing_support::HttpClient;

// A folder of encoders, or a GGUF file.
std::string path_of(const std::string& model) {
  const char* folder = model.ends_with(".gguf") ? "gguf/" : "encoders/";
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + folder + model;
}
std::string flags_of(const std::string& model) {
  return fmt::format("--model-path {} --dtype float32 --threads 2 --log-level warning", path_of(model));
}
Json file_of(const std::string& model, const std::string& name) {
  return Json::parse(content_of(path_of(model) + "/" + name));
}

void expect_near(const Json& got, const Json& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i].get<double>(), wanted[i].get<double>(), 1e-4) << i;
}

// A server of a tiny encoder.
struct Served {
  explicit Served(const std::string& name)
      : model(fmt::format("--model-path {} --dtype float32 --threads 2", path_of(name))),
        server(model, ""),
        client(server.port()) {}
  Json post(const std::string& path, const Json& body, int status = 200) {
    const HttpAnswer a = client.post(path, body.dump());
    EXPECT_EQ(a.status, status) << path << " " << a.body;
    return Json::parse(a.body, nullptr, false);
  }
  Model model;
  Server server;
  HttpClient client;
};

// The published model of `reprise pull minilm`, from texts over HTTP to vectors.
TEST(Embed, VectorsOfMinilmAreThoseOfSentenceTransformers) {
  const std::filesystem::path folder = testing_support::pulled_folder("minilm");
  if (!std::filesystem::exists(folder / "model.safetensors")) {
    if (testing_support::in_ci()) FAIL() << folder << " is not there";
    GTEST_SKIP() << folder << " is not there; run `reprise pull minilm`";
  }
  const Json golden = Json::parse(content_of(path_of("minilm.json")));
  const Model model(fmt::format("--model-path {} --dtype float32 --threads 2", folder.string()));
  Server server(model, "");
  ASSERT_GT(server.port(), 0) << server.said();
  HttpClient client(server.port());
  for (const Json& g : golden) {
    const Json body{{"model", "m"}, {"input", g["text"]}, {"truncate", true}};
    const HttpAnswer a = client.post("/v1/embeddings", body.dump());
    ASSERT_EQ(a.status, 200) << a.body;
    const Json answer = Json::parse(a.body);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], g["ids"].size());
    expect_near(answer["data"][0]["embedding"], g["embedding"]);
  }
}

std::vector<float> floats_of_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned held = 0, bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    held = held << 6 | static_cast<unsigned>(digits.find(c));
    if ((bits += 6) >= 8) bytes += static_cast<char>(held >> (bits -= 8) & 255);
  }
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), out.size() * 4);
  return out;
}

TEST(Embed, VectorsOverHttpAreThoseOfTheReference) {
  const Json texts = file_of("bert_mean", "texts.json");
  Json inputs = Json::array(), ids = Json::array();
  for (const Json& t : texts) inputs.push_back(t["text"]), ids.push_back(t["ids"]);
  Served s("bert_mean");
  ASSERT_GT(s.server.port(), 0) << s.server.said();
  const Json answer = s.post("/v1/embeddings", {{"model", "m"}, {"input", inputs}, {"truncate", true}});
  ASSERT_EQ(answer["data"].size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(answer["data"][i]["index"], i);
    expect_near(answer["data"][i]["embedding"], texts[i]["embedding"]);
  }
  // The same numbers for token ids, for a text alone, as bytes, and in Ollama's words.
  const Json by_ids = s.post("/v1/embeddings", {{"input", ids}});
  const Json bytes = s.post("/v1/embeddings", {{"input", inputs}, {"truncate", true}, {"encoding_format", "base64"}});
  for (size_t i = 0; i < texts.size(); ++i) {
    const Json& numbers = answer["data"][i]["embedding"];
    EXPECT_EQ(by_ids["data"][i]["embedding"], numbers);
    EXPECT_EQ(floats_of_base64(bytes["data"][i]["embedding"]), numbers.get<std::vector<float>>());
    EXPECT_EQ(s.post("/v1/embeddings", {{"input", inputs[i]}, {"truncate", true}})["data"][0]["embedding"], numbers);
  }
  const Json ollama = s.post("/api/embed", {{"model", "bert_mean"}, {"input", inputs}});
  EXPECT_EQ(ollama["embeddings"][0], answer["data"][0]["embedding"]);
  EXPECT_EQ(s.post("/api/embeddings", {{"model", "bert_mean"}, {"prompt", inputs[0]}})["embedding"],
            ollama["embeddings"][0]);
  // A model of vectors compares them where it is asked to rank.
  const Json ranked =
      s.post("/v1/rerank", {{"query", inputs[0]}, {"documents", {inputs[2], inputs[0], inputs[3]}}, {"top_n", 2}});
  ASSERT_EQ(ranked["results"].size(), 2u);
  EXPECT_EQ(ranked["results"][0]["index"], 1);
  EXPECT_NEAR(ranked["results"][0]["relevance_score"].get<double>(), 1, 1e-5);
}

// The unigram model of its tokenizer, and its file names.
TEST(Embed, AModelOfManyLanguagesIsServed) {
  const Json texts = file_of("xlm_roberta_mean", "texts.json");
  Served s("xlm_roberta_mean");
  ASSERT_GT(s.server.port(), 0) << s.server.said();
  for (const Json& t : texts) {
    const Json answer = s.post("/v1/embeddings", {{"model", "m"}, {"input", t["text"]}, {"truncate", true}});
    expect_near(answer["data"][0]["embedding"], t["embedding"]);
  }
}

// GGUF files with a unigram model among their metadata (tools/golden/make_gguf_encoders.py).
TEST(Embed, GgufFilesOfModelsOfManyLanguagesAreServed) {
  const std::string folder = std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/";
  {
    Served s("xlm_roberta_mean.gguf");
    ASSERT_GT(s.server.port(), 0) << s.server.said();
    for (const Json& t : Json::parse(content_of(folder + "xlm_roberta_mean.json"))) {
      const Json answer = s.post("/v1/embeddings", {{"model", "m"}, {"input", t["text"]}});
      expect_near(answer["data"][0]["embedding"], t["embedding"]);
    }
  }
  Served s("xlm_roberta_scores.gguf");
  ASSERT_GT(s.server.port(), 0) << s.server.said();
  for (const Json& p : Json::parse(content_of(folder + "xlm_roberta_scores.json"))) {
    const Json scored = s.post("/v1/score", {{"text_1", p["query"]}, {"text_2", p["document"]}});
    EXPECT_NEAR(scored["data"][0]["score"].get<double>(), p["score"].get<double>(), 1e-4) << p["document"];
  }
}

TEST(Embed, ScoresOverHttpAreThoseOfTheReference) {
  const Json pairs = file_of("bert_scores", "pairs.json");
  Served s("bert_scores");
  ASSERT_GT(s.server.port(), 0) << s.server.said();
  Json documents = Json::array(), queries = Json::array();
  for (const Json& p : pairs) documents.push_back(p["document"]), queries.push_back(p["query"]);
  const Json scored = s.post("/v1/score", {{"text_1", queries}, {"text_2", documents}});
  ASSERT_EQ(scored["data"].size(), pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i)
    EXPECT_NEAR(scored["data"][i]["score"].get<double>(), pairs[i]["score"].get<double>(), 1e-4) << i;
  const Json ranked =
      s.post("/v2/rerank", {{"query", queries[0]}, {"documents", documents}, {"return_documents", true}});
  ASSERT_EQ(ranked["results"].size(), pairs.size());
  double before = 2;
  for (const Json& r : ranked["results"]) {
    EXPECT_LE(r["relevance_score"].get<double>(), before);
    before = r["relevance_score"].get<double>();
    const auto i = r["index"].get<size_t>();
    EXPECT_EQ(r["document"]["text"], documents[i]);
    if (queries[i] == queries[0]) {
      EXPECT_EQ(r["relevance_score"], scored["data"][i]["score"]) << "whatever else is scored";
    }
  }
}

// What Cohere's clients send: objects with their texts in other fields, and a bound of each document.
TEST(Embed, DocumentsMayBeObjectsAndAreCut) {
  const Json pairs = file_of("bert_scores", "pairs.json");
  const Json query = pairs[2]["query"], longer = pairs[2]["document"];
  const auto score_of = [&](Served& s, const Json& document, Json more) {
    more["query"] = query, more["documents"] = {document};
    return s.post("/v1/rerank", more)["results"][0]["relevance_score"].get<double>();
  };
  for (const char* name : {"bert_scores", "bert_mean"}) {
    Served s(name);
    ASSERT_GT(s.server.port(), 0) << s.server.said();
    const double whole = score_of(s, longer, Json::object());
    EXPECT_EQ(score_of(s, {{"text", longer}, {"title", "a"}}, Json::object()), whole);
    EXPECT_EQ(score_of(s, {{"body", longer}, {"title", "a"}}, {{"rank_fields", {"body"}}}), whole);
    EXPECT_EQ(score_of(s, {{"b", "time"}, {"a", "once upon"}}, {{"rank_fields", {"a", "b", "c"}}}),
              score_of(s, "once upon\ntime", Json::object()));
    // "once upon a time": five tokens of these tokenizers.
    EXPECT_EQ(score_of(s, longer, {{"max_tokens_per_doc", 5}}), score_of(s, "once upon a time", Json::object()));
    EXPECT_NE(score_of(s, longer, {{"max_tokens_per_doc", 5}}), whole);
    EXPECT_EQ(score_of(s, longer, {{"max_tokens_per_doc", 100000}}), whole);
    for (const auto& [field, value] : std::vector<std::pair<std::string, Json>>{
             {"max_tokens_per_doc", 0}, {"max_chunks_per_doc", 10}, {"rank_fields", Json::array()}, {"rank_fields", 5}})
      EXPECT_EQ(s.post("/v1/rerank", {{"query", query}, {"documents", {"a"}}, {field, value}}, 400)["error"]["param"],
                field);
    const Json body = {{"query", query}, {"documents", {{{"text", "a"}}}}, {"rank_fields", {"title", "body"}}};
    const Json e = s.post("/v1/rerank", body, 400)["error"];
    EXPECT_EQ(e["param"], "documents[0]");
    EXPECT_TRUE(holds(e["message"], R"("title" or "body")")) << e;
  }
}

// Every wrong call is one error that names the field.
TEST(Embed, WrongCallsNameTheField) {
  Served s("bert_mean");
  ASSERT_GT(s.server.port(), 0) << s.server.said();
  for (const auto& [body, param] :
       std::vector<std::pair<Json, std::string>>{{Json::object(), "input"},
                                                 {{{"input", 5}}, "input"},
                                                 {{{"input", Json::array()}}, "input"},
                                                 {{{"input", {{1, -1}}}}, "input[0]"},
                                                 {{{"input", "a"}, {"encoding_format", "int8"}}, "encoding_format"},
                                                 {{{"input", "a"}, {"dimensions", 3}}, "dimensions"},
                                                 {{{"input", "a"}, {"prompt_name", "none"}}, "prompt_name"}}) {
    const Json e = s.post("/v1/embeddings", body, 400);
    EXPECT_EQ(e["error"]["param"], param) << body << e;
  }
  std::string longer;
  for (int i = 0; i < 400; ++i) longer += "once upon a time ";
  EXPECT_EQ(s.post("/v1/embeddings", {{"input", longer}}, 400)["error"]["param"], "input");
  s.post("/v1/embeddings", {{"input", longer}, {"truncate", true}});
  // What it is not for.
  const Json chat = s.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}}, 400);
  EXPECT_TRUE(holds(chat.dump(), "gives embeddings; it does not write text (use /v1/embeddings)")) << chat;
  EXPECT_EQ(s.client.get("/health").status, 200);
  EXPECT_EQ(s.client.get("/health_generate").status, 200);
  const Model llama;
  Server generates(llama, "");
  ASSERT_GT(generates.port(), 0) << generates.said();
  HttpClient c(generates.port());
  const HttpAnswer refused = c.post("/v1/embeddings", R"({"input": "a"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(holds(refused.body, "generates text; it was not trained to give embeddings")) << refused.body;
  EXPECT_EQ(c.post("/v1/rerank", R"({"query": "a", "documents": ["b"]})").status, 400);
}

// Nothing is decoded, and nobody drafts.
TEST(Embed, TheReportAtTheStartHasNoRowsOfDecodeSteps) {
  Served s("bert_mean");
  ASSERT_GT(s.server.port(), 0) << s.server.said();
  const std::string said = s.server.said();
  EXPECT_TRUE(holds(said, "  prefill, 1 to ")) << said;
  for (const char* other : {"  decode, ", "  verify, ", "sampled tokens", "prompt log-probabilities"})
    EXPECT_FALSE(holds(said, other)) << other << "\n" << said;
}

TEST(Embed, TheCommandGivesTheSameNumbers) {
  const Folder folder;
  const Json texts = file_of("bert_mean", "texts.json");
  const std::string first = texts[0]["text"], second = texts[2]["text"];
  const OrderedJson j =
      json_of(run_binary(fmt::format("embed --json {} --text '{}' --text '{}'", flags_of("bert_mean"), first, second)));
  ASSERT_EQ(j["embeddings"].size(), 2u);
  expect_near(Json::parse(j["embeddings"][1].dump()), texts[2]["embedding"]);
  // Lines of standard input, and NumPy's format.
  const Outcome o = run_binary(fmt::format("embed {} --npy {}", flags_of("bert_mean"), folder / "v.npy"),
                               fmt::format("printf '%s\\n' '{}' '{}' |", first, second));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  const std::string npy = content_of(folder / "v.npy");
  const size_t width = texts[0]["embedding"].size();
  ASSERT_EQ(npy.size() % 64, 2 * width * 4 % 64);
  EXPECT_TRUE(holds(npy, fmt::format("'descr': '<f4', 'fortran_order': False, 'shape': (2, {})", width)));
  std::vector<float> row(width);
  std::memcpy(row.data(), npy.data() + npy.size() - width * 4, width * 4);
  EXPECT_EQ(row, j["embeddings"][1].get<std::vector<float>>());
  const Json pair = file_of("bert_scores", "pairs.json")[0];
  const OrderedJson scored =
      json_of(run_binary(fmt::format("embed --json {} --query '{}' --text '{}'", flags_of("bert_scores"),
                                     pair["query"].get<std::string>(), pair["document"].get<std::string>())));
  EXPECT_NEAR(scored["scores"][0].get<double>(), pair["score"].get<double>(), 1e-4);
  for (const auto& [flags, words] : std::vector<std::pair<std::string, std::string>>{
           {flags_of("bert_scores") + " --text a", "gives scores of pairs, and no vectors"},
           {flags_of("bert_mean") + " --query a --text b", "gives no scores of pairs"},
           {"--dtype float32 --text a --model-path " + std::string(REPRISE_SOURCE_DIR) +
                "/tests/data/models/qwen3_tied",
            "embeddings"}}) {
    const Outcome wrong = run_binary("embed " + flags);
    EXPECT_EQ(wrong.exit_code, 1) << flags;
    EXPECT_TRUE(holds(wrong.err, words)) << wrong.err;
  }
}

}  // namespace
}  // namespace reprise::apps::embed_test
