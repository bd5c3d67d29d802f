// Mixtures of experts as whole models: frozen sizes with padding, experts without a token, what is wrong with a file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "models/model.h"
#include "nn/experts.h"
#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::experts_test {
namespace {

namespace fs = std::filesystem;
using testing_support::same_bits;
using testing_support::tiny_model_path;

const char* const kModels[] = {"mixtral_top2",       "mixtral_one_expert", "qwen3_moe_norm",
                               "qwen3_moe_top8",     "qwen3_moe_top1",     "qwen2_moe_shared",
                               "qwen2_moe_lopsided", "deepseek_v2_moe",    "deepseek_v3_moe"};

Result<std::unique_ptr<engine::Engine>> open(const std::string& path, engine::EngineOptions o = {},
                                             bool live_sizes = true) {
  DeviceOptions device;
  device.threads = 2;
  device.pin_threads = false;
  device.live_sizes = live_sizes;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  o.model_path = path;
  o.chunked_prefill_size = 100;
  o.max_running_requests = 9;
  o.max_total_tokens = 9 * 256;
  return engine::Engine::create(o, std::move(platform));
}

// `batch` prompts, then three decode steps with fixed tokens; every logit.
std::vector<float> traffic(engine::Engine& e, int64_t batch) {
  return testing_support::Traffic(e, testing_support::lengths(batch, 1, 3, 1000), 3, 5).run(3);
}

// Where sizes freeze, rows of padding run along: they go to no expert and change nothing.
TEST(Experts, PaddingOfAFrozenSizeChangesNothing) {
  for (const auto quantization : {checkpoint::Quantization::Auto, checkpoint::Quantization::W8A8Int8})
    for (const char* model : kModels) {
      engine::EngineOptions off, padded;
      off.quantization = padded.quantization = quantization;
      off.graph.policy = engine::GraphPolicy::Off;
      off.graph.pipeline.passes.enable = {"none"};
      padded.graph.prefill = GraphMode::Whole;
      padded.graph.decode_sizes = {4, 9};
      padded.graph.prefill_sizes = {32, 100};
      auto key = open(tiny_model_path(model), off), frozen = open(tiny_model_path(model), padded, false);
      ASSERT_TRUE(key.is_ok()) << key.status().message();
      ASSERT_TRUE(frozen.is_ok()) << frozen.status().message();
      for (int64_t batch : {1, 3, 5, 8})
        EXPECT_TRUE(same_bits(traffic(**key, batch), traffic(**frozen, batch))) << model << ", batch " << batch;
      EXPECT_GT((*frozen)->runner("decode")->stats().padded_rows, 0u);
    }
}

// Counting costs no bit, sees every row once in every mode, and no padding.
TEST(Experts, RowsAreCountedByTheirExpert) {
  for (const char* model : {"qwen2_moe_lopsided", "deepseek_v3_moe"}) {
    engine::EngineOptions plain, counting;
    counting.count_experts = engine::CountExperts::WhereFree;
    auto key = open(tiny_model_path(model), plain);
    ASSERT_TRUE(key.is_ok()) << key.status().message();
    EXPECT_EQ((*key)->expert_use(), nullptr);
    const std::vector<float> want = traffic(**key, 5);
    std::vector<std::vector<uint64_t>> first;
    for (const char* mode : {"whole", "eager", "padded"}) {
      engine::EngineOptions o = counting;
      if (std::string_view(mode) == "eager") o.graph.policy = engine::GraphPolicy::Off;
      if (std::string_view(mode) == "padded") {
        o.graph.prefill = GraphMode::Whole;
        o.graph.decode_sizes = {9};
        o.graph.prefill_sizes = {100};
      }
      auto e = open(tiny_model_path(model), o, std::string_view(mode) != "padded");
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      EXPECT_TRUE(same_bits(want, traffic(**e, 5))) << model << ", " << mode;
      const engine::ExpertUse* use = (*e)->expert_use();
      ASSERT_TRUE(use);
      const auto& config = (*e)->config();
      uint64_t tokens = 3 * 5;  // decode steps
      for (const int64_t n : testing_support::lengths(5, 1, 3, 1000)) tokens += static_cast<uint64_t>(n);
      std::vector<std::vector<uint64_t>> rows(use->layers());
      for (size_t l = 0; l < use->layers(); ++l) {
        uint64_t sum = 0;
        for (int64_t x = 0; x < use->experts(l); ++x) sum += rows[l].emplace_back(use->rows(l, x));
        EXPECT_EQ(sum, tokens * static_cast<uint64_t>(config.experts.per_token)) << model << " " << use->place(l);
      }
      EXPECT_EQ(use->layer_name(0), fmt::format("{}", config.experts.first_layer));
      if (first.empty()) first = rows;
      EXPECT_EQ(rows, first) << model << ", " << mode;
    }
  }
}

// A copy of a model whose weights' header has one text instead of another of the same length.
class Edited {
 public:
  Edited(const std::string& model, const std::string& from, const std::string& to)
      : folder_(fs::temp_directory_path() / fmt::format("reprise_experts_{}_{}", ::getpid(), model)) {
    fs::remove_all(folder_);
    fs::copy(tiny_model_path(model), folder_);
    const fs::path file = folder_ / "model.safetensors";
    std::ifstream in(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const size_t at = bytes.find(from);
    EXPECT_TRUE(at != std::string::npos && from.size() == to.size());
    bytes.replace(at, from.size(), to);
    std::ofstream(file, std::ios::binary) << bytes;
  }
  ~Edited() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }

