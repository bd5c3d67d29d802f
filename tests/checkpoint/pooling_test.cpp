// Dense layers behind a pooling, as the modules of a folder and the tensors of a GGUF file have them.
#include "checkpoint/pooling.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/config.h"
#include "checkpoint/helpers.h"
#include "support/folder.h"

namespace reprise::checkpoint::pooling_test {
namespace {

Result<PoolingFields> read(const std::string& dense,
                           std::vector<std::string> kinds = {"Transformer", "Pooling", "Dense", "Normalize"}) {
  const testing_support::Folder folder;
  for (const char* module : {"1_Pooling", "2_Dense"}) std::filesystem::create_directory(folder / module);
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  if (!dense.empty()) folder.write("2_Dense/config.json", dense);
  Json modules = Json::array();
  for (const std::string& kind : kinds)
    modules.push_back({{"type", "sentence_transformers.models." + kind},
                       {"path", kind == "Pooling" ? "1_Pooling"
                                : kind == "Dense" ? "2_Dense"
                                                  : ""}});
  folder.write("modules.json", modules.dump());
  ModelConfigFields config;
  config.hidden_size = 24;
  config.vocab_size = 97;
  config.raw_json = Json::object();
  return read_pooling(folder.path(), config);
}

TEST(Pooling, DenseLayersStandBehindIt) {
  const auto tanh = read(R"({"in_features": 24, "out_features": 7})");
  ASSERT_TRUE(tanh.is_ok()) << tanh.status().message();
  ASSERT_EQ(tanh->dense.size(), 1u);
  EXPECT_EQ(tanh->dense[0].out, 7);
  EXPECT_TRUE(tanh->dense[0].tanh && tanh->dense[0].bias) << "as the module's class has it";
  EXPECT_TRUE(tanh->normalise);
  const auto plain = read(R"({"in_features": 24, "out_features": 24, "bias": false, )"
                          R"("activation_function": "torch.nn.modules.linear.Identity"})",
                          {"Transformer", "Pooling", "Dense", "Dense"});
  ASSERT_TRUE(plain.is_ok()) << plain.status().message();
  ASSERT_EQ(plain->dense.size(), 2u);
  EXPECT_FALSE(plain->dense[1].tanh || plain->dense[1].bias || plain->normalise);
  EXPECT_EQ(plain->dense[1].folder, "2_Dense");
}

TEST(Pooling, WhatDenseLayersCannotBeIsNamed) {
  expect_error(read("").status(), {"2_Dense/config.json", "the file is missing"});
  expect_error(read(R"({"in_features": 25, "out_features": 7})").status(), {"in_features is 25", "24"});
  expect_error(read(R"({"in_features": 24})").status(), {"out_features is missing"});
  expect_error(read(R"({"in_features": 24, "out_features": 7, "activation_function": "torch.nn.ReLU"})").status(),
               {"activation_function is \"torch.nn.ReLU\"", "Identity", "Tanh"});
  for (const std::vector<std::string>& kinds :
       {std::vector<std::string>{"Transformer", "Dense", "Pooling"}, {"Transformer", "Pooling", "Normalize", "Dense"}})
    expect_error(read(R"({"in_features": 24, "out_features": 7})", kinds).status(),
                 {"modules.json", "Dense behind Pooling and before Normalize"});
}

TEST(Pooling, DenseLayersOfGgufAreItsTensors) {
  const auto read_file = [](const GgufBuilder& b) {
    const std::string bytes = b.finish();
    auto file = GgufFile::parse(bytes_of(bytes), "t.gguf");
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    return read_pooling(*file);
  };
  const auto model = [] {
    return GgufBuilder()
        .str("general.architecture", "gemma-embedding")
        .u32("gemma-embedding.pooling_type", 1)
        .u32("gemma-embedding.embedding_length", 2);
  };
  const std::vector<float> six(6, 1.0f);
  const auto both =
      read_file(model().f32_tensor("dense_2.weight", {2, 3}, six).f32_tensor("dense_3.weight", {3, 2}, six));
  ASSERT_TRUE(both.is_ok()) << both.status().message();
  ASSERT_EQ(both->dense.size(), 2u);
  EXPECT_EQ(both->dense[0].out, 3);
  EXPECT_EQ(both->dense[1].out, 2);
  EXPECT_TRUE(read_file(model())->dense.empty());
  expect_error(read_file(model().f32_tensor("dense_3.weight", {2, 3}, six)).status(), {"t.gguf", "\"dense_2.weight\""});
  expect_error(read_file(model().f32_tensor("dense_2.weight", {3, 2}, six)).status(),
               {"t.gguf", "\"dense_2.weight\"", "2 columns"});
}

}  // namespace
}  // namespace reprise::checkpoint::pooling_test
