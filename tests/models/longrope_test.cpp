// Longrope on both sides of its border (tests/data/models/phi3_longrope): the length of the context chooses a list of
// factors for all sequences. golden.safetensors has what transformers gives up to the border (golden_test.cpp), and
// golden_long.safetensors behind it, with rows early in the sequence, which the other list turns otherwise.
#include <gtest/gtest.h>

#include "backends/cpu/isa.h"
#include "support/goldens.h"
#include "support/tiny_models.h"

namespace reprise::longrope_test {
namespace {

using testing_support::all_logits;
using testing_support::EngineSetup;
using testing_support::open_engine;

constexpr int64_t kBorder = 160, kLongest = 512;

const std::string& folder() {
  static const std::string path = testing_support::tiny_model_path("phi3_longrope");
  return path;
}

EngineSetup with_context(int64_t context, DType dtype = DType::F32) {
  EngineSetup s;
  s.dtype = dtype;
  s.context = context;
  s.total_tokens = 2048;
  return s;
}

// Largest distance of the rows that the golden has, of its largest logit.
double distance(const testing_support::Golden& g, const std::vector<float>& logits, size_t vocab) {
  double largest = 0, worst = 0;
  for (const float x : g.logits) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  for (size_t i = 0; i < g.positions.size(); ++i)
    for (size_t v = 0; v < vocab; ++v)
      worst = std::max(worst, std::fabs(static_cast<double>(logits[static_cast<size_t>(g.positions[i]) * vocab + v]) -
                                        static_cast<double>(g.logits[i * vocab + v])));
  return worst / largest;
}

TEST(LongRope, LongContextsAreTurnedByTheLongFactors) {
  const auto goldens = testing_support::read_goldens(folder(), "golden_long.safetensors");
  ASSERT_EQ(goldens.size(), 2u);
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const cpu::Isa isa : cpu::supported_isas()) {
      EngineSetup setup = with_context(203, dtype);
      setup.isa = std::string(cpu::isa_name(isa));
      auto e = open_engine(folder(), setup);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      const auto vocab = static_cast<size_t>((*e)->config().vocab_size);
      for (const auto& [length, g] : goldens)
        for (const int64_t chunk : {1000, 50, 1})
          EXPECT_LE(distance(g, all_logits(**e, g.tokens, chunk), vocab), dtype == DType::F32 ? 1e-4 : 2e-2)
              << dtype_name(dtype) << " " << setup.isa << " length " << length << " chunk " << chunk;
    }
}

// A sequence that stays below the border has the bits of the first rows of one that does not.
TEST(LongRope, TheContextChoosesAndNotTheSequence) {
  const auto goldens = testing_support::read_goldens(folder(), "golden_long.safetensors");
  const std::vector<int32_t>& tokens = goldens.at(203).tokens;
  const std::vector<int32_t> some(tokens.begin(), tokens.begin() + 41);
  auto wide = open_engine(folder(), with_context(203));
  auto narrow = open_engine(folder(), with_context(kBorder));
  ASSERT_TRUE(wide.is_ok() && narrow.is_ok());
  EXPECT_TRUE((*wide)->config().rope.takes_long);
  EXPECT_FALSE((*narrow)->config().rope.takes_long);
  const std::vector<float> all = all_logits(**wide, tokens, 1000), first = all_logits(**wide, some, 1000);
  EXPECT_TRUE(testing_support::same_bits(first, std::vector<float>(all.begin(), all.begin() + std::ssize(first))));
  EXPECT_FALSE(testing_support::same_bits(first, all_logits(**narrow, some, 1000)));
}

TEST(LongRope, TheSameBitsInChunksThreadsAndModes) {
  const auto goldens = testing_support::read_goldens(folder(), "golden_long.safetensors");
  const EngineSetup usual = with_context(203, DType::BF16);
  auto e = open_engine(folder(), usual);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  std::vector<EngineSetup> others(2, usual);
  others[0].threads = 3, others[0].policy = engine::GraphPolicy::Off;
  others[1].prefill = GraphMode::Whole, others[1].threads = 1;
  EXPECT_FALSE(testing_support::same_logits_everywhere(**e, goldens.at(161).tokens, others, [](const EngineSetup& s) {
                 return open_engine(folder(), s);
               }).empty());
}

// Lists that are tensors, and a factor of attention in fp32.
TEST(LongRope, AGgufFileGivesTheSameBits) {
  const std::string file = std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/phi3_longrope.gguf";
  const auto goldens = testing_support::read_goldens(folder(), "golden_long.safetensors");
  auto a = open_engine(file, with_context(203)), b = open_engine(folder(), with_context(203));
  ASSERT_TRUE(a.is_ok()) << a.status().message();
  ASSERT_TRUE(b.is_ok()) << b.status().message();
  for (const auto& [length, g] : goldens)
    EXPECT_TRUE(testing_support::same_bits(all_logits(**a, g.tokens, 1000), all_logits(**b, g.tokens, 1000)));
}

TEST(LongRope, TheUsualContextIsTheBorder) {
  const auto opened = [](int64_t context) { return open_engine(folder(), with_context(context)); };
  auto usual = opened(0);
  ASSERT_TRUE(usual.is_ok()) << usual.status().message();
  EXPECT_EQ((*usual)->context_length(), kBorder);
  EXPECT_FALSE((*usual)->config().rope.takes_long);
  for (const int64_t context : {kBorder + 1, kLongest}) {
    auto e = opened(context);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    EXPECT_TRUE((*e)->config().rope.takes_long) << context;
  }
  const auto beyond = opened(kLongest + 1);
  ASSERT_FALSE(beyond.is_ok());
  EXPECT_NE(beyond.status().message().find("`context_length` 513 is more than the model's 512"), std::string::npos)
      << beyond.status().message();
}

}  // namespace
}  // namespace reprise::longrope_test