 private:
  fs::path folder_;
};

void expect_parts(const Status& s, const std::vector<std::string>& parts) {
  ASSERT_FALSE(s.is_ok());
  for (auto& part : parts) EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
  EXPECT_EQ(s.message().find('\n'), std::string::npos) << s.message();
}

TEST(Experts, AMissingTensorOfOneExpertIsNamed) {
  const Edited model("qwen3_moe_norm", "experts.5.up_proj", "experts.5.xx_proj");
  expect_parts(open(model.path()).status(), {"1 missing (model.layers.1.mlp.experts.5.up_proj.weight)", "1 left over"});
}

TEST(Experts, SizesThatDoNotFitAreNamed) {
  const auto open_with = [](const std::string& model, const std::string& change) {
    engine::EngineOptions o;
    o.overrides = {change};
    return open(tiny_model_path(model), o).status();
  };
  expect_parts(open_with("qwen3_moe_norm", "num_experts_per_tok=8"), {"num_experts_per_tok is 8", "num_experts is 7"});
  expect_parts(open_with("mixtral_top2", "num_experts_per_tok=6"), {"num_local_experts is 5"});
  expect_parts(open_with("qwen3_moe_norm", "decoder_sparse_step=0"), {"decoder_sparse_step is 0", "1 to 1000"});
  expect_parts(open_with("qwen3_moe_norm", "mlp_only_layers=[-1]"), {"mlp_only_layers", "a list of layer numbers"});
  expect_parts(open_with("qwen3_moe_norm", "moe_intermediate_size=24"),
               {"mlp.experts.", "has the shape [", "asks for [24, 48]"});
  expect_parts(open_with("qwen3_moe_norm", "num_experts=9"), {"gate.weight", "[7, 48]", "[9, 48]"});
}

TEST(Experts, DeepSeeksRoutersAreChecked) {
  const auto open_with = [](const std::string& model, std::vector<std::string> changes) {
    engine::EngineOptions o;
    o.overrides = std::move(changes);
    return open(tiny_model_path(model), o).status();
  };
  expect_parts(open_with("deepseek_v3_moe", {"n_group=5"}), {"n_routed_experts 12", "n_group 5"});
  expect_parts(open_with("deepseek_v3_moe", {"topk_group=5"}), {"topk_group 5", "n_group 4"});
  expect_parts(open_with("deepseek_v3_moe", {"n_group=12"}), {"groups of one expert"});
  expect_parts(open_with("deepseek_v3_moe", {"topk_group=1"}), {"num_experts_per_tok is 5", "3 experts"});
  expect_parts(open_with("deepseek_v3_moe", {"scoring_func=softmax"}), {"scoring_func", "softmax", "\"sigmoid\""});
  expect_parts(open_with("deepseek_v2_moe", {"topk_method=noaux_tc"}),
               {"topk_method", "\"greedy\", \"group_limited_greedy\""});
  expect_parts(open_with("deepseek_v2_moe", {"norm_topk_prob=true"}), {"norm_topk_prob", "false"});
  expect_parts(open_with("deepseek_v2_moe", {"moe_layer_freq=2"}), {"moe_layer_freq is 2"});
  expect_parts(open_with("deepseek_v2_moe", {"kv_lora_rank=23"}), {"kv_a", "[30, 48]"});
}

TEST(Experts, RangesOfRanksAreAllOfThem) {
  auto second = nn::expert_range(12, 1, 3);
  ASSERT_TRUE(second.is_ok());
  EXPECT_EQ(second->first, 4);
  EXPECT_EQ(second->count, 4);
  int64_t next = 0;
  for (int rank = 0; rank < 5; ++rank) {
    const auto part = nn::expert_range(12, rank, 5);
    ASSERT_TRUE(part.is_ok());
    EXPECT_EQ(part->first, next);
    EXPECT_TRUE(part->count == 2 || part->count == 3) << part->count;
    next += part->count;
  }
  EXPECT_EQ(next, 12);
  expect_parts(nn::expert_range(12, 0, 13).status(), {"12 experts cannot be shared by 13 ranks", "allowed: 1 to 12"});
  expect_parts(nn::expert_range(12, 3, 3).status(), {"rank 3 of 3"});
}

// Stacks of transformers 5, and Mixtral's own names, read as one tensor per matrix.
TEST(Experts, CheckpointsNameEveryMatrix) {
  for (const char* model : kModels) {
    auto c = checkpoint::Checkpoint::open(tiny_model_path(model), models::families());
    ASSERT_TRUE(c.is_ok()) << c.status().message();
    uint64_t bytes = 0;
    for (auto& t : c->tensors()) {
      EXPECT_EQ(t.name.find("block_sparse_moe"), std::string::npos) << t.name;
      EXPECT_LE(t.shape.size(), 2u) << t.name;
      bytes += static_cast<uint64_t>(t.elements()) * size_of(*checkpoint::plain_dtype(t.type));
    }
    EXPECT_EQ(bytes, c->total_bytes()) << model;
    const auto* t = c->find("model.layers.1.mlp.experts.2.down_proj.weight");
    ASSERT_TRUE(t) << model;
    EXPECT_EQ(t->shape.size(), 2u);
  }
}

}  // namespace
}  // namespace reprise::experts_test
