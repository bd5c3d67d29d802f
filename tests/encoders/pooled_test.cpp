// Vectors and scores of models that do not generate: against transformers (tests/data/encoders), and the bits rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "backends/all.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "sched/embedder.h"
#include "support/pooled_goldens.h"
#include "support/ranked_engine.h"
#include "support/smollm2.h"
#include "support/test_mode.h"
#include "text/model_input.h"

namespace reprise::pooled_test {
namespace {

using sched::Embedder;
using sched::EmbeddingRequest;
using testing_support::cosine;
using Golden = testing_support::PooledGolden;
using Rows = std::vector<std::vector<float>>;

struct How {
  DType dtype = DType::F32;
  int threads = 2;
  int64_t chunk = 256, rows = 8, context = 140;
  engine::GraphPolicy policy = engine::GraphPolicy::Auto;
  GraphMode mode = GraphMode::Piecewise;
  std::vector<std::string> passes{"all"};
  std::optional<checkpoint::PoolKind> pooling = {};
  std::vector<std::string> overrides = {};
};

std::string data_of(const std::string& folder) { return std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + folder; }
// A folder, or a GGUF file of the model in it.
std::string path_of(const std::string& model) {
  return data_of(model.ends_with(".gguf") ? "gguf/" : "encoders/") + model;
}
std::string folder_of(const std::string& model) { return data_of("encoders/") + model.substr(0, model.find('.')); }

Result<std::unique_ptr<engine::Engine>> open(const std::string& path, const How& s = {}) {
  DeviceOptions device{DeviceKind::Cpu, "auto", s.threads, false};
  engine::EngineOptions o;
  o.model_path = path;
  o.dtype = s.dtype;
  o.context_length = path.find("tests/data") == std::string::npos ? 0 : s.context;
  o.chunked_prefill_size = s.chunk;
  o.max_running_requests = s.rows;
  o.graph.policy = s.policy;
  o.graph.decode = o.graph.prefill = s.mode;
  o.graph.pipeline.passes.enable = s.passes;
  o.pooling = s.pooling;
  o.overrides = s.overrides;
  RETURN_IF_ERROR(testing_support::apply_test_mode(o, device));
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  return engine::Engine::create(o, std::move(platform));
}

std::vector<EmbeddingRequest> requests_of(const std::vector<Golden>& goldens) {
  std::vector<EmbeddingRequest> out;
  for (const Golden& g : goldens) out.push_back(g.request);
  return out;
}

bool same_bits(const Rows& a, const Rows& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return true;
}

class Pooled : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    goldens = testing_support::read_pooled_goldens(folder_of(GetParam()));
    ASSERT_GE(goldens.size(), 3u);
    for (const Golden& g : goldens) context = std::max(context, static_cast<int64_t>(g.request.tokens.size()) + 9);
  }
  Result<std::unique_ptr<engine::Engine>> open_with(How s) const {
    s.context = context;
    return open(path_of(GetParam()), s);
  }
  Rows rows_with(const How& s) {
    auto e = open_with(s);
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    if (!e.is_ok()) return {};
    auto rows = Embedder(**e).run(requests_of(goldens));
    EXPECT_TRUE(rows.is_ok()) << rows.status().message();
    return rows.is_ok() ? std::move(*rows) : Rows();
  }
  std::vector<Golden> goldens;
  int64_t context = 140;
};

TEST_P(Pooled, RowsAreThoseOfTheReference) {
  const Rows rows = rows_with({});
  ASSERT_EQ(rows.size(), goldens.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), goldens[i].row.size());
    if (rows[i].size() > 1) {
      EXPECT_GE(cosine(rows[i], goldens[i].row), 1 - 1e-5);
    }
    for (size_t k = 0; k < rows[i].size(); ++k) EXPECT_NEAR(rows[i][k], goldens[i].row[k], 1e-4) << i << ", " << k;
  }
}

TEST_P(Pooled, HalfPrecisionIsNear) {
  const Rows rows = rows_with({.dtype = DType::BF16});
  ASSERT_EQ(rows.size(), goldens.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].size() > 1)
      EXPECT_GE(cosine(rows[i], goldens[i].row), 0.998) << i;
    else
      EXPECT_NEAR(rows[i][0], goldens[i].row[0], 0.05) << i;
  }
}

