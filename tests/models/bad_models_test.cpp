// What is wrong with a model folder is one clear error that names the place.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/helpers.h"
#include "support/tiny_models.h"

namespace reprise::bad_models_test {
namespace {

Status open_with(const std::string& path, std::vector<std::string> overrides) {
  auto platform = make_platform({DeviceKind::Cpu, "auto", 1, false});
  EXPECT_TRUE(platform.is_ok());
  engine::EngineOptions o;
  o.model_path = path;
  o.overrides = std::move(overrides);
  o.max_total_tokens = 256;
  return engine::Engine::create(o, std::move(*platform)).status();
}

void expect_parts(const Status& s, const std::vector<std::string>& parts) {
  ASSERT_FALSE(s.is_ok());
  for (auto& part : parts) EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
}

TEST(BadModels, MissingTensorsAreListedOnce) {
  expect_parts(open_with(testing_support::tiny_model_path("llama_bias"), {"num_hidden_layers=3"}),
               {"16 missing", "model.layers.2.self_attn.q_proj.weight", "and 8 more"});
}

TEST(BadModels, TensorsLeftOverAreListedOnce) {
  expect_parts(open_with(testing_support::tiny_model_path("llama_bias"), {"num_hidden_layers=1"}),
               {"16 left over", "model.layers.1.", "and 8 more"});
}

TEST(BadModels, WrongShapesNameTheTensorAndBothShapes) {
  expect_parts(open_with(testing_support::tiny_model_path("llama_bias"), {"intermediate_size=7"}),
               {"mlp.", "has the shape [", "asks for [7"});
}

TEST(BadModels, UnknownArchitecturesListTheKnownOnes) {
  expect_parts(open_with(testing_support::tiny_model_path("llama_bias"), {"architectures=[\"FooForCausalLM\"]"}),
               {"FooForCausalLM", "LlamaForCausalLM, InternLM3ForCausalLM, Llama4ForCausalLM"});
}

TEST(BadModels, ArchitecturesThatAreNotHereNameTheNearestAndWhatItLacks) {
  expect_parts(
      open_with(testing_support::tiny_model_path("llama_bias"), {"architectures=[\"KimiLinearForCausalLM\"]"}),
      {"architecture \"KimiLinearForCausalLM\" is not known; nearest: DeepseekV3ForCausalLM; missing: Kimi delta",
       "; known: LlamaForCausalLM"});
  expect_parts(open_with(testing_support::tiny_model_path("llama_bias"),
                         {"architectures=[\"Gemma3nForSomething\"]", "model_type=gemma3n"}),
               {"nearest: Gemma3ForCausalLM; missing: several streams"});
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("reprise_missing_{}.gguf", ::getpid())).string();
  for (const auto& [name, words] : std::vector<std::pair<std::string, std::string>>{
           {"gptneox", "\"gptneox\"; nearest: Starcoder2ForCausalLM; missing: attention and MLP side by side"},
           {"kimi-linear", "\"kimi-linear\"; nearest: DeepseekV3ForCausalLM; missing: Kimi delta attention"},
           {"foo", "\"foo\"; known: llama"}}) {
    checkpoint::GgufBuilder file;
    file.str("general.architecture", name).f32_tensor("token_embd.weight", {1, 1}, {1});
    std::ofstream(path, std::ios::binary) << file.finish();
    expect_parts(open_with(path, {}), {words});
  }
  std::filesystem::remove(path);
}

TEST(BadModels, WhatIsNearestIsHereAndWhatIsMissingIsNot) {
  const checkpoint::Families known = models::families();
  for (const checkpoint::MissingFamily& m : known.missing) {
    EXPECT_NE(known.find(m.nearest), nullptr) << m.nearest;
    EXPECT_EQ(known.find(m.architecture), nullptr) << m.architecture;
    for (const checkpoint::Family* f : known.list)
      EXPECT_TRUE(m.gguf.empty() || (f->gguf.name != m.gguf && f->gguf.other_name != m.gguf)) << m.gguf;
  }
  EXPECT_EQ(known.nearest_to("LlamaForSomething", "llama"), "") << "a type that is here";
}

TEST(BadModels, NanWeightsNameTheTensor) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("reprise_nan_{}", ::getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::copy(testing_support::tiny_model_path("llama_mha_untied"), folder);
  auto file = checkpoint::SafetensorsFile::open((folder / "model.safetensors").string());
  ASSERT_TRUE(file.is_ok());
  const auto* t = file->find("model.layers.0.mlp.up_proj.weight");
  ASSERT_TRUE(t);
  {
    std::fstream out(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(t->offset + 8));
    const float nan = std::nanf("");
    out.write(reinterpret_cast<const char*>(&nan), 4);
  }
  expect_parts(open_with(folder.string(), {}), {"model.layers.0.mlp.up_proj.weight", "NaN"});
  std::filesystem::remove_all(folder);
}

TEST(BadModels, AContextBeyondTheModelsNamesBoth) {
  auto platform = make_platform({DeviceKind::Cpu, "auto", 1, false});
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path("llama_bias");
  o.context_length = 100000;
  expect_parts(engine::Engine::create(o, std::move(*platform)).status(), {"`context_length` 100000", "`override`"});
}

}  // namespace
}  // namespace reprise::bad_models_test
