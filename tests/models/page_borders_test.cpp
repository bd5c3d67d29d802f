// Contexts on both sides of page borders, from 127 to 2,048 tokens (F22, F33, F48): decoded and prefilled in every
// graph mode they have the bits of one whole prompt, computed node by node with nothing fused.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/tiny_models.h"

namespace reprise::page_borders_test {
namespace {

using testing_support::same_bits;
using Ids = std::vector<int32_t>;
using Sides = std::vector<int64_t>;

constexpr std::string_view kOnAscend = "@ascend";  // behind a model's name: on that device, over the simulator

struct Mode {
  const char* name;
  GraphMode decode = GraphMode::Eager, prefill = GraphMode::Eager;
  bool live_sizes = true;
};

struct Case {
  std::string model;
  std::vector<int64_t> borders;  // multiples of 128
};

bool on_ascend(const std::string& model) { return model.ends_with(kOnAscend); }

class PageBorders : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kStaggered = 2;  // sequences of a batch, each a token behind the one before
  int64_t longest() const { return GetParam().borders.back() + 2; }

  std::unique_ptr<engine::Engine> open(const Mode* mode) {
    const std::string& model = GetParam().model;
    DeviceOptions device;
    device.threads = 1;
    device.pin_threads = false;
    if (on_ascend(model)) device.kind = DeviceKind::Ascend;
    device.ascend_runtime = "sim";
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path(model.substr(0, model.find('@')));
    o.dtype = on_ascend(model) ? DType::BF16 : DType::F32;
    o.overrides = {"max_position_embeddings=4096"};
    o.context_length = longest();
    if (mode) {
      device.live_sizes = mode->live_sizes;
      o.graph.decode = mode->decode;
      o.graph.prefill = mode->prefill;
      o.max_running_requests = kStaggered + 1;
      o.chunked_prefill_size = longest();
      o.graph.decode_sizes = {kStaggered, kStaggered + 1};
      if (on_ascend(model)) o.graph.prefill_sizes = {128};
    } else {
      o.graph.policy = engine::GraphPolicy::Off;
      // The vendor's fused operators round once where their parts round twice.
      if (!on_ascend(model)) o.graph.pipeline.passes.enable = {"none"};
      o.max_running_requests = longest();  // logits of every position in one step
      o.chunked_prefill_size = longest();
    }
    o.max_total_tokens = (kStaggered + 1) * (longest() + 128);
    auto platform = make_platform(device);
    EXPECT_TRUE(platform.is_ok()) << platform.status().message();
    auto e = engine::Engine::create(o, std::move(*platform));
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    return e.is_ok() ? std::move(*e) : nullptr;
  }

  void SetUp() override {
    auto key = open(nullptr);
    ASSERT_TRUE(key);
    vocab_ = static_cast<size_t>(key->config().vocab_size);
    uint32_t seed = 5;
    for (int64_t i = 0; i < longest(); ++i) {
      seed = seed * 1664525u + 1013904223u;
      text_.push_back(static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(vocab_)));
    }
    expected_ = testing_support::all_logits(*key, text_, longest());
    ASSERT_EQ(expected_.size(), text_.size() * vocab_);
  }

  // Frozen sizes change nothing that long contexts could show.
  static std::vector<int64_t> borders_of(const Mode& mode) {
    std::vector<int64_t> borders = GetParam().borders;
    if (!mode.live_sizes) std::erase_if(borders, [](int64_t border) { return border > 512; });
    return borders;
  }

  std::span<const float> expected(int64_t context) const {
    return std::span(expected_).subspan(static_cast<size_t>(context - 1) * vocab_, vocab_);
  }

