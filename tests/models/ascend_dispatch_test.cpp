// Rows that are sent to the simulated cards of their experts and added where they come from (MoeDistributeDispatchV2
// and its counterpart) give the bits of one card, in every graph mode, as they are and as int8; where the operators do
// not take a model, ranks exchange results as without them.
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "engine/local_world.h"
#include "support/applied.h"
#include "support/ascend_engine.h"

namespace reprise::ascend_dispatch_test {
namespace {

using testing_support::applied;
using testing_support::AscendOptions;
using testing_support::decode_traffic;
using testing_support::open_ascend;
using testing_support::Setting;

constexpr int64_t kLayers = 2;

struct Form {
  int64_t choices = 3;    // of a token
  bool lopsided = false;  // a router of zeros chooses the first experts for all tokens
  bool dense = false;     // the first layer has no experts
  int64_t width = 64;     // numbers of a row
};

// A mixture of 8 experts with rows that the operators take; random weights.
class Mixture {
 public:
  explicit Mixture(const Form& form = {})
      : to_(fmt::format("{}/reprise_mixture_{}_{}{}{}_{}", testing::TempDir(), ::getpid(), form.choices, form.lopsided,
                        form.dense, form.width)),
        form_(form) {
    std::filesystem::create_directories(to_);
    Json config =
        *parse_json(*read_file(testing_support::tiny_model_path("qwen3_moe_norm") + "/config.json"), "config.json");
    const int64_t w = form.width;
    config["hidden_size"] = w;
    config["max_position_embeddings"] = 2048;
    config["decoder_sparse_step"] = 1;
    config["num_experts"] = 8;
    config["num_experts_per_tok"] = form.choices;
    config["num_hidden_layers"] = kLayers;
    config["num_key_value_heads"] = 4;
    config["moe_intermediate_size"] = 32;
    if (form.dense) config["mlp_only_layers"] = {0}, config["intermediate_size"] = 96;
    std::ofstream(to_ + "/config.json") << config.dump();
    add("model.embed_tokens.weight", {263, w});
    add("model.norm.weight", {w});
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string at = fmt::format("model.layers.{}.", layer);
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(at + norm + ".weight", {w});
      for (const char* p : {"q", "k", "v"}) add(at + "self_attn." + p + "_proj.weight", {64, w});
      add(at + "self_attn.o_proj.weight", {w, 64});
      for (const char* p : {"q", "k"}) add(at + "self_attn." + p + "_norm.weight", {16});
      if (form.dense && layer == 0) {
        for (const char* p : {"gate", "up"}) add(fmt::format("{}mlp.{}_proj.weight", at, p), {96, w});
        add(at + "mlp.down_proj.weight", {w, 96});
        continue;
      }
      add(at + "mlp.gate.weight", {8, w});
      for (int e = 0; e < 8; ++e) {
        const std::string expert = fmt::format("{}mlp.experts.{}.", at, e);
        for (const char* p : {"gate", "up"}) add(expert + p + "_proj.weight", {32, w});
        add(expert + "down_proj.weight", {w, 32});
      }
    }
    const Status written = checkpoint::write_safetensors(to_ + "/model.safetensors", tensors_);
    EXPECT_TRUE(written.is_ok()) << written.message();
  }
  ~Mixture() { std::filesystem::remove_all(to_); }
  Mixture(const Mixture&) = delete;
  Mixture& operator=(const Mixture&) = delete;
  const std::string& path() const { return to_; }

 private:
  void add(const std::string& name, const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    std::vector<float>& v = values_.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      seed_ = seed_ * 1664525u + 1013904223u;
      const float x = static_cast<float>(seed_ >> 8) / static_cast<float>(1 << 23) - 1;
      const bool zero = form_.lopsided && name.ends_with("mlp.gate.weight");
      v.push_back(shape.size() == 1 ? 1 + x / 4 : zero ? 0 : x / 4);
    }
    tensors_.push_back(
        {name, DType::F32, shape, {reinterpret_cast<const uint8_t*>(v.data()), v.size() * sizeof(float)}});
  }

  std::string to_;
  Form form_;
  uint32_t seed_ = 17;
  std::deque<std::vector<float>> values_;  // the tensors point into it
  std::vector<checkpoint::TensorToWrite> tensors_;
};

using Traffic = std::vector<float> (*)(engine::Engine&);

std::vector<float> usual_traffic(engine::Engine& e) { return decode_traffic(e, 6); }

