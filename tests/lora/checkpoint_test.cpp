// LoRA adapters as PEFT writes them, and one clear error for everything that is not one or cannot be applied.
#include "checkpoint/lora.h"
#include "support/temporary_path.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

namespace reprise::checkpoint::lora_test {
namespace {

std::string data(const std::string& name) { return std::string(REPRISE_SOURCE_DIR) + "/tests/data/lora/" + name; }

TEST(LoraTest, ReadsWhatPeftWrites) {
  auto style = LoraAdapter::open(data("llama_gqa3_tied.style"));
  ASSERT_TRUE(style.is_ok()) << style.status().message();
  EXPECT_EQ(style->modules().size(), 4u);
  EXPECT_EQ(style->rank(), 4);
  EXPECT_EQ(style->modules()[0].name, "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(style->modules()[0].in, 72);
  EXPECT_EQ(style->modules()[0].out, 216);
  EXPECT_EQ(style->modules()[0].scale, 2.0);
  EXPECT_EQ(style->config().base_model(), "llama_gqa3_tied");
  EXPECT_TRUE(style->config().unknown().empty());

  auto tone = LoraAdapter::open(data("llama_gqa3_tied.tone"));
  ASSERT_TRUE(tone.is_ok()) << tone.status().message();
  std::map<std::string, const LoraModule*> by_name;
  for (const LoraModule& m : tone->modules()) by_name[m.name] = &m;
  EXPECT_EQ(by_name.size(), 14u);
  EXPECT_EQ(by_name.at("model.layers.1.mlp.down_proj")->rank, 2);
  EXPECT_EQ(by_name.at("model.layers.0.self_attn.k_proj")->rank, 5);
  EXPECT_EQ(by_name.at("model.layers.1.self_attn.k_proj")->rank, 8);
  EXPECT_DOUBLE_EQ(by_name.at("model.layers.0.self_attn.o_proj")->scale, 20 / std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(by_name.at("model.layers.0.mlp.up_proj")->scale, 12 / std::sqrt(8.0));
  const auto numbers = tone->read(*by_name.at("model.layers.0.mlp.up_proj")->b);
  ASSERT_TRUE(numbers.is_ok());
  EXPECT_EQ(numbers->size(), 800u);

  auto regex = LoraAdapter::open(data("qwen3_tied.style"));
  ASSERT_TRUE(regex.is_ok()) << regex.status().message();
  EXPECT_EQ(regex->modules().size(), 6u);
}

Result<LoraConfig> parse(const std::string& more, const std::string& targets = R"("target_modules": ["q_proj"])") {
  return LoraConfig::parse("{" + targets + (more.empty() ? "" : ", ") + more + "}", "adapter_config.json");
}

TEST(LoraTest, TargetsAreMatchedAsPeftDoes) {
  const auto names = parse("", R"("target_modules": ["q_proj", "mlp.up_proj"])");
  ASSERT_TRUE(names.is_ok());
  EXPECT_TRUE(names->targets("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(names->targets("q_proj"));
  EXPECT_TRUE(names->targets("model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(names->targets("model.layers.0.other.up_proj"));
  EXPECT_FALSE(names->targets("model.layers.0.self_attn.my_q_proj"));
  const auto regex = parse("", R"("target_modules": ".*layers\\.1\\..*_proj|x")");
  ASSERT_TRUE(regex.is_ok());
  EXPECT_TRUE(regex->targets("model.layers.1.mlp.up_proj"));
  EXPECT_TRUE(regex->targets("x"));
  EXPECT_FALSE(regex->targets("xy"));
  EXPECT_FALSE(regex->targets("model.layers.1.mlp.up_proj_too"));
  const auto all = parse("", R"("target_modules": "all-linear")");
  ASSERT_TRUE(all.is_ok());
  EXPECT_TRUE(all->targets("model.layers.0.mlp.up_proj"));
}

TEST(LoraTest, TheFirstPatternOfTheFileCounts) {
  const auto c = parse(R"("r": 4, "lora_alpha": 2, "rank_pattern": {"z.q_proj": 8, "q_proj": 16, "a.*": 2})");
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->rank_of("model.z.q_proj"), 8);
  EXPECT_EQ(c->rank_of("a.q_proj"), 16);
  EXPECT_EQ(c->rank_of("model.a.b"), 2);
  EXPECT_EQ(c->rank_of("model.my_q_proj"), 4);
  EXPECT_DOUBLE_EQ(c->scale_of("model.z.q_proj"), 0.25);
}

TEST(LoraTest, KeysThatAreNotKnownAreTold) {
  const auto c = parse(R"("new_thing": 3, "other_thing": null, "third": {}, "qalora_group_size": 16)");
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->unknown(), std::vector<std::string>{"new_thing"});
}

TEST(LoraTest, OneErrorForEachFaultOfTheConfiguration) {
  const std::map<std::string, std::string> faults{
      {R"("use_dora": true)", "adapter_config.json: use_dora is true; allowed: false; DoRA cannot be applied"},
      {R"("bias": "lora_only")", "bias is \"lora_only\"; allowed: \"none\""},
      {R"("modules_to_save": ["lm_head"])", "modules_to_save is [\"lm_head\"]; allowed: null, []"},
      {R"("fan_in_fan_out": true)", "fan_in_fan_out is true"},
      {R"("layer_replication": [[0, 2]])", "layer_replication"},
      {R"("trainable_token_indices": [1])", "trainable_token_indices"},
      {R"("peft_type": "IA3")", "peft_type is \"IA3\"; allowed: \"LORA\""},
      {R"("r": 0)", "r is 0; allowed: integers from 1 to 4096"},
      {R"("r": "8")", "r is \"8\""},
      {R"("lora_alpha": "x")", "lora_alpha is \"x\""},
      {R"("use_rslora": 1)", "use_rslora is 1; allowed: true, false"},
      {R"("rank_pattern": {"q": 1.5})", "rank_pattern \"q\": allowed: integers from 1 to 4096"},
      {R"("rank_pattern": {"(": 2})", "rank_pattern \"(\": "},
      {R"("alpha_pattern": [1])", "alpha_pattern: allowed: an object"},
      {R"("r": 1, "r": 2)", "twice"}};
  for (const auto& [text, message] : faults) {
    const auto c = parse(text);
    ASSERT_FALSE(c.is_ok()) << text;
    EXPECT_NE(c.status().message().find(message), std::string::npos) << c.status().message();
  }
  for (const char* targets : {R"("r": 1)", R"("target_modules": [])", R"("target_modules": 3)",
                              R"("target_modules": [""])", R"("target_modules": "(")"})
    EXPECT_FALSE(parse("", targets).is_ok()) << targets;
}

struct Matrix {
  std::string name;
  int64_t rows, columns;
  DType dtype = DType::F32;
};

// An adapter of these tensors, written to a file of its own: rank 2, for q_proj.
Result<LoraAdapter> adapter_of(const std::vector<Matrix>& matrices, float number = 1) {
  const std::string path = testing_support::temporary_path("lora_test.safetensors");
  std::vector<std::vector<float>> numbers;
  for (const Matrix& m : matrices) numbers.emplace_back(static_cast<size_t>(m.rows * m.columns), number);
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < matrices.size(); ++i)
    tensors.push_back({matrices[i].name,
                       matrices[i].dtype,
                       {matrices[i].rows, matrices[i].columns},
                       std::span(reinterpret_cast<const uint8_t*>(numbers[i].data()), numbers[i].size() * 4)});
  RETURN_IF_ERROR(write_safetensors(path, tensors));
  ASSIGN_OR_RETURN(LoraConfig config, parse(R"("r": 2)"));
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  return LoraAdapter::from(std::move(config), std::move(file));
}

TEST(LoraTest, OneErrorForEachFaultOfTheTensors) {
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.";
  const std::string a = q + "lora_A.weight", b = q + "lora_B.weight";
  EXPECT_TRUE(adapter_of({{a, 2, 8}, {b, 6, 2}}).is_ok());
  const std::vector<std::pair<std::vector<Matrix>, std::string>> faults{
      {{{a, 2, 8}}, "model.layers.0.self_attn.q_proj has lora_A and no lora_B"},
      {{{b, 6, 2}}, "has lora_B and no lora_A"},
      {{{a, 3, 8}, {b, 6, 3}}, "lora_A is [3, 8] and lora_B [6, 3]; adapter_config.json gives the rank 2"},
      {{{a, 2, 8}, {b, 6, 3}}, "gives the rank 2"},
      {{{a, 2, 8}, {b, 6, 2}, {q + "lora_magnitude_vector", 1, 6}}, "DoRA cannot be applied"},
      {{{"base_model.model.model.embed_tokens.lora_embedding_A", 2, 8}}, "adapters of embeddings cannot be applied"},
      {{{q + "lora_B.bias", 1, 6}}, "allowed: base_model.model.MODULE.lora_A.weight"},
      {{{"q_proj.lora_A.weight", 2, 8}}, "allowed: base_model.model.MODULE.lora_A.weight"},
      {{{a, 2, 8, DType::I32}, {b, 6, 2}}, "allowed: tensors of F32, F16, BF16"},
      {{{"base_model.model.k_proj.lora_A.weight", 2, 8}, {"base_model.model.k_proj.lora_B.weight", 6, 2}},
       "k_proj, which target_modules of adapter_config.json does not name"},
      {{}, "holds no tensors"}};
  for (const auto& [matrices, message] : faults) {
    const auto made = adapter_of(matrices);
    ASSERT_FALSE(made.is_ok()) << message;
    EXPECT_NE(made.status().message().find(message), std::string::npos) << made.status().message();
  }
  const auto infinite = adapter_of({{a, 2, 8}, {b, 6, 2}}, INFINITY);
  ASSERT_TRUE(infinite.is_ok());
  const auto numbers = infinite->read(*infinite->modules()[0].a);
  ASSERT_FALSE(numbers.is_ok());
  EXPECT_NE(numbers.status().message().find("16 numbers are NaN or infinite"), std::string::npos);
}

TEST(LoraTest, FoldersThatAreNone) {
  namespace fs = std::filesystem;
  const fs::path folder = testing_support::temporary_path("lora_test_folder");
  fs::remove_all(folder);
  EXPECT_EQ(LoraAdapter::open(folder.string()).status().code(), Code::NotFound);
  fs::create_directories(folder);
  EXPECT_FALSE(LoraAdapter::open(folder.string()).is_ok());
  std::ofstream(folder / "adapter_config.json") << R"({"target_modules": ["q_proj"]})";
  EXPECT_FALSE(LoraAdapter::open(folder.string()).is_ok());
  std::ofstream(folder / "adapter_model.bin") << "x";
  const auto pickle = LoraAdapter::open(folder.string());
  EXPECT_NE(pickle.status().message().find("is a pickle"), std::string::npos) << pickle.status().message();
  fs::remove_all(folder);
}

}  // namespace
}  // namespace reprise::checkpoint::lora_test
