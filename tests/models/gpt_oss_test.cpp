// gpt-oss with experts in MXFP4 (tests/data/mxfp4): logits of transformers, which dequantises them; the experts stay in
// their blocks, and give the bits of the same numbers as floats.
#include <gtest/gtest.h>

#include "backends/cpu/isa.h"
#include "checkpoint/checkpoint.h"
#include "models/model.h"
#include "support/goldens.h"
#include "support/tiny_models.h"

namespace reprise::gpt_oss_test {
namespace {

using testing_support::all_logits;
using testing_support::EngineSetup;
using testing_support::open_engine;
using testing_support::same_bits;

const std::string& folder() {
  static const std::string path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/mxfp4";
  return path;
}

TEST(GptOssMxfp4, LogitsAreThoseOfTheReference) {
  const auto goldens = testing_support::read_goldens(folder());
  ASSERT_EQ(goldens.size(), 4u);
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const cpu::Isa isa : cpu::supported_isas()) {
      const EngineSetup setup{.dtype = dtype, .isa = std::string(cpu::isa_name(isa))};
      auto e = open_engine(folder(), setup);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      EXPECT_EQ((*e)->options().quantization, checkpoint::Quantization::Mxfp4);
      const auto vocab = static_cast<size_t>((*e)->config().vocab_size);
      for (const auto& [length, g] : goldens) {
        const std::vector<float> logits = all_logits(**e, g.tokens, 1000);
        ASSERT_EQ(logits.size(), g.tokens.size() * vocab);
        double largest = 0, worst = 0;
        for (float x : g.logits) largest = std::max(largest, std::fabs(static_cast<double>(x)));
        for (size_t i = 0; i < g.positions.size(); ++i) {
          const std::span<const float> want(g.logits.data() + i * vocab, vocab),
              got(logits.data() + static_cast<size_t>(g.positions[i]) * vocab, vocab);
          for (size_t v = 0; v < vocab; ++v)
            worst = std::max(worst, std::fabs(static_cast<double>(got[v]) - static_cast<double>(want[v])));
          testing_support::expect_first_token(want, got, 2e-2 * largest, fmt::format("length {}", length));
        }
        EXPECT_LE(worst, (dtype == DType::F32 ? 1e-4 : 2e-2) * largest)
            << dtype_name(dtype) << " " << setup.isa << " length " << length;
      }
    }
}

// A block of 32 numbers takes 17 bytes: of the experts nothing else is in memory.
TEST(GptOssMxfp4, ExpertsStayInTheirBlocks) {
  auto e = open_engine(folder(), {.dtype = DType::BF16});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const std::string text((*e)->graph_text());
  EXPECT_NE(text.find("= grouped_linear_blocks("), std::string::npos) << text;
  EXPECT_EQ(text.find("= grouped_linear("), std::string::npos) << text;
  const auto& f = (*e)->config();
  // Gate and up are one stack of whole panels of 64 rows, for each expert.
  const int64_t panels =
      (2 * f.intermediate_size + 63) / 64 * 64 * f.hidden_size + (f.hidden_size + 63) / 64 * 64 * f.intermediate_size;
  const int64_t packed = f.num_hidden_layers * f.experts.count * panels / 32 * 17;
  auto checkpoint = checkpoint::Checkpoint::open(folder(), models::families());
  ASSERT_TRUE(checkpoint.is_ok());
  int64_t stored = 0;
  for (const checkpoint::CheckpointTensor& t : checkpoint->tensors())
    if (t.type == checkpoint::StorageType::MXFP4) stored += static_cast<int64_t>(t.bytes);
  EXPECT_EQ(stored, packed) << "sizes of this model fill their panels";
}

TEST(GptOssMxfp4, TheSameBitsInChunksThreadsAndModes) {
  const auto goldens = testing_support::read_goldens(folder());
  const std::vector<int32_t>& tokens = goldens.at(131).tokens;
  const std::vector<int32_t> some(tokens.begin(), tokens.begin() + 45);
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const EngineSetup usual{.dtype = dtype};
    auto e = open_engine(folder(), usual);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    std::vector<EngineSetup> others(3, usual);
    others[0].threads = 3, others[0].policy = engine::GraphPolicy::Off;
    others[1].prefill = GraphMode::Whole, others[1].threads = 1;
    others[2].policy = engine::GraphPolicy::Required;
    EXPECT_FALSE(testing_support::same_logits_everywhere(**e, some, others, [](const EngineSetup& s) {
                   return open_engine(folder(), s);
                 }).empty());
  }
}