std::vector<float> one_card(const std::string& folder, const AscendOptions& options, Traffic traffic = usual_traffic) {
  auto engine = open_ascend(folder, options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return engine.is_ok() ? traffic(**engine) : std::vector<float>();
}

enum class Sent : uint8_t { No, AsTheyAre, AsInt8 };

// How often a fusion was made in decode steps.
int64_t fused(const engine::Engine& e, std::string_view name) {
  for (const PassReport& p : e.passes("decode")->passes)
    if (p.name == name) return p.matched;
  return 0;
}

std::vector<float> several_cards(const std::string& folder, AscendOptions options, int cards, Sent sent,
                                 Traffic traffic = usual_traffic, const std::string& why = "",
                                 std::string_view fusion = "") {
  options.ep_size = cards;
  options.dispatch = true;
  auto world = engine::LocalWorld::start(
      cards,
      [folder, options](std::shared_ptr<ranks::Member> member) {
        AscendOptions own = options;
        own.member = std::move(member);
        return open_ascend(folder, own);
      },
      std::chrono::seconds(120));
  EXPECT_TRUE(world.is_ok()) << world.status().message();
  if (!world.is_ok()) return {};
  std::vector<float> out = traffic((*world)->front());
  const engine::Engine& front = (*world)->front();
  EXPECT_EQ(applied(front, "rows are sent to the ranks of their experts") > 0, sent != Sent::No);
  EXPECT_EQ(applied(front, "int8 rows are sent to the ranks of their experts") > 0, sent == Sent::AsInt8);
  EXPECT_EQ(applied(front, "they are not sent to the ranks of their experts") > 0, sent == Sent::No);
  if (!why.empty()) EXPECT_GT(applied(front, why.c_str()), 0);
  if (!fusion.empty()) EXPECT_EQ(fused(front, fusion), kLayers) << fusion;
  if (options.policy != engine::GraphPolicy::Off) {
    EXPECT_GT((*world)->front().runner("decode")->stats().replays, 0u);
    EXPECT_GT((*world)->front().runner("prefill")->stats().replays, 0u);
  }
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  return out;
}

// Decode sizes of 1 to 4 tokens are no multiple of the cards; some cards have no token of their own.
void expect_bits_of_one_card_in_every_mode(const std::string& folder, const AscendOptions& usual, Sent sent) {
  AscendOptions eager = usual, whole = usual, pieces = usual;
  eager.policy = engine::GraphPolicy::Off;
  whole.prefill = GraphMode::Whole;
  pieces.decode = GraphMode::Piecewise;
  const std::vector<float> expected = one_card(folder, usual);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(expected, several_cards(folder, usual, 2, sent));
  EXPECT_EQ(expected, several_cards(folder, usual, 4, sent));
  EXPECT_EQ(expected, several_cards(folder, eager, 2, sent)) << "without graphs";
  EXPECT_EQ(expected, several_cards(folder, whole, 4, sent)) << "prefill in one graph";
  EXPECT_EQ(expected, several_cards(folder, pieces, 2, sent)) << "decode in pieces";
}

TEST(AscendDispatch, GivesTheBitsOfOneCardInEveryMode) {
  const Mixture model;
  expect_bits_of_one_card_in_every_mode(model.path(), {.prefill_sizes = {64, 128}, .context = 128}, Sent::AsTheyAre);
}

// The gate of the experts is in one kernel with their first product or with the rows that are quantised behind it, on
// one card and on several: experts are whole on a card.
TEST(AscendDispatch, Int8RowsGiveTheBitsOfOneCardInEveryMode) {
  const Mixture model;
  AscendOptions options{.prefill_sizes = {64, 128}, .context = 128};
  options.quantization = checkpoint::Quantization::W8A8Int8;
  expect_bits_of_one_card_in_every_mode(model.path(), options, Sent::AsInt8);
  several_cards(model.path(), options, 2, Sent::AsInt8, usual_traffic, "", "grouped_silu_mul_quant");
  options.without = {"grouped_silu_mul_quant"};
  EXPECT_EQ(one_card(model.path(), options),
            several_cards(model.path(), options, 2, Sent::AsInt8, usual_traffic, "", "silu_mul_quant"));
  options.dtype = DType::F16;
  EXPECT_EQ(one_card(model.path(), options), several_cards(model.path(), options, 2, Sent::AsInt8)) << "fp16";
}

// One card has all rows, the others none; with one choice all are of one expert.
TEST(AscendDispatch, CardsMayHaveNoRows) {
  for (const int64_t choices : {1, 3}) {
    const Mixture model({.choices = choices, .lopsided = true});
    AscendOptions options{.prefill_sizes = {64, 128}, .context = 128};
    EXPECT_EQ(one_card(model.path(), options), several_cards(model.path(), options, 2, Sent::AsTheyAre));
    options.quantization = checkpoint::Quantization::W8A8Int8;
    EXPECT_EQ(one_card(model.path(), options), several_cards(model.path(), options, 4, Sent::AsInt8));
  }
}

TEST(AscendDispatch, PartsWithSequencesOfTheirOwnSendThemToo) {
  const Mixture model;
  AscendOptions options{.prefill_sizes = {64, 128}, .context = 128};
  for (const Sent sent : {Sent::AsTheyAre, Sent::AsInt8}) {
    if (sent == Sent::AsInt8) options.quantization = checkpoint::Quantization::W8A8Int8;
    options.sequence_parts = 1;
    const std::vector<float> expected = one_card(model.path(), options);
    options.sequence_parts = 2;
    EXPECT_EQ(expected, several_cards(model.path(), options, 2, sent));
  }
}

// The columns of an MLP before the experts are cut, so the fusion of its gate does not fire over cards.
TEST(AscendDispatch, Int8RowsBehindADenseLayerGiveTheBitsOfOneCard) {
  const Mixture model({.dense = true});
  AscendOptions options{.prefill_sizes = {64, 128}, .context = 128, .without = {"silu_mul_quant"}};
  options.quantization = checkpoint::Quantization::W8A8Int8;
  const std::vector<float> expected = one_card(model.path(), options);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(expected, several_cards(model.path(), options, 2, Sent::AsInt8));
}

// Prompts of more tokens than the operators take of a card at a time: 256 on Atlas A2, 512 on A3.
std::vector<float> long_traffic(engine::Engine& e) {
  std::vector<float> out;
  uint32_t seed = 5;
  for (const size_t length : {1100, 601, 513, 3}) {
    std::vector<int32_t> prompt(length);
    for (int32_t& t : prompt) {
      seed = seed * 1664525u + 1013904223u;
      t = static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(e.config().vocab_size));
    }
    engine::Sequence s(prompt);
    EXPECT_TRUE(e.reserve(s, s.size() + 1).is_ok());
    for (int step = 0; step < 2; ++step) {
      const engine::StepItem item{&s, s.uncached(), 1};
      const auto logits = e.step({&item, 1});
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      if (logits.is_ok()) out.insert(out.end(), logits->begin(), logits->end());
      s.append(7);
    }
    e.release(s);
  }
  return out;
}

