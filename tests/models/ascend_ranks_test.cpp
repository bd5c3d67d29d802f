// Models over several simulated cards, with HCCL between them, give the bits of one: in whole and piecewise graphs and
// without any, for each kind of attention and weights.
#include "engine/local_world.h"
#include "support/applied.h"
#include "support/ascend_engine.h"
#include "support/wide_latents.h"

namespace reprise::ascend_ranks_test {
namespace {

using testing_support::applied;
using testing_support::AscendOptions;
using testing_support::decode_traffic;
using testing_support::open_ascend;

std::vector<float> one_card(const std::string& folder, const AscendOptions& options) {
  auto engine = open_ascend(folder, options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return engine.is_ok() ? decode_traffic(**engine, 6) : std::vector<float>();
}

Result<std::unique_ptr<engine::LocalWorld>> open_cards(const std::string& folder, const AscendOptions& options,
                                                       int cards) {
  return engine::LocalWorld::start(
      cards,
      [folder, options](std::shared_ptr<ranks::Member> member) {
        AscendOptions own = options;
        own.member = std::move(member);
        return open_ascend(folder, own);
      },
      std::chrono::seconds(120));
}

std::vector<float> several_cards(const std::string& folder, const AscendOptions& options, int cards,
                                 int64_t* added = nullptr) {
  auto world = open_cards(folder, options, cards);
  EXPECT_TRUE(world.is_ok()) << world.status().message();
  if (!world.is_ok()) return {};
  std::vector<float> out = decode_traffic((*world)->front(), 6);
  const engine::Engine& front = (*world)->front();
  EXPECT_GT(applied(front, "rows of the table are here"), 0);
  if (added) *added = applied(front, "ranks are added");
  EXPECT_EQ(applied(front, "experts are here") > 0, options.ep_size > 1)
      << "experts are shared out where that is asked for";
  EXPECT_EQ(applied(front, "each rank adds the choices of its share of tokens"), applied(front, "experts are here"));
  EXPECT_EQ(applied(front, "ranks with the same experts are gathered") > 0,
            options.ep_size > 1 && options.ep_size < cards);
  if (options.policy != engine::GraphPolicy::Off) {
    EXPECT_GT((*world)->front().runner("decode")->stats().replays, 0u);
  }
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  return out;
}

struct Case {
  const char* model;
  std::vector<int> cards;
  bool all_modes = false;
  // A fusion that rounds otherwise than its parts, and that a gather between them keeps from firing.
  std::vector<std::string> without = {};
  bool experts = false;  // are shared out
  int64_t parts = 0;     // of them; 0: as many as cards
};

void PrintTo(const Case& c, std::ostream* to) { *to << c.model; }

class AscendRanks : public testing::TestWithParam<Case> {};

TEST_P(AscendRanks, GiveTheBitsOfOneCard) {
  const Case& c = GetParam();
  const std::string folder = std::string(REPRISE_SOURCE_DIR "/tests/data/") + c.model;
  const AscendOptions usual{.prefill_sizes = {64, 128}, .context = 128};
  std::vector<AscendOptions> modes{usual};
  if (c.all_modes) {
    modes.push_back({.policy = engine::GraphPolicy::Off, .context = 128});
    modes.push_back({.prefill = GraphMode::Whole, .fia = false, .prefill_sizes = {64, 128}, .context = 128});
    modes.push_back({.prefill_sizes = {64, 128}, .context = 128, .decode = GraphMode::Piecewise});
  }
  for (AscendOptions& options : modes) {
    options.without = c.without;
    const std::vector<float> expected = one_card(folder, options);
    ASSERT_FALSE(expected.empty());
    for (const int n : c.cards) {
      if (c.experts) options.ep_size = c.parts > 0 ? c.parts : n;
      const std::vector<float> got = several_cards(folder, options, n);
      options.ep_size = 1;
      ASSERT_EQ(got.size(), expected.size()) << n << " cards";
      const auto [at, wanted] = std::mismatch(got.begin(), got.end(), expected.begin());
      EXPECT_TRUE(at == got.end()) << n << " cards, mode " << &options - modes.data() << ": logit " << at - got.begin()
                                   << " is " << *at << " instead of " << *wanted;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AscendRanks,
                         testing::Values(Case{"models/qwen3_tied", {2, 4}, true}, Case{"models/llama_mha_untied", {2}},
                                         Case{"models/qwen2_moe_shared", {2}}, Case{"models/gpt_oss", {2}},
                                         Case{"models_quantised/modelslim_dynamic", {2}, false, {"silu_mul_quant"}},
                                         Case{"models_quantised/compressed_static", {2}}),
                         [](const auto& info) {
                           std::string name = info.param.model;
                           return name.substr(name.find('/') + 1);
                         });

// Latent attention, sigmoid experts in groups, int8 experts in one kernel with their gate.
TEST(AscendExperts, OfLatentModelsGiveTheBitsOfOneCard) {
  const testing_support::WideLatents wide("deepseek_v3_moe", 8);
  AscendOptions options{.prefill_sizes = {64, 128}, .context = 128, .without = {"silu_mul_quant"}};
  options.quantization = checkpoint::Quantization::W8A8Int8;
  const std::vector<float> expected = one_card(wide.path(), options);
  ASSERT_FALSE(expected.empty());
  options.ep_size = 2;
  EXPECT_EQ(expected, several_cards(wide.path(), options, 2));
}

struct SumsCase {
  const char* model;
  int cards;
  int64_t products;  // whose parts are added
};

void PrintTo(const SumsCase& c, std::ostream* to) { *to << c.model << " over " << c.cards; }

class AscendSums : public testing::TestWithParam<SumsCase> {};

// Parts cross in bf16 and are added in the order of ranks: near one card, and the same in every mode.
TEST_P(AscendSums, AreNearOneCardAndTheSameInEveryMode) {
  const SumsCase& c = GetParam();
  const std::string folder = std::string(REPRISE_SOURCE_DIR "/tests/data/") + c.model;
  const AscendOptions usual{.prefill_sizes = {64, 128}, .context = 128, .reduce = true};
  AscendOptions eager = usual, pieces = usual;
  eager.policy = engine::GraphPolicy::Off;
  pieces.decode = GraphMode::Piecewise;
  AscendOptions alone = usual;
  alone.reduce = false;
  const std::vector<float> one = one_card(folder, alone);
  ASSERT_FALSE(one.empty());
  int64_t added = 0;
  const std::vector<float> whole = several_cards(folder, usual, c.cards, &added);
  EXPECT_EQ(added, c.products);
  ASSERT_EQ(whole.size(), one.size());
  float largest = 0, worst = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    largest = std::max(largest, std::abs(one[i]));
    worst = std::max(worst, std::abs(one[i] - whole[i]));
  }
  EXPECT_LE(worst, 3e-2F * largest);
  EXPECT_GT(worst, 0) << "sums were not added over ranks";
  EXPECT_EQ(whole, several_cards(folder, eager, c.cards)) << "without graphs";
  EXPECT_EQ(whole, several_cards(folder, pieces, c.cards)) << "decode in pieces";
}

// Two layers each; biases of row-parallel products (F56) in llama_bias, folded int32 ones in modelslim_static_bias.
INSTANTIATE_TEST_SUITE_P(Models, AscendSums,
                         testing::Values(SumsCase{"models/qwen3_tied", 2, 4}, SumsCase{"models/qwen3_tied", 4, 4},
                                         SumsCase{"models/llama_bias", 3, 4},
                                         SumsCase{"models_quantised/modelslim_static_bias", 2, 4},
                                         SumsCase{"models_quantised/modelslim_dynamic", 2, 4},
                                         SumsCase{"models/mixtral_top2", 2, 4},
                                         SumsCase{"models_quantised/modelslim_moe_dynamic", 2, 6}),
                         [](const auto& info) {
                           const std::string name = info.param.model;
                           return fmt::format("{}_over_{}", name.substr(name.find('/') + 1), info.param.cards);
                         });

// A world of more ranks than there are cards, and one whose other rank does not start.
TEST(AscendRanksStart, TellsWhatIsMissing) {
  const std::string folder = REPRISE_SOURCE_DIR "/tests/data/models/qwen3_tied";
  setenv("ASCEND_SIM_FAULT", "devices:1", 1);
  const auto world = open_cards(folder, {}, 2);
  unsetenv("ASCEND_SIM_FAULT");
  ASSERT_FALSE(world.is_ok());
  EXPECT_NE(
      world.status().message().find("1 Ascend device is visible here (ASCEND_RT_VISIBLE_DEVICES); allowed: 1 to 1"),
      std::string::npos)
      << world.status().message();
}

// Experts that are shared out: none, some or all of a token's choices are on a card, decode sizes of 1 to 4 rows are no
// multiple of the cards, and 5 experts over 3 are uneven shares. Two of four cards have the same experts, of 21 rows
// each: 10 and 11.
INSTANTIATE_TEST_SUITE_P(
    Experts, AscendRanks,
    testing::Values(Case{"models/qwen2_moe_shared", {3}, true, {}, true},
                    Case{"models_quantised/modelslim_moe_dynamic", {2}, false, {"silu_mul_quant"}, true},
                    Case{"models_quantised/compressed_moe_static", {2}, false, {}, true},
                    Case{"models/qwen2_moe_shared", {4}, true, {}, true, 2},
                    Case{"models/mixtral_top2", {4}, false, {}, true, 2},
                    Case{"models_quantised/modelslim_moe_dynamic", {4}, false, {"silu_mul_quant"}, true, 2}),
    [](const auto& info) {
      std::string name = info.param.model;
      return name.substr(name.find('/') + 1) + (info.param.parts > 0 ? fmt::format("_in_{}", info.param.parts) : "");
    });

}  // namespace
}  // namespace reprise::ascend_ranks_test
