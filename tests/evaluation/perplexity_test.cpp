// perplexity() against the logits that Hugging Face transformers gave for the same tokens, and against itself in other
// windows and batches.
#include "evaluation/perplexity.h"

#include <gtest/gtest.h>

#include "support/tiny_models.h"

namespace reprise::perplexity_test {
namespace {

using testing_support::EngineSetup;

struct Golden {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // of every position
};

template <class T>
std::vector<T> read(const checkpoint::SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes(*file.find(name));
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// The longest golden that has the logits of all its positions.
Golden read_golden(const std::string& folder) {
  auto file = checkpoint::SafetensorsFile::open(folder + "/golden.safetensors");
  EXPECT_TRUE(file.is_ok()) << file.status().message();
  Golden best;
  for (const auto& t : file->tensors()) {
    if (!t.name.starts_with("tokens.")) continue;
    const std::string length = t.name.substr(7);
    const auto tokens = read<int32_t>(*file, t.name);
    if (read<int32_t>(*file, "positions." + length).size() != tokens.size() || tokens.size() < best.tokens.size())
      continue;
    best = {tokens, read<float>(*file, "logits." + length)};
  }
  EXPECT_GE(best.tokens.size(), 3u) << "no golden has all its logits";
  return best;
}

double mean_nll(const Golden& g) {
  const size_t vocab = g.logits.size() / g.tokens.size();
  double sum = 0;
  for (size_t i = 0; i + 1 < g.tokens.size(); ++i) {
    double total = 0;
    for (size_t v = 0; v < vocab; ++v) total += std::exp(static_cast<double>(g.logits[i * vocab + v]));
    sum += std::log(total) - static_cast<double>(g.logits[i * vocab + static_cast<size_t>(g.tokens[i + 1])]);
  }
  return sum / static_cast<double>(g.tokens.size() - 1);
}

TEST(Perplexity, IsThatOfTheReference) {
  for (const char* name : {"llama_gqa3_tied", "qwen3_untied"}) {
    const std::string folder = testing_support::tiny_model_path(name);
    const Golden golden = read_golden(folder);
    EngineSetup setup;
    setup.rows = 5;  // the window does not fit into the logit rows of one step
    auto engine = testing_support::open_engine(folder, setup);
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    evaluation::PerplexityOptions options;
    options.window = static_cast<int64_t>(golden.tokens.size());
    auto got = evaluation::perplexity(**engine, golden.tokens, options);
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    const double expected = mean_nll(golden);
    EXPECT_NEAR(got->mean_nll, expected, 1e-5 * expected);
    EXPECT_DOUBLE_EQ(got->perplexity, std::exp(got->mean_nll));
    EXPECT_EQ(got->tokens, static_cast<int64_t>(golden.tokens.size()) - 1);
    EXPECT_EQ(got->windows, 1);
  }
}

std::vector<int32_t> tokens_of(int64_t n, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>((i * 37 + i * i) % vocab));
  return tokens;
}

TEST(Perplexity, WindowsAreScoredApartAndTogetherAlike) {
  const std::string folder = testing_support::tiny_model_path("llama_gqa3_tied");
  auto wide = testing_support::open_engine(folder, {});
  EngineSetup narrow_setup;
  narrow_setup.rows = 1;
  auto narrow = testing_support::open_engine(folder, narrow_setup);
  ASSERT_TRUE(wide.is_ok() && narrow.is_ok());
  const auto tokens = tokens_of(101, (*wide)->config().vocab_size);
  evaluation::PerplexityOptions options;
  options.window = 23;
  options.bos = 1;
  int64_t seen = 0, total = 0;
  auto a = evaluation::perplexity(**wide, tokens, options, [&](int64_t now, int64_t all) {
    EXPECT_GT(now, seen);
    seen = now;
    total = all;
  });
  auto b = evaluation::perplexity(**narrow, tokens, options);
  ASSERT_TRUE(a.is_ok() && b.is_ok());
  EXPECT_EQ(a->windows, 5);  // 22 of the text in each
  EXPECT_EQ(a->tokens, 101);
  EXPECT_EQ(seen, 101);
  EXPECT_EQ(total, 101);
  EXPECT_NEAR(a->mean_nll, b->mean_nll, 1e-12);  // the same terms in another order
  // One window by itself, as the first of five.
  options.max_windows = 1;
  auto first = evaluation::perplexity(**wide, tokens, options);
  auto alone = evaluation::perplexity(**wide, std::span(tokens).first(22), options);
  ASSERT_TRUE(first.is_ok() && alone.is_ok());
  EXPECT_EQ(first->mean_nll, alone->mean_nll);
  EXPECT_EQ((*wide)->free_pages(), (*wide)->memory().kv_pages);
}

TEST(Perplexity, BadInputIsRefused) {
  auto engine = testing_support::open_engine(testing_support::tiny_model_path("llama_gqa3_tied"), {});
  ASSERT_TRUE(engine.is_ok());
  const auto message = [&](std::vector<int32_t> tokens, int64_t window) {
    evaluation::PerplexityOptions options;
    options.window = window;
    return evaluation::perplexity(**engine, tokens, options).status().message();
  };
  EXPECT_NE(message({1, 2}, 1).find("allowed: 2 to"), std::string::npos);
  EXPECT_NE(message({1, 2}, 100000).find("allowed: 2 to"), std::string::npos);
  EXPECT_NE(message({1}, 8).find("at least 2"), std::string::npos);
  EXPECT_NE(message({1, 1 << 20}, 8).find("not in the vocabulary"), std::string::npos);
}

}  // namespace
}  // namespace reprise::perplexity_test
