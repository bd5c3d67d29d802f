// Which layers slide, by the same configurations that transformers was given (tests/data/config/windows.json), and the
// fields that the two spell or default differently.
#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/config.h"
#include "checkpoint/fit_to_tensors.h"
#include "checkpoint/helpers.h"
#include "models/model.h"

namespace reprise::checkpoint::config_reference_test {
namespace {

Result<ModelConfigFields> parse_family(std::string_view architecture, std::string_view extra,
                                       std::vector<std::string> overrides = {}) {
  const std::string text =
      fmt::format(R"({{"architectures":["{}"],"num_hidden_layers":2,"num_experts_per_tok":2{}{}}})", architecture,
                  extra.empty() ? "" : ",", extra);
  auto json = parse_json(text, "config.json");
  EXPECT_TRUE(json.is_ok()) << text;
  return parse_model_config(*json, "config.json", overrides, models::families(true));
}

TEST(ConfigReference, WindowsOfEveryFamily) {
  const auto text = read_file(data_dir() + "/config/windows.json");
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  const auto cases = parse_json(*text, "windows.json");
  ASSERT_TRUE(cases.is_ok() && cases->size() > 150);
  for (const Json& c : *cases) {
    SCOPED_TRACE(c["config"].dump());
    const auto config = parse_model_config(c["config"], "config.json", {}, models::families(true));
    if (c.contains("error")) {
      // transformers makes a mask of no window for Mistral even when no layer asks for it.
      const bool no_window = config.is_ok() && config->architecture == "MistralForCausalLM" && !config->sliding_window;
      EXPECT_TRUE(!config.is_ok() || no_window);
      continue;
    }
    if (!config.is_ok()) {  // transformers goes by one of two fields that contradict each other
      expect_error(config.status(), {"layer_types[", "one window for all layers or none"});
      continue;
    }
    for (int64_t l = 0; l < config->num_hidden_layers; ++l)
      EXPECT_EQ(config->window_of_layer(l), c["windows"][static_cast<size_t>(l)].get<int64_t>()) << l;
  }
}

TEST(ConfigReference, NullIsNotAlwaysAbsence) {
  EXPECT_TRUE(parse_family("DeepseekV3ForCausalLM", "")->latent->rope_interleave);
  EXPECT_FALSE(parse_family("DeepseekV3ForCausalLM", R"("rope_interleave":null)")->latent->rope_interleave);
  EXPECT_TRUE(parse_family("DeepseekV2ForCausalLM", R"("rope_interleave":null)")->latent->rope_interleave);
  EXPECT_TRUE(parse_family("DeepseekV3ForCausalLM", "")->experts.normalise);
  EXPECT_FALSE(parse_family("DeepseekV3ForCausalLM", R"("norm_topk_prob":null)")->experts.normalise);
}

TEST(ConfigReference, TwoNamesOfOneNumberMustAgree) {
  EXPECT_EQ(parse_family("MixtralForCausalLM", R"("num_experts":6)")->experts.count, 6);
  EXPECT_EQ(parse_family("DeepseekV3ForCausalLM", R"("num_local_experts":64)")->experts.count, 64);
  EXPECT_EQ(parse_family("Qwen3MoeForCausalLM", R"("num_experts":16,"num_local_experts":16)")->experts.count, 16);
  for (const char* family : {"MixtralForCausalLM", "Qwen3MoeForCausalLM", "Qwen2MoeForCausalLM"})
    expect_error(parse_family(family, R"("num_experts":16,"num_local_experts":8)").status(),
                 {"num_experts", "num_local_experts"});
  expect_error(parse_family("DeepseekV3ForCausalLM", R"("n_routed_experts":16,"num_local_experts":8)").status(),
               {"n_routed_experts is 16, but num_local_experts is 8"});
  EXPECT_EQ(parse_family("DeepseekV3ForCausalLM", R"("num_mtp_layers":2)")->nextn_layers, 2);
  expect_error(parse_family("DeepseekV3ForCausalLM", R"("num_mtp_layers":2,"num_nextn_predict_layers":1)").status(),
               {"num_nextn_predict_layers is 1, but num_mtp_layers is 2"});
}

TEST(ConfigReference, TheTypeMustBeOneOfTheArchitecture) {
  EXPECT_TRUE(parse_family("DeepseekV3ForCausalLM", R"("model_type":"kimi_k2")").is_ok());
  expect_error(parse_family("LlamaForCausalLM", R"("model_type":"mistral")").status(),
               {"model_type is \"mistral\"", "\"llama\" with LlamaForCausalLM"});
  expect_error(parse_family("Qwen2ForCausalLM", R"("model_type":"gemma")").status(), {"model_type is \"gemma\""});
}

TEST(ConfigReference, WhatHasNoEffectIsTold) {
  const auto told = [](const Result<ModelConfigFields>& c, std::string_view words) {
    ASSERT_TRUE(c.is_ok()) << c.status().message();
    std::string all;
    for (const std::string& n : c->notices) all += n + "\n";
    EXPECT_NE(all.find(words), std::string::npos) << all;
  };
  told(parse_family("LlamaForCausalLM",
                    R"("rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"default"})"),
       "rope_parameters has no effect beside rope_scaling");
  told(parse_family("LlamaForCausalLM", R"("partial_rotary_factor":0.5)"), "partial_rotary_factor 0.5 has no effect");
  told(parse_family("LlamaForCausalLM",
                    R"("rope_scaling":{"type":"dynamic","factor":2,"original_max_position_embeddings":64})"),
       "effective: max_position_embeddings 2048");
  told(parse_family("LlamaForCausalLM", R"("rope_scaling":{"type":"dynamic","factor":2})"),
       "rotated for its own position");
  told(parse_family("LlamaForCausalLM",
                    R"("original_max_position_embeddings":32,)"
                    R"("rope_scaling":{"type":"yarn","factor":2,"original_max_position_embeddings":64})"),
       "rope_scaling.original_max_position_embeddings 64 has no effect");
  told(parse_family("LlamaForCausalLM", R"("rope_scaling":{"type":"linear","factor":2,"mscale_all_dim":1})"),
       "rope_scaling.mscale_all_dim has no effect with rope_type linear");
}

TEST(ConfigReference, OverridesReachTheObjectInEffect) {
  const std::string both =
      R"("rope_theta":100,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_theta":5})";
  EXPECT_EQ(parse_family("LlamaForCausalLM", both, {"rope_theta=300"})->rope_theta, 300);
  EXPECT_EQ(parse_family("LlamaForCausalLM", both, {"rope_parameters.factor=4"})->rope.factor, 4);
}

TEST(ConfigReference, NamesOfLayers) {
  EXPECT_EQ(layer_name("model.layers.61.eh_proj.weight").layer, 61);
  EXPECT_EQ(layer_name("model.layers.61.eh_proj.weight").rest, "eh_proj.weight");
  for (const char* other :
       {"model.layers.x.a", "model.layers.01.a", "model.layers.", "model.layers.9999999999.a", "lm_head"})
    EXPECT_EQ(layer_name(other).layer, -1) << other;
}

}  // namespace
}  // namespace reprise::checkpoint::config_reference_test
