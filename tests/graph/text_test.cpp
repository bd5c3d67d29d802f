#include "graph/text.h"

#include <gtest/gtest.h>

#include "models/list.h"
#include "ops/core.h"

namespace reprise::text_test {
namespace {

struct TextTest : testing::Test {
  OpRegistry ops;
  TextTest() { register_core_ops(ops); }

  models::ModelConfig config(const std::string& architecture) {
    Json j = {{"architectures", {architecture}},
              {"hidden_size", 48},
              {"intermediate_size", 100},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 6},
              {"num_key_value_heads", 2},
              {"head_dim", 12},
              {"vocab_size", 263},
              {"max_position_embeddings", 256},
              {"rms_norm_eps", 1e-5},
              {"rope_theta", 12345.5},
              {"tie_word_embeddings", true},
              {"hidden_act", "silu"},
              {"num_labels", 1},
              {"full_attention_interval", 2},
              {"num_experts_per_tok", 2}};
    const auto* family = models::families(true).find(architecture);
    if (family && family->sizes.rotated < 0.5) j["partial_rotary_factor"] = 0.5;  // an even part of these heads
    if (architecture == "GraniteMoeHybridForCausalLM") j.update({{"mamba_n_heads", 6}, {"mamba_d_head", 16}});
    if (architecture == "NemotronHForCausalLM") j["hybrid_override_pattern"] = "M*";
    if (architecture == "GemmaForCausalLM") j["hidden_act"] = "gelu";
    if (architecture == "Llama4ForCausalLM") j["num_experts_per_tok"] = 1;
    if (architecture == "Ministral3ForCausalLM")
      j["rope_parameters"] = {{"llama_4_scaling_beta", 0.1}, {"original_max_position_embeddings", 128}};
    if (family && family->vision) {
      j.update({{"vision_config", Json::object()}, {"head_dim", 128}, {"num_hidden_layers", 3}});
    }
    auto fields = checkpoint::parse_model_config(j, "test", {}, models::families(true));
    EXPECT_TRUE(fields.is_ok()) << fields.status().message();
    return {*fields, {}, {}};
  }
};

TEST_F(TextTest, EveryModelPrintsAndParsesBackToItself) {
  for (const models::ModelSpec* spec : models::all_models()) {
    auto g = models::trace_model(*spec, config(std::string(spec->family.architecture)), {}, ops);
    ASSERT_TRUE(g.is_ok()) << g.status().message();
    const std::string text = print(*g);
    auto again = parse_graph(text, ops);
    ASSERT_TRUE(again.is_ok()) << again.status().message();
    EXPECT_EQ(print(*again), text);
  }
}

// What was written for an op's old name is read, and printed with the new one.
TEST_F(TextTest, FormerNamesOfOps) {
  auto g = parse_graph(R"(graph "old" {
  symbol T <= 4
  %0: bf16[T, 48] = input(name="x") from "trace"
  %1: i32[T] = input(name="i") from "trace"
  %2: bf16[T, 48] = rows(%0, %1) from "trace"
  return y=%2
}
)",
                       ops);
  ASSERT_TRUE(g.is_ok()) << g.status().message();
  EXPECT_NE(print(*g).find("%2: bf16[T, 48] = index_select(%0, %1)"), std::string::npos) << print(*g);
  EXPECT_EQ(ops.find("head_linear"), ops.find("per_head_matmul"));
  EXPECT_EQ(ops.find("no_such_op"), nullptr);
}

TEST_F(TextTest, WhatItLooksLike) {
  const char* text = R"(graph "toy" {
  symbol T <= 2048
  %0: i32[T] = input(name="tokens") from "trace"
  %1: bf16[263, 48] = param(name="model.embed_tokens.weight") from "trace"
  %2: bf16[T, 48] = embedding(%1, %0, shard="column") from "trace"
  return hidden=%2
}
)";
  auto g = parse_graph(text, ops);
  ASSERT_TRUE(g.is_ok()) << g.status().message();
  EXPECT_EQ(print(*g), text);
}

TEST_F(TextTest, ErrorsNameLineAndColumn) {
  struct Case {
    const char* text;
    const char* expected;
  };
  const Case cases[] = {
      {"", "expected graph"},
      {"graph \"g\" {\n  symbol T <= x\n", "line 2, column 15"},
      {"graph \"g\" {\n  %0: i32[T] = input(name=\"a\")\n  return\n}", "symbol T is not declared"},
      {"graph \"g\" {\n  %0: i32[4] = nothing()\n  return\n}", "op \"nothing\" is not known"},
      {"graph \"g\" {\n  %0: f32[4] = silu(%9)\n  return\n}", "%9 is not defined"},
      {"graph \"g\" {\n  %0: i32[4] = input(name=\"a\")\n  %0: i32[4] = input(name=\"b\")\n  return\n}",
       "defined twice"},
      {"graph \"g\" {\n  %0: f32[4] = input(name=\"a\")\n  %1: f32[5] = silu(%0)\n  return\n}", "written as"},
      {"graph \"g\" {\n  %0: f99[4] = input(name=\"a\")\n  return\n}", "dtype"},
      {"graph \"g\" {\n  %0: f32[4] = input(name=\"a\", extra=1)\n  return\n}", "no attribute \"extra\""},
      {"graph \"g\" {\n  %0: f32[1,2,3,4,5,6] = input(name=\"a\")\n  return\n}", "at most 5"},
      {"graph \"g\" {\n  %0: f32[4] = input(name=\"a)\n  return\n}", "does not end"},
      {"graph \"g\" {\n  %0: f32[4] = input(name=\"a\")\n  return y=%0\n} more", "nothing may follow"},
  };
  for (const Case& c : cases) {
    auto g = parse_graph(c.text, ops);
    ASSERT_FALSE(g.is_ok()) << c.text;
    EXPECT_NE(g.status().message().find(c.expected), std::string::npos) << g.status().message();
  }
}

TEST_F(TextTest, EveryPrefixOfAGraphIsOneCleanError) {
  auto g = models::trace_model(models::qwen3::kQwen3, config("Qwen3ForCausalLM"), {}, ops);
  ASSERT_TRUE(g.is_ok());
  const std::string text = print(*g);
  for (size_t n = 0; n + 2 < text.size(); n += 7) EXPECT_FALSE(parse_graph(text.substr(0, n), ops).is_ok());
}

}  // namespace
}  // namespace reprise::text_test