  // Sequences that end 0 and 1 tokens before a context of `behind`, all of it cached.
  void prefill_to(engine::Engine& e, std::vector<engine::Sequence>& sequences, int64_t behind) {
    for (int64_t i = 0; i < kStaggered; ++i) {
      auto& s = sequences[static_cast<size_t>(i)];
      while (s.size() < behind - i) s.append(text_[static_cast<size_t>(s.size())]);
      const engine::StepItem item{&s, s.uncached()};
      ASSERT_TRUE(e.step({&item, 1}).is_ok());
    }
  }

  void decode_over(engine::Engine& e, std::vector<engine::Sequence>& sequences, int64_t border) {
    prefill_to(e, sequences, border - 2);
    for (int64_t context = border - 1; context <= border + 1; ++context) {
      std::vector<engine::StepItem> items;
      for (auto& s : sequences) {
        s.append(text_[static_cast<size_t>(s.size())]);
        items.push_back({&s, 1, 1});
      }
      const auto logits = e.step(items);
      ASSERT_TRUE(logits.is_ok()) << logits.status().message();
      for (int64_t i = 0; i < kStaggered; ++i)
        EXPECT_TRUE(same_bits(expected(context - i), logits->subspan(static_cast<size_t>(i) * vocab_, vocab_)))
            << "decode, context " << context - i;
    }
  }

  Ids text_;
  std::vector<float> expected_;
  size_t vocab_ = 0;
};

constexpr Mode kModes[] = {{"whole", GraphMode::Whole, GraphMode::Piecewise},
                           {"piecewise", GraphMode::Piecewise, GraphMode::Whole},
                           {"whole, frozen sizes", GraphMode::Whole, GraphMode::Piecewise, false},
                           {"piecewise, frozen sizes", GraphMode::Piecewise, GraphMode::Whole, false}};

TEST_P(PageBorders, EveryGraphModeGivesTheBitsOfOneWholePrompt) {
  for (const Mode& mode : kModes) {
    if (on_ascend(GetParam().model) && !mode.live_sizes) continue;  // that device has no others
    SCOPED_TRACE(mode.name);
    auto e = open(&mode);
    ASSERT_TRUE(e);
    std::vector<engine::Sequence> sequences;
    for (int64_t i = 0; i < kStaggered; ++i) sequences.emplace_back(Ids{});
    for (auto& s : sequences) ASSERT_TRUE(e->reserve(s, longest()).is_ok());
    const auto borders = borders_of(mode);
    for (const int64_t border : borders) decode_over(*e, sequences, border);
    for (auto& s : sequences) e->release(s);
    EXPECT_EQ(e->runner("decode")->stats().replays, 3 * borders.size());
    EXPECT_TRUE(e->runner("decode")->stats().fallbacks.empty());
    if (on_ascend(GetParam().model)) continue;
    // Prompts that end at and beside a border, in one step each; long ones at it alone.
    for (const int64_t border : borders)
      for (const int64_t n : border <= 512 ? Sides{border - 1, border, border + 1} : Sides{border}) {
        engine::Sequence s(Ids(text_.begin(), text_.begin() + n));
        ASSERT_TRUE(e->reserve(s, n).is_ok());
        const engine::StepItem item{&s, n, 1};
        const auto logits = e->step({&item, 1});
        ASSERT_TRUE(logits.is_ok()) << logits.status().message();
        EXPECT_TRUE(same_bits(expected(n), *logits)) << "prompt of " << n;
        e->release(s);
      }
    EXPECT_TRUE(e->runner("prefill")->stats().fallbacks.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, PageBorders,
                         testing::Values(Case{"llama_gqa3_tied", {128, 256, 384, 512, 1024, 2048}},
                                         Case{"mistral_window24", {128, 256, 1024}},
                                         Case{"deepseek_v2_lite", {128, 256, 1024}},
                                         Case{"llama_gqa3_tied@ascend", {128, 256, 384}}),
                         [](const auto& info) {
                           std::string name = info.param.model;
                           std::replace(name.begin(), name.end(), '@', '_');
                           return name;
                         });

}  // namespace
}  // namespace reprise::page_borders_test
