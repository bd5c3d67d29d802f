// The incremental detokenizer on random ids: whole characters only, and together what decode says.
#include <gtest/gtest.h>

#include <random>

#include "text/detokenizer.h"
#include "text/tokenizer_data.h"
#include "text/utf8.h"

namespace reprise::text::tokenizer_stream_test {
namespace {

class DetokenizerStream : public testing::TestWithParam<const char*> {};

TEST_P(DetokenizerStream, RandomIds) {
  const auto tokenizer = tokenizer_or_skip(GetParam());
  if (!tokenizer) return;
  std::mt19937 random(7);
  // Low ids are the bytes and short pieces, where characters fall apart.
  std::uniform_int_distribution<int32_t> any(-2, tokenizer->vocab_size() + 2);
  std::uniform_int_distribution<int32_t> low(0, std::min(600, tokenizer->vocab_size()));
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> ids(random() % 40);
    for (int32_t& id : ids) id = random() % 2 == 0 ? any(random) : low(random);
    for (const bool skip_special : {false, true}) {
      const std::string whole = tokenizer->decode(ids, skip_special).value();
      IncrementalDetokenizer stream(*tokenizer, skip_special);
      std::string pieces;
      for (int32_t id : ids) {
        const std::string piece = stream.push(id).value();
        ASSERT_TRUE(is_valid_utf8(piece));
        pieces += piece;
      }
      pieces += stream.finish().value();
      ASSERT_EQ(pieces, whole);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DetokenizerStream,
                         testing::Values("smollm2", "qwen3", "deepseek_v3", "spm_llama", "spm_mistral", "spm_gguf"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace reprise::text::tokenizer_stream_test
