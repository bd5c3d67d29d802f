// Configurations against transformers (tests/data/config): rotary frequencies of every family, architectures that are
// not supported, and fields of other families under an architecture of ours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "models/foreign_fields.h"
#include "models/rope.h"
#include "support/goldens.h"

namespace reprise::models::config_cases_test {
namespace {

Json read_cases(const std::string& name) { return testing_support::golden_json("config/" + name); }

// Frequencies at a position: behind the window of dynamic NTK they depend on it.
std::vector<double> frequencies(const nn::RopeSpec& spec, int64_t position) {
  if (spec.ntk_factor == 0 || position < spec.ntk_window) return spec.inv_freq;
  const double dim = static_cast<double>(spec.dim);
  const double length = static_cast<double>(position + 1) / static_cast<double>(spec.ntk_window);
  const double base = spec.ntk_base * std::pow(spec.ntk_factor * length - (spec.ntk_factor - 1), dim / (dim - 2));
  std::vector<double> out;
  for (int64_t i = 0; i < spec.dim; i += 2) out.push_back(1.0 / std::pow(base, static_cast<double>(i) / dim));
  return out;
}

TEST(ConfigCases, RotaryFrequenciesAreThoseOfTheReference) {
  const Json cases = read_cases("rope.json");
  ASSERT_GT(cases.size(), 150u);
  size_t refused = 0;
  for (const Json& c : cases) {
    SCOPED_TRACE(c["config"].dump());
    const auto fields = checkpoint::parse_model_config(c["config"], "config.json", {}, models::families(true));
    if (c.contains("error")) {
      EXPECT_FALSE(fields.is_ok());
      ++refused;
      continue;
    }
    ASSERT_TRUE(fields.is_ok()) << fields.status().message();
    const ModelConfig config{*fields, {}, {}};
    const nn::RopeSpec spec = rope_spec(config);
    EXPECT_NEAR(spec.scale, c["scale"].get<double>(), 1e-6);
    const std::vector<double> freq = frequencies(spec, c.value("late", int64_t{0}));
    ASSERT_EQ(freq.size(), c["inv_freq"].size());
    for (size_t i = 0; i < freq.size(); ++i) EXPECT_NEAR(freq[i] / c["inv_freq"][i].get<double>(), 1.0, 2e-5) << i;
    if (!c.contains("score_scale")) continue;
    const auto& l = *fields->latent;
    const double size = static_cast<double>(l.qk_nope_head_dim + l.qk_rope_head_dim);
    EXPECT_NEAR(latent_score_factor(config) / std::sqrt(size), c["score_scale"].get<double>(), 1e-9);
  }
  EXPECT_GT(refused, 20u);
}

TEST(ConfigCases, UnlistedArchitecturesAreNamedFirst) {
  const Json cases = read_cases("architectures.json");
  ASSERT_GE(cases.size(), 35u);
  const auto known = families();
  for (const Json& config : cases) {
    const auto name = config["architectures"][0].get<std::string>();
    for (const bool by_type : {false, true}) {
      Json given = config;
      if (by_type && config["model_type"] == "ministral") continue;  // Mistral by another name
      if (by_type) given.erase("architectures");
      const Status s = checkpoint::parse_model_config(given, "config.json", {}, known).status();
      ASSERT_FALSE(s.is_ok()) << name;
      EXPECT_EQ(s.code(), Code::Unsupported);
      const std::string expected =
          by_type ? fmt::format("model_type \"{}\" is not known", config["model_type"].get<std::string>())
                  : fmt::format("architecture \"{}\" is not known", name);
      EXPECT_NE(s.message().find(expected), std::string::npos) << s.message();
      for (const std::string_view architecture : architectures())
        EXPECT_NE(s.message().find(architecture), std::string::npos) << s.message();
      EXPECT_EQ(s.message().find('\n'), std::string::npos);
    }
  }
}

Status check(std::string_view architecture, const std::string& key, const Json& value, std::string* notices = nullptr) {
  Json config = {{"architectures", {architecture}}, {"num_experts_per_tok", 2}, {"num_labels", 1}, {"hidden_size", 256},
                 {"num_attention_heads", 4},        {"num_key_value_heads", 4}};
  const checkpoint::Family& of = (*find_model(architecture))->family;
  if (of.vision)  // heads of the usual sections of positions
    config.update({{"vision_config", Json::object()}, {"head_dim", of.partial_rotation ? 256 : 128}});
  if (architecture == "NemotronHForCausalLM") config["hybrid_override_pattern"] = "M*-";
  if (architecture == "Llama4ForCausalLM") config["num_experts_per_tok"] = 1;
  if (architecture == "Ministral3ForCausalLM")
    config["rope_parameters"] = {{"llama_4_scaling_beta", 0.1}, {"original_max_position_embeddings", 16384}};
  config[key] = value;
  auto fields = checkpoint::parse_model_config(config, "config.json", {}, models::families(true));
  if (!fields.is_ok()) return fields.status();
  const auto spec = find_model(architecture);
  EXPECT_TRUE(spec.is_ok());
  const Status s = check_fields(**spec, *fields);
  if (notices)
    for (const std::string& n : fields->notices) *notices += n + "\n";
  return s;
}

TEST(ConfigCases, FieldsThatChangeTheMathsAreErrorsInEveryFamily) {
  const std::pair<std::string, Json> foreign[] = {{"attn_logit_softcapping", 50.0},
                                                  {"final_logit_softcapping", 30.0},
                                                  {"logits_soft_cap", 30.0},
                                                  {"router_logit_softcapping", 30},
                                                  {"logit_scale", 0.0625},
                                                  {"logits_scaling", 8.0},
                                                  {"embedding_multiplier", 12.0},
                                                  {"residual_multiplier", 0.22},
                                                  {"attention_multiplier", 0.01},
                                                  {"lm_head_multiplier", 0.04},
                                                  {"scale_emb", 12},
                                                  {"scale_depth", 1.4},
                                                  {"dim_model_base", 128},
                                                  {"query_pre_attn_scalar", 144},
                                                  {"no_rope_layers", {1, 0}},
                                                  {"no_rope_layer_interval", 4},
                                                  {"nope_layer_interval", 4},
                                                  {"attention_chunk_size", 8192},
                                                  {"attn_temperature_tuning", true},
                                                  {"clip_qkv", 8.0},
                                                  {"use_parallel_residual", true},
                                                  {"alibi", true},
                                                  {"rotary_pct", 0.25},
                                                  {"rotary_dim", 32},
                                                  {"position_embedding_type", "nope"},
                                                  {"sliding_window_pattern", 6},
                                                  {"qk_norm_type", "olmo"},
                                                  {"add_swa_attention_sink_bias", true},
                                                  {"use_bidirectional_attention", true},
                                                  {"is_causal", false},
                                                  {"hidden_activation", "gelu_pytorch_tanh"},
                                                  {"swiglu_limit", 7.0},
                                                  {"mup_base_width", 256},
                                                  {"attn_output_gate", true},
                                                  {"index_topk", 2048}};
  for (const std::string_view family : architectures()) {
    const ModelSpec& spec = **find_model(family);
    for (const auto& [key, value] : foreign) {
      const auto& own = spec.family.fields;  // what a family goes by, it may be told
      if (std::find(own.begin(), own.end(), key) != own.end() || key == spec.family.activation_key) continue;
      const Status s = check(family, key, value);
      ASSERT_FALSE(s.is_ok()) << family << " " << key;
      EXPECT_NE(s.message().find(key + " is "), std::string::npos) << s.message();
      EXPECT_NE(s.message().find("allowed: null"), std::string::npos) << s.message();
      const Status without = check(family, key, nullptr);
      EXPECT_TRUE(without.is_ok()) << family << " " << key << ": " << without.message();
    }
    if (std::find(spec.family.fields.begin(), spec.family.fields.end(), "use_qk_norm") != spec.family.fields.end())
      continue;
    const bool qk_norm = spec.qk_norm;
    EXPECT_EQ(check(family, "use_qk_norm", true).is_ok(), qk_norm) << family;
    EXPECT_EQ(check(family, "qk_layernorm", false).is_ok(), !qk_norm) << family;
  }
}

TEST(ConfigCases, FieldsOfOneFamilyThatChangeTheMathsAreErrors) {
  const auto refused = [](std::string_view family, const std::string& key, const Json& value, std::string_view words) {
    const Status s = check(family, key, value);
    ASSERT_FALSE(s.is_ok()) << family << " " << key << ": " << value;
    EXPECT_NE(s.message().find(words), std::string::npos) << s.message();
  };
  const auto passes = [](std::string_view family, const std::string& key, const Json& value) {
    const Status s = check(family, key, value);
    EXPECT_TRUE(s.is_ok()) << family << ": " << s.message();
  };
  refused("Starcoder2ForCausalLM", "norm_type", "rms_norm", "norm_type is \"rms_norm\"; allowed: \"layer_norm\"");
  refused("Starcoder2ForCausalLM", "mlp_type", "gated", "mlp_type is \"gated\"; allowed: \"default\"");
  passes("Starcoder2ForCausalLM", "norm_type", "layer_norm");
  refused("MiniMaxM2ForCausalLM", "attn_type_list", {0, 1}, "attn_type_list is [0,1]; allowed: null, a list of 1");
  passes("MiniMaxM2ForCausalLM", "attn_type_list", {1, 1});
  for (const char* family : {"Qwen3VLForConditionalGeneration", "Qwen3_5ForCausalLM"}) {
    const Json sections = family[5] == '_' ? Json{11, 11, 10} : Json{24, 20, 20};
    Json rope = {{"rope_type", "default"}, {"mrope_section", sections}, {"mrope_interleaved", false}};
    refused(family, "rope_scaling", rope, "rope_scaling.mrope_interleaved is false; allowed: null, true");
    rope["mrope_interleaved"] = true;
    passes(family, "rope_scaling", rope);
  }
  refused("Qwen2_5_VLForConditionalGeneration", "rope_scaling",
          {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}, {"mrope_interleaved", true}},
          "rope_scaling.mrope_interleaved is true; allowed: null, false");
  for (const char* family : {"LlamaForCausalLM", "Qwen3ForCausalLM", "Gemma3ForCausalLM"}) {
    refused(family, "rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"warp", 3}},
            "rope_scaling.warp is 3; allowed: null, as the keys of rope_type linear are factor, ");
    passes(family, "rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"beta_fast", 32}, {"warp", nullptr}});
  }
}

// Also where layers are listed, none of which slides.
TEST(ConfigCases, WindowsOfFamiliesWithoutThemAreErrors) {
  const auto layers = [](int64_t window) {
    return Json{{"architectures", {"Qwen3NextForCausalLM"}},
                {"num_hidden_layers", 2},
                {"layer_types", {"linear_attention", "full_attention"}},
                {"max_position_embeddings", 4096},
                {"use_sliding_window", true},
                {"sliding_window", window}};
  };
  const auto parse = [](const Json& config) {
    return checkpoint::parse_model_config(config, "config.json", {}, models::families());
  };
  const Status s = parse(layers(512)).status();
  ASSERT_FALSE(s.is_ok());
  EXPECT_NE(s.message().find("sliding_window is 512; allowed: null with Qwen3NextForCausalLM, which has no window"),
            std::string::npos)
      << s.message();
  EXPECT_TRUE(parse(layers(4096)).is_ok()) << "as long as the context";
  Json off = layers(512);
  off["use_sliding_window"] = false;
  EXPECT_TRUE(parse(off).is_ok());
}

TEST(ConfigCases, FieldsOfATowerThatNothingReadsAreErrors) {
  for (const char* family : {"Qwen2_5_VLForConditionalGeneration", "Qwen3VLForConditionalGeneration",
                             "Qwen3VLMoeForConditionalGeneration", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"}) {
    const auto with = [&](const char* key, const Json& value) {
      Json tower = Json::object();
      tower[key] = value;
      return check(family, "vision_config", tower);
    };
    const auto refused = [&](const char* key, const Json& value, std::string_view words) {
      const Status s = with(key, value);
      ASSERT_FALSE(s.is_ok()) << family << " " << key;
      EXPECT_NE(s.message().find(words), std::string::npos) << s.message();
    };
    refused("use_registers", true, "vision_config.use_registers is true; allowed: null");
    refused("num_attention_heads", 12, "vision_config.num_attention_heads is 12; allowed: null, 16");
    refused("in_chans", 1, "vision_config.in_chans is 1; allowed: null, 3");
    refused("rope_parameters", {{"rope_type", "axial"}, {"rope_theta", 100}}, "vision_config.rope_parameters is {");
    for (const auto& [key, value] : std::vector<std::pair<const char*, Json>>{
             {"use_registers", nullptr},
             {"in_chans", 3},
             {"num_attention_heads", 16},
             {"initializer_range", 0.02},
             {"_name_or_path", "x"},
             {"rope_parameters", {{"rope_type", "axial"}, {"rope_theta", 10000.0}}}})
      EXPECT_TRUE(with(key, value).is_ok()) << family << " " << key << ": " << with(key, value).message();
    const bool windows = std::string_view(family).starts_with("Qwen2_5");
    EXPECT_EQ(with("window_size", 112).is_ok(), windows);
    EXPECT_EQ(with("num_position_embeddings", 2304).is_ok(), !windows);
  }
}

TEST(ConfigCases, ValuesThatChangeNothingPass) {
  const std::pair<std::string, Json> neutral[] = {{"attn_logit_softcapping", 0},
                                                  {"logit_scale", 1.0},
                                                  {"residual_multiplier", 1},
                                                  {"query_pre_attn_scalar", 64},
                                                  {"attention_multiplier", 0.125},
                                                  {"no_rope_layers", {1, 1}},
                                                  {"position_embedding_type", "rope"},
                                                  {"rotary_pct", 1.0},
                                                  {"use_rope", true},
                                                  {"rope_interleaved", false},
                                                  {"ffn_dim_multiplier", 1.3},
                                                  {"attention_dropout", 0.1}};
  for (const auto& [key, value] : neutral) {
    std::string notices;
    const Status s = check("LlamaForCausalLM", key, value, &notices);
    EXPECT_TRUE(s.is_ok()) << s.message();
    EXPECT_EQ(notices, "") << key;
  }
  std::string notices;
  EXPECT_TRUE(check("MistralForCausalLM", "some_new_field", 3, &notices).is_ok());
  EXPECT_NE(notices.find("no effect: some_new_field"), std::string::npos) << notices;
  EXPECT_TRUE(check("MistralForCausalLM", "attention_bias", true, &notices).is_ok());
  EXPECT_NE(notices.find("no effect: attention_bias"), std::string::npos) << notices;
}

TEST(ConfigCases, RulesOfExpertsThatAFamilyDoesNotHave) {
  EXPECT_FALSE(check("LlamaForCausalLM", "num_local_experts", 8).is_ok());
  EXPECT_FALSE(check("MixtralForCausalLM", "norm_topk_prob", false).is_ok());
  EXPECT_FALSE(check("Qwen3MoeForCausalLM", "routed_scaling_factor", 2.5).is_ok());
  EXPECT_FALSE(check("Qwen3MoeForCausalLM", "scoring_func", "sigmoid").is_ok());
  EXPECT_FALSE(check("DeepseekV3ForCausalLM", "mlp_only_layers", {0}).is_ok());
  EXPECT_TRUE(check("Qwen3MoeForCausalLM", "shared_expert_intermediate_size", 0).is_ok());
  EXPECT_TRUE(check("Qwen3ForCausalLM", "norm_topk_prob", false).is_ok());
}

}  // namespace
}  // namespace reprise::models::config_cases_test