// The same model as llama.cpp's converter writes it: rows of gate and up apart, a block's exponent before its numbers.
TEST(GptOssMxfp4, AGgufFileGivesTheBitsOfTheFolder) {
  const std::string path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/gpt_oss_mxfp4.gguf";
  const auto goldens = testing_support::read_goldens(folder());
  for (const DType dtype : {DType::F32, DType::BF16}) {
    auto file = open_engine(path, {.dtype = dtype}), all = open_engine(folder(), {.dtype = dtype});
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    ASSERT_TRUE(all.is_ok()) << all.status().message();
    EXPECT_EQ((*file)->options().quantization, checkpoint::Quantization::Gguf);
    EXPECT_EQ((*file)->config().sliding_window, (*all)->config().sliding_window);
    const std::string text((*file)->graph_text());
    EXPECT_NE(text.find("= grouped_linear_blocks("), std::string::npos) << text;
    EXPECT_EQ(text.find("= grouped_linear("), std::string::npos) << text;
    for (const auto& [length, g] : goldens)
      EXPECT_TRUE(same_bits(all_logits(**file, g.tokens, 1000), all_logits(**all, g.tokens, 1000)))
          << dtype_name(dtype) << " length " << length;
  }
}

// Interleaved rows, exponents in another file: as the plain numbers of a matrix.
TEST(GptOssMxfp4, RowsReadAsFloatsAndAsBlocks) {
  auto c = checkpoint::Checkpoint::open(folder(), models::families());
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (const char* name :
       {"model.layers.0.mlp.experts.0.gate_proj.weight", "model.layers.2.mlp.experts.4.up_proj.weight",
        "model.layers.1.mlp.experts.3.down_proj.weight"}) {
    const checkpoint::CheckpointTensor* t = c->find(name);
    ASSERT_NE(t, nullptr) << name;
    const auto rows = t->rows(), width = t->row_elements();
    std::vector<float> floats(static_cast<size_t>(rows * width));
    ASSERT_TRUE(c->read_rows(*t, 0, rows, DType::F32, floats.data()).is_ok());
    const auto row_bytes = static_cast<int64_t>(checkpoint::Checkpoint::packed_row_bytes(*t));
    EXPECT_EQ(row_bytes, width / 32 * 17);
    std::vector<uint8_t> row(static_cast<size_t>(row_bytes));
    for (int64_t r = 0; r < rows; r += 7) {
      ASSERT_TRUE(c->read_packed_rows(*t, r, 1, row.data()).is_ok());
      for (int64_t i = 0; i < width; ++i) {
        const uint8_t* block = row.data() + i / 32 * 17;
        const int bits = block[1 + i % 16] >> (i % 32 / 16 * 4) & 15;
        const double want = std::ldexp(bits & 8 ? -kNumbers[bits & 7] : kNumbers[bits & 7], block[0] - 127);
        ASSERT_EQ(floats[static_cast<size_t>(r * width + i)], static_cast<float>(want)) << name << " " << r << " " << i;
      }
    }
  }
}

TEST(GptOssMxfp4, ItIsNotMadeIntoSomethingElse) {
  for (const auto& [asked, word] : {std::pair{checkpoint::Quantization::W8A8Int8, "no int8 form"},
                                    {checkpoint::Quantization::None, "cannot undo"}}) {
    auto e = open_engine(folder(), {.quantization = asked});
    ASSERT_FALSE(e.is_ok());
    EXPECT_NE(e.status().message().find(word), std::string::npos) << e.status().message();
  }
}

}  // namespace
}  // namespace reprise::gpt_oss_test