// 1100 tokens over two cards are 550 of each: three rounds of 184, 184 and 182. Where no graph has their size, others
// of 1024 and 768 tokens are two rounds.
TEST(AscendDispatch, LongPromptsGoInRounds) {
  for (const bool lopsided : {false, true}) {
    const Mixture model({.lopsided = lopsided});
    AscendOptions usual{.prefill_sizes = {64, 640, 1152}, .context = 1152, .chunk = 1152};
    AscendOptions eager = usual, whole = usual;
    eager.policy = engine::GraphPolicy::Off;
    whole.prefill = GraphMode::Whole;
    for (const Sent sent : {Sent::AsTheyAre, Sent::AsInt8}) {
      SCOPED_TRACE(fmt::format("lopsided {}, int8 {}", lopsided, sent == Sent::AsInt8));
      for (AscendOptions* o : {&usual, &eager, &whole})
        if (sent == Sent::AsInt8) o->quantization = checkpoint::Quantization::W8A8Int8;
      const std::vector<float> one = one_card(model.path(), usual, long_traffic);
      ASSERT_FALSE(one.empty());
      EXPECT_EQ(one, several_cards(model.path(), usual, 2, sent, long_traffic));
      EXPECT_EQ(one, several_cards(model.path(), eager, 2, sent, long_traffic)) << "without graphs";
      EXPECT_EQ(one, several_cards(model.path(), whole, 2, sent, long_traffic)) << "prefill in one graph";
      EXPECT_EQ(one, several_cards(model.path(), usual, 4, sent, long_traffic)) << "four cards";
    }
  }
}

// Windows hold fewer tokens than the operators take: 42 of a card on Atlas A2, 157 on A3.
TEST(AscendDispatch, RoundsAreAsSmallAsTheWindows) {
  const Mixture model({.width = 1024});
  AscendOptions options{.prefill_sizes = {64, 640, 1152}, .context = 1152, .chunk = 1152};
  options.quantization = checkpoint::Quantization::W8A8Int8;
  for (const auto& [soc, megabytes] : {std::pair{"Ascend910B1", "5"}, {"Ascend910_9391", "8"}}) {
    SCOPED_TRACE(soc);
    const Setting chip("ASCEND_SIM_SOC", soc), windows("HCCL_BUFFSIZE", megabytes);
    EXPECT_EQ(one_card(model.path(), options, long_traffic),
              several_cards(model.path(), options, 2, Sent::AsInt8, long_traffic));
  }
}

TEST(AscendDispatch, TooSmallWindowsAreTold) {
  const Mixture model;
  const Setting windows("HCCL_BUFFSIZE", "4");
  const AscendOptions options{.prefill_sizes = {64, 128}, .context = 128};
  const std::string told =
      "HCCL_BUFFSIZE of 4 MB holds 0 tokens of a rank at a time, and rows are sent from 16 on; 5 MB";
  EXPECT_EQ(one_card(model.path(), options), several_cards(model.path(), options, 2, Sent::No, usual_traffic, told));
}

// Rows of 48 numbers, and 5 experts over 2 cards.
TEST(AscendDispatch, ModelsThatTheOperatorsDoNotTakeExchangeResults) {
  const std::string folder = testing_support::tiny_model_path("qwen2_moe_shared");
  const AscendOptions options{.prefill_sizes = {64, 128}, .context = 128};
  const std::vector<float> expected = one_card(folder, options);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(expected, several_cards(folder, options, 2, Sent::No));
}

}  // namespace
}  // namespace reprise::ascend_dispatch_test
