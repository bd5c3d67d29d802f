// `reprise quantize` as a person runs it: a folder that generates, and a report.
#include "byte_tokenizer.h"
#include "evaluation/text_file.h"
#include "run_binary.h"

namespace reprise::apps::quantize_test {
namespace {

using Words = std::vector<std::string>;

// The tiny model with a tokenizer of single bytes beside it.
void make_model(const Folder& folder) {
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy(model_folder("llama_mha_untied") + "/" + name, folder / name);
  folder.write("tokenizer.json", byte_tokenizer().dump());
  folder.write("text.txt", "It was the best of times, it was the worst of times, it was the age of wisdom.");
}

TEST(Quantize, WritesAFolderThatRuns) {
  const Folder folder;
  make_model(folder);
  for (const std::string more : {"", "--scheme static --format modelslim"}) {
    const std::string out = folder / (more.empty() ? "dynamic" : "static");
    const OrderedJson j = json_of(run_binary(
        fmt::format("quantize --json --model-path {0} --dtype bfloat16 --output {1} --calibration-file {0}/text.txt "
                    "--text-file {0}/text.txt --window 32 {2}",
                    folder.path(), out, more)));
    EXPECT_EQ(keys_of(j), (Words{"model", "output", "scheme", "format", "smooth", "bytes", "layers", "perplexity"}));
    EXPECT_EQ(keys_of(j["layers"][0]), (Words{"weight", "scheme", "weight_error", "output_error"}));
    EXPECT_EQ(j["layers"].size(), 14u);  // two layers of seven linears
    EXPECT_EQ(j["smooth"], 0.5);
    EXPECT_LT(std::abs(j["perplexity"]["change"].get<double>()), 0.05);
    EXPECT_EQ(parse_ordered_json(content_of(out + "/quantization_report.json"), "report")->dump(), j.dump());
    EXPECT_EQ(std::filesystem::exists(out + "/quant_model_description.json"), !more.empty());
    const OrderedJson run =
        json_of(run_binary("generate --json --prompt times --max-new-tokens 4 --ignore-eos --model-path " + out));
    EXPECT_EQ(run["output"]["token_ids"].size(), 4u);
    EXPECT_FALSE(run["output"]["text"].is_null());
  }
}

// Those that hub/companions.h lists, some in folders and behind links as in a cache; and of the other files none.
TEST(Quantize, KeepsWhatLiesBesideTheWeights) {
  const Folder folder, elsewhere;
  make_model(folder);
  const Words kept{"chat_template.json",     "chat_template.jinja",      "additional_chat_templates/rag.jinja",
                   "generation_config.json", "preprocessor_config.json", "modules.json",
                   "1_Pooling/config.json"};
  const Words left{"onnx/config.json", "README.md", "additional_chat_templates/notes.txt",
                   "quant_model_description.json"};
  for (const char* name : {"additional_chat_templates", "onnx"}) std::filesystem::create_directories(folder / name);
  elsewhere.write("config.json", R"({"pooling_mode": "lasttoken"})");
  std::filesystem::create_directory_symlink(elsewhere.path(), folder / "1_Pooling");
  for (const Words& names : {kept, left})
    for (const std::string& name : names)
      if (name != "1_Pooling/config.json") folder.write(name, name.ends_with(".jinja") ? "{{ messages }}" : "{}");
  folder.write("modules.json", "[]");
  std::filesystem::create_symlink(folder / "no_such_file", folder / "vocab.json");
  const std::string out = folder / "out";
  const Outcome o = run_binary("quantize --model-path " + folder.path() + " --output " + out);
  ASSERT_EQ(o.exit_code, 0) << o.err;
  for (const std::string& name : kept) EXPECT_EQ(content_of(out + "/" + name), content_of(folder / name)) << name;
  for (const std::string& name : left) EXPECT_FALSE(std::filesystem::exists(out + "/" + name)) << name;
}

TEST(Quantize, TableForPeopleAndErrors) {
  const Folder folder;
  make_model(folder);
  const std::string base = "quantize --model-path " + folder.path() + " ";
  const Outcome table = run_binary(base + "--output " + (folder / "out"));
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("gate_proj dynamic"), std::string::npos) << table.out;
  const std::pair<std::string, std::pair<int, const char*>> cases[] = {
      {"", {2, "--output"}},
      {"--output " + (folder / "x") + " --scheme static", {2, "--calibration-file"}},
      {"--output " + (folder / "x") + " --smooth 0.5", {2, "--calibration-file"}},
      {"--output " + (folder / "x") + " --scheme int4", {2, "dynamic, static"}},
      {"--output " + folder.path(), {1, "is the model itself"}},
      {"--output " + (folder / "x") + " --ignore proj --ignore lm_head", {1, "no linear is left"}}};
  for (const auto& [flags, expected] : cases) {
    const Outcome o = run_binary(base + flags);
    EXPECT_EQ(o.exit_code, expected.first) << flags;
    EXPECT_NE(o.err.find(expected.second), std::string::npos) << flags << ": " << o.err;
  }
}

}  // namespace
}  // namespace reprise::apps::quantize_test
