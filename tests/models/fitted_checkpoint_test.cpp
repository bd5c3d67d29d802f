// Folders whose tensors say more than their configuration: layers that predict further tokens (DeepSeek-V3's MTP), and
// heads beside an embedding that is said to serve as one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/gguf.h"
#include "models/model.h"
#include "support/tiny_models.h"

namespace reprise::fitted_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using testing_support::all_logits;
using testing_support::same_bits;
using testing_support::tiny_model_path;

const std::vector<int32_t> kTokens{3, 14, 15, 92, 65, 35, 89, 79, 32, 38};

// A copy of a tiny model with its tensors in one shard and new ones in another.
class Copy {
 public:
  Copy(const std::string& model, const std::map<std::string, std::vector<float>>& tensors,
       std::vector<int64_t> shape = {}, const std::string& collection = "models")
      : folder_(fs::temp_directory_path() / fmt::format("reprise_fitted_{}_{}", ::getpid(), count_++)) {
    fs::remove_all(folder_);
    fs::copy(tiny_model_path("../" + collection + "/" + model), folder_);
    fs::rename(folder_ / "model.safetensors", folder_ / "a.safetensors");
    Json index = {{"weight_map", Json::object()}};
    auto old = checkpoint::SafetensorsFile::open((folder_ / "a.safetensors").string());
    EXPECT_TRUE(old.is_ok());
    for (const auto& t : old->tensors()) index["weight_map"][t.name] = "a.safetensors";
    Json header = Json::object();
    std::string data;
    for (const auto& [name, values] : tensors) {
      const size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      header[name] = {{"dtype", "F32"},
                      {"shape", shape.empty() ? Json{values.size()} : Json(shape)},
                      {"data_offsets", {begin, data.size()}}};
      index["weight_map"][name] = "b.safetensors";
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::ofstream out(folder_ / "b.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), sizeof(size));
    out << text << data;
    std::ofstream(folder_ / "model.safetensors.index.json") << index.dump();
  }
  ~Copy() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }

 private:
  static inline int count_ = 0;
  fs::path folder_;
};

Result<std::unique_ptr<engine::Engine>> open_with(const std::string& path, std::vector<std::string> overrides) {
  ASSIGN_OR_RETURN(Platform platform, make_platform({DeviceKind::Cpu, "auto", 1, false}));
  engine::EngineOptions o;
  o.model_path = path;
  o.overrides = std::move(overrides);
  o.dtype = DType::F32;
  o.max_total_tokens = 256;
  return engine::Engine::create(o, std::move(platform));
}

std::vector<float> logits_of(const std::string& path, std::vector<std::string> overrides) {
  auto engine = open_with(path, std::move(overrides));
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return engine.is_ok() ? all_logits(**engine, kTokens, 100) : std::vector<float>();
}

void expect_parts(const Status& s, const std::vector<std::string>& parts) {
  ASSERT_FALSE(s.is_ok());
  for (const auto& part : parts) EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
}

// What a real folder has behind its last layer; deepseek_v3_moe has three layers.
std::map<std::string, std::vector<float>> prediction_layer(int layer) {
  std::map<std::string, std::vector<float>> out;
  for (const char* leaf :
       {"embed_tokens.weight", "enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight",
        "shared_head.head.weight", "input_layernorm.weight", "self_attn.q_a_proj.weight", "self_attn.kv_b_proj.weight",
        "mlp.gate.e_score_correction_bias", "mlp.experts.0.up_proj.weight", "mlp.shared_experts.down_proj.weight"})
    out[fmt::format("model.layers.{}.{}", layer, leaf)] = {1.0f, 2.0f};
  return out;
}

TEST(FittedCheckpoint, LayersThatPredictFurtherTokensAreSetAside) {
  const Copy copy("deepseek_v3_moe", prediction_layer(3));
  const auto plain = logits_of(tiny_model_path("deepseek_v3_moe"), {});
  EXPECT_TRUE(same_bits(plain, logits_of(copy.path(), {"num_nextn_predict_layers=1"})));
  EXPECT_TRUE(same_bits(plain, logits_of(copy.path(), {"num_nextn_predict_layers=2"})));
  EXPECT_TRUE(same_bits(plain, logits_of(copy.path(), {"num_nextn_predict_layers=null", "num_mtp_layers=1"})));
  auto engine = open_with(copy.path(), {"num_nextn_predict_layers=1"});
  ASSERT_TRUE(engine.is_ok());
  EXPECT_EQ((*engine)->checkpoint()->aside().size(), 12u);
  EXPECT_EQ((*engine)->checkpoint()->find("model.layers.3.enorm.weight"), nullptr);
  ASSERT_EQ((*engine)->config().notices.size(), 1u);
  EXPECT_NE((*engine)->config().notices[0].find("12 tensors"), std::string::npos) << (*engine)->config().notices[0];
}

// Quantised folders keep theirs quantised, and ModelSlim's list the tensors.
TEST(FittedCheckpoint, QuantisedLayersThatPredictFurtherTokensAreSetAside) {
  const std::string name = "modelslim_mla_mixed";
  std::map<std::string, std::vector<float>> tensors;
  Json listed = Json::object();
  for (const char* leaf : {"enorm.weight", "eh_proj.weight", "shared_head.head.weight", "self_attn.q_proj.weight",
                           "self_attn.q_proj.weight_scale", "self_attn.q_proj.quant_bias",
                           "mlp.experts.0.up_proj.weight", "mlp.experts.0.up_proj.weight_offset"}) {
    const std::string tensor = std::string("model.layers.2.") + leaf;
    tensors[tensor] = {1.0f, 2.0f};
    listed[tensor] = std::string_view(leaf).find("self_attn") == 0 ? "W8A8"
                     : std::string_view(leaf).find("mlp") == 0     ? "W8A8_DYNAMIC"
                                                                   : "FLOAT";
  }
  const Copy copy(name, tensors, {}, "models_quantised");
  const std::string description = copy.path() + "/quant_model_description.json";
  Json all = *parse_json(*read_file(description), "description");
  all.update(listed);
  std::ofstream(description) << all.dump();
  const auto plain = logits_of(tiny_model_path("../models_quantised/" + name), {});
  EXPECT_TRUE(same_bits(plain, logits_of(copy.path(), {"num_nextn_predict_layers=1"})));
  expect_parts(open_with(copy.path(), {}).status(), {"model.layers.2."});
}

// The bytes of a file of the gguf package with one block more, as llama.cpp's converter writes a DeepSeek with MTP:
// the block counts, a key tells that it predicts, and its own tensors are named "nextn".
std::string with_prediction_block(const std::string& path, int layer) {
  const std::string old = *read_file(path);
  const auto file = checkpoint::GgufFile::open(path);
  const auto number = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto text = [&](const std::string& s) { return number(uint64_t{s.size()}) + s; };
  const auto padded = [](std::string s) {
    s.resize((s.size() + 31) / 32 * 32);
    return s;
  };
  const auto u64_at = [&](size_t at) {
    uint64_t v = 0;
    std::memcpy(&v, old.data() + at, sizeof v);
    return v;
  };
  const size_t infos = old.find(text(file->tensors().front().name));
  size_t end = infos;
  for (size_t i = 0; i < file->tensors().size(); ++i) {
    end += 8 + u64_at(end);
    uint32_t dims = 0;
    std::memcpy(&dims, old.data() + end, sizeof dims);
    end += 4 + 8 * dims + 4 + 8;
  }
  const size_t data = (end + 31) / 32 * 32;
  std::string metadata = old.substr(24, infos - 24);
  const std::string count = text("deepseek2.block_count") + number(uint32_t{4});
  metadata.replace(metadata.find(count) + count.size(), 4, number(static_cast<uint32_t>(layer + 1)));
  metadata += text("deepseek2.nextn_predict_layers") + number(uint32_t{4}) + number(uint32_t{1});
  std::string more, values = padded(old.substr(data));
  const std::vector<std::string> leaves{"nextn.eh_proj",  "nextn.embed_tokens", "nextn.enorm",
                                        "nextn.hnorm",    "attn_norm",          "nextn.shared_head_head",
                                        "attn_kv_a_norm", "attn_q_a",           "nextn.shared_head_norm",
                                        "ffn_gate_exps",  "ffn_up_shexp",       "ffn_gate_inp"};
  for (const std::string& leaf : leaves) {
    more += text(fmt::format("blk.{}.{}.weight", layer, leaf)) + number(uint32_t{1}) + number(uint64_t{8}) +
            number(uint32_t{0}) + number(uint64_t{values.size()});
    values += std::string(32, '\0');
  }
  const std::string head = old.substr(0, 8) + number(u64_at(8) + leaves.size()) + number(u64_at(16) + 1);
  return padded(head + metadata + old.substr(infos, end - infos) + more) + values;
}

TEST(FittedCheckpoint, BlocksOfAGgufFileThatPredictFurtherTokensAreSetAside) {
  const std::string plain = std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/deepseek_v3_moe.gguf";
  const fs::path longer = fs::temp_directory_path() / fmt::format("reprise_fitted_{}.gguf", ::getpid());
  std::ofstream(longer, std::ios::binary) << with_prediction_block(plain, 3);
  EXPECT_TRUE(same_bits(logits_of(plain, {}), logits_of(longer.string(), {})));
  auto engine = open_with(longer.string(), {});
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  EXPECT_EQ((*engine)->config().num_hidden_layers, 3);
  EXPECT_EQ((*engine)->checkpoint()->aside().size(), 12u);
  fs::remove(longer);
}

TEST(FittedCheckpoint, LayersThatNothingExplainsAreAnError) {
  const Copy near("deepseek_v3_moe", prediction_layer(3)), far("deepseek_v3_moe", prediction_layer(4));
  expect_parts(
      open_with(near.path(), {"num_nextn_predict_layers=0"}).status(),
      {"12 left over", "model.layers.3.", "num_hidden_layers 3", "num_nextn_predict_layers 0 does not explain"});
  expect_parts(open_with(far.path(), {"num_nextn_predict_layers=1"}).status(), {"12 left over", "model.layers.4."});
  // A tensor that no such layer has.
  const Copy odd("deepseek_v3_moe", {{"model.layers.3.unheard_of.weight", {1.0f}}});
  expect_parts(open_with(odd.path(), {"num_nextn_predict_layers=1"}).status(), {"1 left over", "unheard_of"});
}

TEST(FittedCheckpoint, TheHeadOfTheFileWins) {
  for (const char* model : {"llama_mha_untied", "qwen3_untied", "deepseek_v2_dense"}) {
    const auto plain = logits_of(tiny_model_path(model), {});
    EXPECT_TRUE(same_bits(plain, logits_of(tiny_model_path(model), {"tie_word_embeddings=true"}))) << model;
  }
}

TEST(FittedCheckpoint, AHeadThatIsTheEmbeddingStaysTied) {
  auto source = checkpoint::Checkpoint::open(tiny_model_path("llama_gqa3_tied"), models::families());
  ASSERT_TRUE(source.is_ok());
  const auto* table = source->find("model.embed_tokens.weight");
  ASSERT_TRUE(table);
  // Another dtype, the same numbers: a head of its own with the same logits.
  std::vector<float> values(static_cast<size_t>(table->elements()));
  ASSERT_TRUE(source->read_rows(*table, 0, table->rows(), DType::F32, values.data()).is_ok());
  const auto plain = logits_of(tiny_model_path("llama_gqa3_tied"), {});
  const Copy same("llama_gqa3_tied", {{"lm_head.weight", values}}, table->shape);
  EXPECT_TRUE(same_bits(plain, logits_of(same.path(), {})));
  values[7] += 1;
  const Copy other("llama_gqa3_tied", {{"lm_head.weight", values}}, table->shape);
  EXPECT_FALSE(same_bits(plain, logits_of(other.path(), {})));
}

TEST(FittedCheckpoint, AnUnknownArchitectureIsToldBeforeMissingWeights) {
  const auto folder = fs::temp_directory_path() / fmt::format("reprise_unlisted_{}", ::getpid());
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures":["RwkvForCausalLM"],"model_type":"rwkv"})";
  expect_parts(open_with(folder.string(), {}).status(),
               {"architecture \"RwkvForCausalLM\" is not known", "LlamaForCausalLM", "DeepseekV3ForCausalLM"});
  std::ofstream(folder / "config.json") << R"({"architectures":["LlamaForCausalLM"],"logit_scale":0.0625})";
  expect_parts(open_with(folder.string(), {}).status(), {"logit_scale is 0.0625", "LlamaForCausalLM"});
  fs::remove_all(folder);
}

}  // namespace
}  // namespace reprise::fitted_checkpoint_test
