// Listings of hubs, and which files make up a model.
#include "hub/choice.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "folder.h"
#include "hub/companions.h"

namespace reprise::hub::choice_test {
namespace {

Listing listing_of(const std::vector<std::string>& paths) {
  Listing l;
  l.commit = std::string(40, 'a');
  uint64_t size = 1000;
  for (const std::string& p : paths) l.files.push_back({p, size += 1000, std::string(64, 'b'), ""});
  return l;
}

std::vector<std::string> paths_of(const Choice& c) {
  std::vector<std::string> out;
  for (const RepoFile& f : c.files) out.push_back(f.path);
  return out;
}

std::string chosen(const std::vector<std::string>& paths, const std::string& file) {
  const auto c = choose_files(listing_of(paths), file, "org/name");
  return c ? c->gguf : "error: " + c.status().message();
}

TEST(Listings, OfHuggingFaceTellSizesAndHashes) {
  const std::string sha256(64, 'c'), sha1(40, 'd'), commit(40, 'a');
  const Json j = {{"sha", commit},
                  {"siblings",
                   {{{"rfilename", "config.json"}, {"size", 716}, {"blobId", sha1}},
                    {{"rfilename", "model.safetensors"},
                     {"size", 134},
                     {"blobId", sha1},
                     {"lfs", {{"sha256", sha256}, {"size", 5'000'000'000}, {"pointerSize", 134}}}}}}};
  const auto l = parse_hugging_face_listing(j.dump(), "hub");
  ASSERT_TRUE(l.is_ok()) << l.status().message();
  EXPECT_EQ(l->commit, commit);
  ASSERT_EQ(l->files.size(), 2u);
  EXPECT_EQ(l->files[0].etag(), sha1);
  EXPECT_EQ(l->files[1].etag(), sha256);
  EXPECT_EQ(l->files[1].size, 5'000'000'000u);
  EXPECT_TRUE(l->told_sizes);
}

TEST(Listings, NamesThatLeadOutAreLeftOut) {
  Json files = Json::array();
  for (const char* name : {"../../.ssh/authorized_keys", "/etc/passwd", "a/../../b", "x\n.json", "ok.json"})
    files.push_back({{"rfilename", name}, {"size", 1}, {"blobId", std::string(40, 'd')}});
  const auto l = parse_hugging_face_listing(Json{{"sha", std::string(40, 'a')}, {"siblings", files}}.dump(), "hub");
  ASSERT_TRUE(l.is_ok()) << l.status().message();
  ASSERT_EQ(l->files.size(), 1u);
  EXPECT_EQ(l->files[0].path, "ok.json");
  EXPECT_EQ(l->refused, 4u);
  EXPECT_EQ(l->first_refused, "../../.ssh/authorized_keys");
}

TEST(Listings, OfAnotherFormAreErrorsThatNameThePlace) {
  const std::string commit(40, 'a');
  const std::vector<std::pair<std::string, std::string>> cases{
      {"<html>", "hub: "},
      {"[]", "hub: a JSON object was expected"},
      {"{}", "hub: \"sha\" is no commit"},
      {R"({"sha": "../../x", "siblings": []})", "hub: \"sha\" is no commit"},
      {R"({"sha": ")" + commit + R"("})", "hub: \"siblings\" is no list"},
      {R"({"sha": ")" + commit + R"(", "siblings": [7]})", "has no \"rfilename\""},
      {R"({"sha": ")" + commit + R"(", "siblings": [{"rfilename": "a", "size": -1}]})", "the size of \"a\""},
      {R"({"sha": ")" + commit + R"(", "siblings": [{"rfilename": "a", "size": 1e30}]})", "the size of \"a\""},
  };
  for (const auto& [text, part] : cases) {
    const auto l = parse_hugging_face_listing(text, "hub");
    ASSERT_FALSE(l.is_ok()) << text;
    EXPECT_TRUE(holds(l.status().message(), part)) << l.status().message();
  }
  EXPECT_TRUE(holds(parse_modelscope_listing(R"({"Message": "no such model"})", "hub").status().message(),
                    "hub: no list of files: no such model"));
  EXPECT_TRUE(holds(parse_index_of_shards(R"({"weight_map": {"a": "../../x"}})", "index").status().message(), "index"));
}

TEST(Choices, OfSafetensorsAreWhatIsRead) {
  const auto c = choose_files(
      listing_of({"README.md", "config.json", "flax_model.msgpack", "generation_config.json", "model.safetensors",
                  "onnx/model.onnx", "onnx/config.json", "original/consolidated.00.pth", "pytorch_model.bin",
                  "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "consolidated.safetensors"}),
      "", "org/name");
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(paths_of(*c),
            (std::vector<std::string>{"config.json", "generation_config.json", "tokenizer.json",
                                      "tokenizer_config.json", "chat_template.jinja", "model.safetensors"}));
  EXPECT_EQ(c->gguf, "");
}

// A repository is what quantize copies, and config.json and the weights.
TEST(Choices, OfSafetensorsTakeEveryCompanion) {
  const std::vector<std::string> taken{"additional_chat_templates/rag.jinja",
                                       "chat_template.json",
                                       "1_Pooling/config.json",
                                       "2_Dense/config.json",
                                       "2_Dense/model.safetensors",
                                       "modules.json",
                                       "preprocessor_config.json",
                                       "video_preprocessor_config.json"};
  const std::vector<std::string> left{"additional_chat_templates/a/b.jinja",
                                      "additional_chat_templates/rag.txt",
                                      "other/chat_template.json",
                                      "Pooling/config.json",
                                      "1_Pooling/a/config.json",
                                      "2_Dense/pytorch_model.bin",
                                      "1/config.json",
                                      "12",
                                      "",
                                      "_/config.json"};
  for (const std::string& path : taken) EXPECT_TRUE(is_companion(path)) << path;
  for (const std::string& path : left) EXPECT_FALSE(is_companion(path)) << path;
  for (const char* path : {"config.json", "model.safetensors", "quant_model_description.json"})
    EXPECT_FALSE(is_companion(path)) << path;
  std::vector<std::string> all = taken;
  all.insert(all.end(), left.begin(), left.end());
  all.insert(all.end(), {"config.json", "model.safetensors"});
  const auto c = choose_files(listing_of(all), "", "org/name");
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  std::vector<std::string> expected = taken;
  expected.insert(expected.end(), {"config.json", "model.safetensors"});
  EXPECT_EQ(paths_of(*c), expected);
}

TEST(Choices, OfShardsFollowTheIndex) {
  const Listing l = listing_of({"config.json", "consolidated.safetensors", "model-00001-of-00002.safetensors",
                                "model-00002-of-00002.safetensors", "model.safetensors.index.json"});
  auto c = choose_files(l, "", "org/name");
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->index, "model.safetensors.index.json");
  const auto shards = parse_index_of_shards(
      R"({"weight_map": {"a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"}})", "index");
  ASSERT_TRUE(add_shards(*c, l, *shards, "org/name").is_ok());
  EXPECT_EQ(paths_of(*c),
            (std::vector<std::string>{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors"}));
  EXPECT_TRUE(holds(add_shards(*c, l, {"model-00009.safetensors"}, "org/name").message(),
                    "org/name: model.safetensors.index.json names \"model-00009.safetensors\", which is not there"));
}

TEST(Choices, OfModelSlimTakeItsDescription) {
  const auto c = choose_files(listing_of({"config.json", "quant_model_description_w8a8.json",
                                          "quant_model_weight_w8a8.safetensors", "tokenizer.json"}),
                              "", "org/name");
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(paths_of(*c), (std::vector<std::string>{"config.json", "quant_model_description_w8a8.json",
                                                    "tokenizer.json", "quant_model_weight_w8a8.safetensors"}));
}

TEST(Choices, TagsOfGgufFilesAreRead) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"Qwen3-0.6B-Q4_K_M.gguf", "Q4_K_M"},
      {"SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"},
      {"llama-2-7b.q8_0.gguf", "q8_0"},
      {"Model-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
      {"Model-IQ2_XXS.gguf", "IQ2_XXS"},
      {"model-f16.gguf", "f16"},
      {"BF16/Model-BF16-00001-of-00002.gguf", "BF16"},
      {"Q8_0/model-00001-of-00002.gguf", "Q8_0"},
      {"gpt-oss-20b-mxfp4.gguf", "mxfp4"},
      {"Model-Q4_K_M.imat.gguf", "Q4_K_M"},
      {"Qwen2.5-Coder.gguf", ""},
      {"ggml-model.gguf", ""},
  };
  for (const auto& [path, tag] : cases) EXPECT_EQ(gguf_tag(path), tag) << path;
}

TEST(Choices, OfGgufFilesGoByRuleNameOrTag) {
  const std::vector<std::string> usual{"README.md",   "m-Q2_K.gguf",     "m-Q4_K_M.gguf",
                                       "m-Q8_0.gguf", "mmproj-f16.gguf", "imatrix.gguf"};
  EXPECT_EQ(chosen(usual, ""), "m-Q4_K_M.gguf");
  EXPECT_EQ(chosen(usual, "Q8_0"), "m-Q8_0.gguf");
  EXPECT_EQ(chosen(usual, "q8_0"), "m-Q8_0.gguf");
  EXPECT_EQ(chosen(usual, "m-Q2_K.gguf"), "m-Q2_K.gguf");
  EXPECT_EQ(chosen(usual, "m-Q2_K"), "m-Q2_K.gguf");
  EXPECT_EQ(chosen({"m-Q2_K.gguf", "m-Q8_0.gguf"}, ""), "m-Q8_0.gguf");
  EXPECT_EQ(chosen({"m-Q2_K.gguf", "config.json"}, ""), "m-Q2_K.gguf");
  EXPECT_EQ(chosen(usual, "Q5_K_M"),
            "error: org/name has no GGUF file \"Q5_K_M\"; it has m-Q2_K.gguf (3 kB), m-Q4_K_M.gguf (4 kB), "
            "m-Q8_0.gguf (5 kB)");
  EXPECT_EQ(chosen({"m-Q2_K.gguf", "m-Q3_K.gguf"}, ""),
            "error: org/name has several GGUF files; choose one, as org/name:Q2_K: m-Q2_K.gguf (2 kB), m-Q3_K.gguf (3 "
            "kB)");
  // Two models in one repository, or two mixtures of one.
  EXPECT_EQ(chosen({"a-Q4_0.gguf", "b-Q4_0.gguf"}, "Q4_0"),
            "error: org/name: \"Q4_0\" fits several files; give one of these names: a-Q4_0.gguf (2 kB), b-Q4_0.gguf (3 "
            "kB)");
  EXPECT_EQ(chosen({"m-Q4_K_XL.gguf", "m-UD-Q4_K_XL.gguf"}, "Q4_K_XL"), "m-Q4_K_XL.gguf");
  EXPECT_EQ(chosen({"m-Q8_0.gguf", "m-UD-Q4_K_XL.gguf"}, "q4_k_xl"), "m-UD-Q4_K_XL.gguf");
  EXPECT_EQ(chosen({"x/m-Q8_0.gguf", "y/m-Q8_0.gguf"}, "y/m-Q8_0.gguf"), "y/m-Q8_0.gguf");
}

TEST(Choices, PartsOfASplitFileAreOne) {
  const std::vector<std::string> parts{"Q8_0/m-Q8_0-00001-of-00003.gguf", "Q8_0/m-Q8_0-00002-of-00003.gguf",
                                       "Q8_0/m-Q8_0-00003-of-00003.gguf"};
  const auto c = choose_files(listing_of(parts), "Q8_0", "org/name");
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->gguf, parts[0]);
  EXPECT_EQ(paths_of(*c), parts);
  for (const char* name : {"m-Q8_0", "m-Q8_0.gguf", "m-Q8_0-00002-of-00003.gguf", "Q8_0/m-Q8_0", ""})
    EXPECT_EQ(chosen(parts, name), parts[0]) << name;
  EXPECT_EQ(chosen({parts[0], parts[2]}, "Q8_0"),
            "error: org/name: " + parts[0] + " announces 3 parts, but 2 are there");
}

TEST(Choices, WithoutWeightsSayWhatThereIs) {
  EXPECT_EQ(chosen({"config.json", "pytorch_model.bin"}, ""),
            "error: org/name has no weights that can be read here (model.safetensors, an index of shards, or GGUF); it "
            "has pytorch_model.bin (3 kB), config.json (2 kB)");
  EXPECT_TRUE(holds(chosen({"adapter_config.json", "model.safetensors"}, ""), "no config.json"));
  EXPECT_TRUE(holds(chosen({"config.json", "model.safetensors"}, "Q4_0"), "has no GGUF file, and so no \"Q4_0\""));
  EXPECT_TRUE(holds(chosen({}, ""), "it is empty"));
}

}  // namespace
}  // namespace reprise::hub::choice_test