TEST_P(Pooled, BitsAreTheSameAloneInBatchesThreadsModesAndPasses) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Rows usual = rows_with({.dtype = dtype});
    ASSERT_FALSE(usual.empty());
    auto e = open_with({.dtype = dtype});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    Embedder one(**e);
    for (size_t i = goldens.size(); i-- > 0;) {
      const auto alone = one.run({&goldens[i].request, 1});
      ASSERT_TRUE(alone.is_ok()) << alone.status().message();
      EXPECT_TRUE(same_bits({usual[i]}, *alone)) << i;
    }
    EXPECT_TRUE(same_bits(usual, rows_with({.dtype = dtype, .threads = 1, .mode = GraphMode::Whole})));
    EXPECT_TRUE(same_bits(usual, rows_with({.dtype = dtype, .threads = 3, .policy = engine::GraphPolicy::Off})));
    EXPECT_TRUE(same_bits(usual, rows_with({.dtype = dtype, .passes = {"none"}})));
    EXPECT_TRUE(same_bits(usual, rows_with({.dtype = dtype, .chunk = 140, .rows = 2})));
  }
}

TEST_P(Pooled, StepsAreReplayedFromCapturedGraphs) {
  auto e = open_with({.policy = engine::GraphPolicy::Required, .mode = GraphMode::Whole});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  ASSERT_TRUE(Embedder(**e).run(requests_of(goldens)).is_ok());
  const engine::PhaseStats& stats = (*e)->runner("prefill")->stats();
  EXPECT_GT(stats.replays, 0u);
  EXPECT_EQ(stats.replays, stats.steps);
  EXPECT_TRUE(stats.fallbacks.empty());
}

