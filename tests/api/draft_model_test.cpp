// A second model that drafts: opened beside the first one, with a pool for as many tokens, and refused where its
// vocabulary is another.
#include "api/draft_model.h"

#include <gtest/gtest.h>

namespace reprise::api {
namespace {

std::string tiny(const std::string& name) { return std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/" + name; }

ModelSettings with_draft(const std::string& name) {
  ModelSettings s;
  s.model_path = tiny("llama_gqa3_tied");
  s.device = "cpu";
  s.threads = 1;
  s.max_total_tokens = 1024;
  s.speculation.algorithm = "STANDALONE";
  s.speculation.draft_model_path = tiny(name);
  return s;
}

TEST(DraftModel, IsOpenedBesideTheModel) {
  ModelSettings s = with_draft("llama_mha_untied");
  ASSERT_TRUE(s.check().is_ok());
  auto engine = open_engine(s);
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  engine::Engine* draft = (*engine)->draft();
  ASSERT_NE(draft, nullptr);
  EXPECT_EQ(&draft->device(), &(*engine)->device());  // one team of threads
  EXPECT_EQ(draft->memory().kv_pages, (*engine)->memory().kv_pages);
  EXPECT_EQ((*engine)->memory().kv_pages, 8);
  EXPECT_GT(draft->memory().weight_bytes, 0u);
  s.speculation = {};
  auto alone = open_engine(s);
  ASSERT_TRUE(alone.is_ok());
  EXPECT_EQ((*alone)->draft(), nullptr);
}

TEST(DraftModel, MayBeALayerOfTheCheckpoint) {
  for (const std::string& name : std::vector<std::string>{"deepseek_v3", "qwen3_next"}) {
    SCOPED_TRACE(name);
    ModelSettings s = with_draft("");
    s.model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/" + name;
    s.speculation.algorithm = "NEXTN";
    s.speculation.draft_model_path = {};
    auto engine = open_engine(s);
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    ASSERT_NE((*engine)->draft(), nullptr);
    EXPECT_TRUE((*engine)->draft()->reads_source());
    EXPECT_EQ((*engine)->options().kept_rows, engine::KeptRows::Last);
    EXPECT_TRUE((*engine)->options().prediction_beside);
    EXPECT_EQ((*engine)->verify_refusal(), "");
    if (!(*engine)->has_states()) continue;
    EXPECT_EQ((*engine)->max_drafts(), 3) << "as many as the settings say fit a state";
    s.speculation.algorithm = "none";
    auto alone = open_engine(s);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    EXPECT_EQ((*alone)->max_drafts(), 0);
    EXPECT_LT((*alone)->memory().state_bytes, (*engine)->memory().state_bytes);
  }
}

// What both models and both pools take is within the fraction: the second model's share is not given out twice.
TEST(DraftModel, MemoryOfBothIsPlanned) {
  ModelSettings s = with_draft("llama_mha_untied");
  s.max_total_tokens = 0;
  auto engine = open_engine(s);
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  const engine::Beside& beside = (*engine)->options().beside;
  const engine::MemoryReport draft = (*engine)->draft()->memory();
  EXPECT_EQ(beside.bytes, draft.weight_bytes + draft.activation_bytes);
  EXPECT_EQ(beside.page_bytes, draft.kv_page_bytes);
  EXPECT_EQ(draft.kv_pages, (*engine)->memory().kv_pages);
}

// Both on one card. What a head of three layers needs, it does not do: the model is served without drafts.
TEST(DraftModel, IsOnTheCardOfTheModel) {
  ModelSettings s = with_draft("llama_mha_untied");
  s.device = "ascend";
  s.ascend_runtime = "sim";
  s.dtype = "bfloat16";
  s.max_running_requests = 2;
  s.chunked_prefill_size = 16;
  s.graph.graph = "off";
  auto engine = open_engine(s);
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  ASSERT_NE((*engine)->draft(), nullptr);
  EXPECT_EQ(&(*engine)->draft()->device(), &(*engine)->device());
  EXPECT_GT((*engine)->max_verify_rows(), 2);
  EXPECT_EQ((*engine)->draft()->max_verify_rows(), 2);  // its steps have no more rows than sequences
  s.model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/llama";
  s.speculation.algorithm = "EAGLE3";
  s.speculation.draft_model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/llama_eagle3";
  engine = open_engine(s);
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  ASSERT_NE((*engine)->draft(), nullptr);
  EXPECT_EQ(&(*engine)->draft()->device(), &(*engine)->device());
  EXPECT_GT((*engine)->max_verify_rows(), 2);
  s.speculation.exact = "required";
  EXPECT_FALSE(open_engine(s).is_ok());
}

TEST(DraftModel, OfAnotherVocabularyIsAnError) {
  const auto engine = open_engine(with_draft("qwen3_tied"));
  ASSERT_FALSE(engine.is_ok());
  const std::string& message = engine.status().message();
  EXPECT_NE(message.find("its vocabulary has 307 tokens and that of the model 263; allowed: a model of the same"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("`speculative_draft_model_path`"), std::string::npos) << message;
  ModelSettings ranks = with_draft("llama_mha_untied");
  ranks.tp_size = 2;
  EXPECT_NE(ranks.check().message().find("with `tp_size` 2: a draft model is on one rank alone yet"),
            std::string::npos);
}

}  // namespace
}  // namespace reprise::api