INSTANTIATE_TEST_SUITE_P(All, Pooled,
                         testing::Values("bert_mean", "bert_cls_old", "roberta_mean", "bert_scores", "roberta_scores",
                                         "xlm_roberta_mean", "xlm_roberta_scores", "qwen3_last", "qwen3_mean",
                                         "qwen3_yes_no", "gemma3_both_sides", "qwen2_both_sides", "mistral_both_sides",
                                         "llama_bidirectional", "bert_dense", "xlm_roberta_mean.gguf",
                                         "xlm_roberta_scores.gguf", "qwen3_last.gguf", "gemma3_both_sides.gguf"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(PooledEngine, AGgufFileSaysHowRowsBecomeAVectorAndHasTheBitsOfTheFolder) {
  for (const std::string name : {"xlm_roberta_mean", "xlm_roberta_scores", "qwen3_last", "qwen3_yes_no"}) {
    auto file = open(path_of(name + ".gguf")), folder = open(path_of(name));
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    ASSERT_TRUE(folder.is_ok()) << folder.status().message();
    EXPECT_EQ((*file)->pooling().kind, (*folder)->pooling().kind);
    EXPECT_EQ((*file)->config().architecture, (*folder)->config().architecture);
    EXPECT_EQ((*file)->config().max_position_embeddings, (*folder)->config().max_position_embeddings);
    for (const std::string& notice : (*file)->config().notices) EXPECT_EQ(notice.find("no file says how"), notice.npos);
    const auto requests = requests_of(testing_support::read_pooled_goldens(folder_of(name)));
    const auto a = Embedder(**file).run(requests), b = Embedder(**folder).run(requests);
    ASSERT_TRUE(a.is_ok() && b.is_ok());
    EXPECT_TRUE(same_bits(*a, *b)) << name;
  }
  auto first = open(path_of("xlm_roberta_mean.gguf"), {.pooling = checkpoint::PoolKind::First});
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  EXPECT_EQ((*first)->pooling().kind, checkpoint::PoolKind::First);
}

TEST(PooledEngine, AnEncoderKeepsNothingOfATextAndADecoderDoes) {
  auto encoder = open(path_of("bert_mean")), decoder = open(path_of("qwen3_last"));
  auto both_sides = open(path_of("qwen2_both_sides"));
  ASSERT_TRUE(encoder.is_ok() && decoder.is_ok() && both_sides.is_ok());
  EXPECT_EQ((*encoder)->memory().kv_page_bytes, 0u);
  EXPECT_EQ((*both_sides)->memory().kv_page_bytes, 0u);
  EXPECT_GT((*decoder)->memory().kv_page_bytes, 0u);
  EXPECT_TRUE((*encoder)->whole_prompts());
  EXPECT_TRUE((*both_sides)->whole_prompts());
  EXPECT_FALSE((*decoder)->whole_prompts());
  EXPECT_EQ((*encoder)->pooled_size(), 60);
}

TEST(PooledEngine, AModelOfVectorsGivesNoTokensAndTheOtherWayRound) {
  auto vectors = open(path_of("qwen3_last"));
  auto tokens = open(path_of("qwen3_last"), {.pooling = checkpoint::PoolKind::None});
  ASSERT_TRUE(vectors.is_ok()) << vectors.status().message();
  ASSERT_TRUE(tokens.is_ok()) << tokens.status().message();
  engine::Sequence s({5, 6, 7});
  ASSERT_TRUE((*vectors)->reserve(s, 3).is_ok());
  const engine::StepItem item{&s, 3, 1};
  const auto refused = (*vectors)->submit({&item, 1}, engine::StepOutput::NextTokens);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("gives vectors or scores"), std::string::npos)
      << refused.status().message();
  (*vectors)->release(s);
  const EmbeddingRequest request{{5, 6, 7}};
  const auto none = Embedder(**tokens).run({&request, 1});
  ASSERT_FALSE(none.is_ok());
  EXPECT_NE(none.status().message().find("gives no vectors"), std::string::npos) << none.status().message();
}

TEST(PooledEngine, WhatCannotBePooledIsAnErrorThatNamesWhatIsAllowed) {
  const auto message = [](const std::string& model, const How& s) {
    const auto e = open(path_of(model), s);
    return e.is_ok() ? std::string() : e.status().message();
  };
  EXPECT_NE(message("bert_mean", {.pooling = checkpoint::PoolKind::None}).find("allowed: auto, mean, cls, last"),
            std::string::npos);
  EXPECT_NE(message("qwen3_last", {.pooling = checkpoint::PoolKind::First}).find("allowed: auto, last, mean, none"),
            std::string::npos);
  EXPECT_NE(message("bert_scores", {.pooling = checkpoint::PoolKind::Mean}).find("gives scores of pairs"),
            std::string::npos);
  EXPECT_NE(message("bert_mean", {.overrides = {"position_embedding_type=relative_key"}}).find("\"absolute\""),
            std::string::npos);
  EXPECT_NE(message("bert_mean", {.overrides = {"is_decoder=true"}}).find("is_decoder"), std::string::npos);
  EXPECT_NE(message("qwen3_yes_no", {.overrides = {"classifier_from_token=[\"no\",\"maybe\"]"}}).find("tokens of"),
            std::string::npos);
}

TEST(PooledEngine, RowsThatSeeBothSidesArePooledWhereNoFileSaysHow) {
  const std::vector<std::string> bidirectional{"is_causal=false"};
  auto decoder = open(data_of("models/llama_gqa3_tied"), {.overrides = bidirectional});
  ASSERT_TRUE(decoder.is_ok()) << decoder.status().message();
  EXPECT_EQ((*decoder)->pooling().kind, checkpoint::PoolKind::Last);
  const auto& notices = (*decoder)->config().notices;
  EXPECT_TRUE(std::any_of(notices.begin(), notices.end(), [](const std::string& n) {
    return n.find("no file says how rows become a vector (modules.json); effective: last") != n.npos;
  }));
  auto first = open(path_of("qwen2_both_sides"), {.pooling = checkpoint::PoolKind::First});
  EXPECT_TRUE(first.is_ok()) << first.status().message();
  auto long_texts = open(path_of("qwen2_both_sides"), {.context = 0, .overrides = {"max_position_embeddings=131072"}});
  ASSERT_TRUE(long_texts.is_ok()) << long_texts.status().message();
  EXPECT_EQ((*long_texts)->context_length(), 8192);
  const auto message = [&](const std::string& model, const How& s) {
    const auto e = open(data_of(model), s);
    return e.is_ok() ? std::string() : e.status().message();
  };
  EXPECT_NE(message("encoders/qwen2_both_sides", {.pooling = checkpoint::PoolKind::None}).find("gives vectors"),
            std::string::npos);
  EXPECT_NE(message("models/deepseek_v2_lite", {.overrides = bidirectional}).find("is_causal is false"),
            std::string::npos);
}

TEST(PooledEngine, VectorsOfEmbeddingGemmaAreCutToItsSizes) {
  auto e = open(path_of("gemma3_both_sides"), {.overrides = {"matryoshka_dimensions=[8,16]"}});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_EQ((*e)->pooling().sizes, (std::vector<int64_t>{8, 16}));
  ASSERT_EQ((*e)->pooling().dense.size(), 2u);
  EXPECT_EQ((*e)->pooled_size(), 24);
  // Of its sizes those remain that are smaller than the rows.
  auto usual = open(path_of("gemma3_both_sides"));
  ASSERT_TRUE(usual.is_ok()) << usual.status().message();
  EXPECT_TRUE((*usual)->pooling().sizes.empty());
  EXPECT_EQ(models::find_model("Gemma3ForCausalLM").value()->sizes_of_vectors.back(), 512);
}

TEST(PooledRanks, SeveralGiveTheBitsOfOne) {
  for (const std::string model : {"bert_mean", "gemma3_both_sides", "qwen2_both_sides"}) {
    const auto requests = requests_of(testing_support::read_pooled_goldens(folder_of(model)));
    testing_support::EngineSetup s;
    s.dtype = DType::F32;
    s.threads = 1;
    s.rows = 4;
    s.context = s.chunk = 220;
    if (model == "bert_mean") s.context = 150;
    auto one = testing_support::open_engine(path_of(model), s);
    ASSERT_TRUE(one.is_ok()) << one.status().message();
    const auto expected = Embedder(**one).run(requests);
    ASSERT_TRUE(expected.is_ok()) << expected.status().message();
    for (const int ranks : {2, 4}) {
      if (ranks == 4 && model == "bert_mean") continue;  // it has five heads
      auto world = testing_support::open_ranked(path_of(model), s, ranks);
      ASSERT_TRUE(world.is_ok()) << model << ": " << world.status().message();
      const auto rows = Embedder((*world)->front()).run(requests);
      ASSERT_TRUE(rows.is_ok()) << model << ": " << rows.status().message();
      EXPECT_TRUE(same_bits(*rows, *expected)) << model << ", " << ranks << " ranks";
    }
  }
}

TEST(PooledEngine, ATextThatIsTooLongIsRefusedByItsPlace) {
  auto e = open(path_of("bert_mean"));
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const std::vector<EmbeddingRequest> requests{{{5}}, {std::vector<int32_t>(141, 5)}};
  const auto rows = Embedder(**e).run(requests);
  ASSERT_FALSE(rows.is_ok());
  EXPECT_EQ(rows.status().message(), "text 1: the text is 141 tokens long and the context 140");
}

TEST(PooledEngine, VectorsAreCutWhereTheModelAllowsItAndHaveLengthOneAgain) {
  checkpoint::PoolingFields free, list, none;
  free.least_size = 32;
  list.sizes = {16, 32};
  EXPECT_TRUE(sched::check_dimensions(free, 64, 0).is_ok());
  EXPECT_TRUE(sched::check_dimensions(free, 64, 33).is_ok());
  EXPECT_EQ(sched::check_dimensions(free, 64, 31).message(), "31; allowed: 32 to 64");
  EXPECT_EQ(sched::check_dimensions(list, 64, 33).message(), "33; allowed: 16, 32 or 64");
  EXPECT_TRUE(sched::check_dimensions(list, 64, 16).is_ok());
  EXPECT_FALSE(sched::check_dimensions(none, 64, 63).is_ok());
  EXPECT_TRUE(sched::check_dimensions(none, 64, 64).is_ok());
  std::vector<float> row{0.6f, 0.0f, 0.8f};
  sched::cut(row, 2, true);
  EXPECT_EQ(row, (std::vector<float>{1, 0}));
}

// The published model (`reprise pull minilm`), against transformers.
TEST(PooledMinilm, SentencesAreThoseOfTheReference) {
  const std::string folder = testing_support::pulled_folder("minilm").string();
  if (!std::filesystem::exists(folder + "/model.safetensors")) {
    if (testing_support::in_ci()) FAIL() << folder << " is not there";
    GTEST_SKIP() << folder << " is not there; run `reprise pull minilm`";
  }
  const auto text = read_file(path_of("minilm.json"));
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  const auto golden = parse_json(*text, "minilm.json");
  ASSERT_TRUE(golden.is_ok());
  auto e = open(folder);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_EQ((*e)->context_length(), 256);
  // From the text, by the model's own tokenizer.
  const auto file = read_file(folder + "/tokenizer.json");
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  const auto tokenizer = text::Tokenizer::from_json_text(*file);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  std::vector<EmbeddingRequest> requests;
  for (const Json& g : *golden) {
    const auto words = g["text"].get<std::string>();
    const auto encoded = text::encode_text(*tokenizer, words, (*e)->context_length(), true, false);
    ASSERT_TRUE(encoded.is_ok()) << encoded.status().message();
    EXPECT_EQ(encoded->ids, g["ids"].get<std::vector<int32_t>>()) << words;
    requests.push_back({encoded->ids});
  }
  const auto rows = Embedder(**e).run(requests);
  ASSERT_TRUE(rows.is_ok()) << rows.status().message();
  for (size_t i = 0; i < rows->size(); ++i)
    EXPECT_GE(cosine((*rows)[i], (*golden)[i]["embedding"].get<std::vector<float>>()), 1 - 1e-6) << i;
  EXPECT_GT(cosine((*rows)[0], (*rows)[1]), cosine((*rows)[0], (*rows)[2]) + 0.2) << "the order of meanings";
}

}  // namespace
}  // namespace reprise::pooled_test
