// The bits rule: one instruction set gives one answer, whatever the batch, the chunks, the threads and the pages are.
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>

#include "backends/cpu/isa.h"
#include "support/tiny_models.h"

namespace reprise::same_bits_test {
namespace {

using testing_support::all_logits;
using testing_support::EngineSetup;

struct Param {
  std::string model;
  DType dtype;
  std::string isa;
  bool int8_cache = false;
  // GoogleTest writes a text of every parameter at each start; this one is short.
  friend void PrintTo(const Param& p, std::ostream* out) { *out << p.model; }
};

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab, uint32_t seed) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    out.push_back(static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(vocab)));
  }
  return out;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class SameBitsTest : public testing::TestWithParam<Param> {
 protected:
  std::unique_ptr<engine::Engine> open(int threads) {
    EngineSetup s;
    s.dtype = GetParam().dtype;
    if (GetParam().int8_cache) s.kv_dtype = DType::I8;
    s.isa = GetParam().isa;
    s.threads = threads;
    s.context = 0;
    s.total_tokens = 4096;
    s.rows = 300;  // logits of every position in one step
    s.chunk = 600;
    s.context = 0;
    auto e = testing_support::open_engine(testing_support::tiny_model_path(GetParam().model), s);
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    return e.is_ok() ? std::move(*e) : nullptr;
  }
  int64_t length(engine::Engine& e) { return std::min<int64_t>(e.context_length(), 261); }
};

TEST_P(SameBitsTest, ChunkedPrefillIsWholePrefill) {
  auto e = open(2);
  ASSERT_TRUE(e);
  const auto tokens = random_tokens(length(*e), e->config().vocab_size, 1);
  const auto whole = all_logits(*e, tokens, 1000);
  for (int64_t chunk : {7, 64, 128, 129})
    EXPECT_TRUE(same_bits(whole, all_logits(*e, tokens, chunk))) << "chunk " << chunk;
  // Token by token over the first border of a page.
  const auto head = all_logits(*e, std::span(tokens).first(std::min<size_t>(tokens.size(), 131)), 1);
  EXPECT_TRUE(same_bits(std::span(whole).first(head.size()), head));
}

TEST_P(SameBitsTest, PrefillOfOneMoreIsPrefillThenDecode) {
  auto e = open(2);
  ASSERT_TRUE(e);
  const auto vocab = static_cast<size_t>(e->config().vocab_size);
  const auto tokens = random_tokens(length(*e), e->config().vocab_size, 2);
  for (size_t n : {1ul, 2ul, 63ul, 127ul, 128ul, 129ul, 200ul}) {
    if (n + 1 > tokens.size()) continue;
    const std::vector<int32_t> longer(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n) + 1);
    const auto whole = all_logits(*e, longer, 1000);
    engine::Sequence s(longer);
    ASSERT_TRUE(e->reserve(s, s.size()).is_ok());
    engine::StepItem item{&s, static_cast<int64_t>(n)};
    ASSERT_TRUE(e->step({&item, 1}).is_ok());
    item = {&s, 1, 1};
    auto last = e->step({&item, 1});
    ASSERT_TRUE(last.is_ok());
    EXPECT_TRUE(same_bits(*last, std::span(whole).subspan(n * vocab, vocab))) << n;
    e->release(s);
  }
}

TEST_P(SameBitsTest, BatchIsOneByOneAndPagesDoNotMatter) {
  auto e = open(2);
  ASSERT_TRUE(e);
  const int64_t full = length(*e);
  std::vector<std::vector<int32_t>> texts;
  for (int64_t n : {int64_t{1}, int64_t{5}, full / 2, int64_t{17}, full, int64_t{2}})
    texts.push_back(random_tokens(n, e->config().vocab_size, static_cast<uint32_t>(n)));
  std::vector<std::vector<float>> alone;
  for (auto& t : texts) {
    engine::Sequence s(t);
    ASSERT_TRUE(e->reserve(s, s.size()).is_ok());
    const engine::StepItem item{&s, s.size(), 1};
    auto logits = e->step({&item, 1});
    ASSERT_TRUE(logits.is_ok()) << logits.status().message();
    alone.emplace_back(logits->begin(), logits->end());
    e->release(s);  // the pages go back in another order, so the batch below gets others
  }
  // All together: a prefix of each first, then the rest, so that prefill, decode and prefixes mix.
  std::vector<engine::Sequence> sequences(texts.begin(), texts.end());
  std::vector<engine::StepItem> first, second;
  for (size_t i = sequences.size(); i-- > 0;) ASSERT_TRUE(e->reserve(sequences[i], sequences[i].size()).is_ok());
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t n = sequences[i].size();
    const int64_t head = i % 2 ? n - 1 : n / 3;
    if (head > 0) first.push_back({&sequences[i], head});
    second.push_back({&sequences[i], n - head, 1});
  }
  ASSERT_TRUE(e->step(first).is_ok());
  auto logits = e->step(second);
  ASSERT_TRUE(logits.is_ok()) << logits.status().message();
  const auto vocab = static_cast<size_t>(e->config().vocab_size);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(same_bits(alone[i], logits->subspan(i * vocab, vocab))) << i;
  for (auto& s : sequences) e->release(s);
}

TEST_P(SameBitsTest, AnyNumberOfThreads) {
  auto one = open(1), two = open(2), three = open(3);
  ASSERT_TRUE(one && two && three);
  const auto full = random_tokens(length(*one), one->config().vocab_size, 3);
  for (int64_t chunk : {int64_t{1000}, int64_t{1}}) {
    const std::span tokens = chunk == 1 ? std::span(full).first(std::min<size_t>(full.size(), 67)) : std::span(full);
    const auto a = all_logits(*one, tokens, chunk);
    EXPECT_TRUE(same_bits(a, all_logits(*two, tokens, chunk)));
    EXPECT_TRUE(same_bits(a, all_logits(*three, tokens, chunk)));
  }
}

// The plain instruction set computes bf16 and fp16 in fp32, as the tests of its kernels show.
bool is_tested(cpu::Isa isa, DType dtype) { return isa != cpu::Isa::Baseline || dtype == DType::F32; }

std::vector<Param> params() {
  std::vector<Param> out;
  for (auto& model : {"llama_gqa3_tied", "llama_bias", "llama_rope_dynamic", "mistral_window24", "qwen2_untied",
                      "qwen3_tied", "deepseek_v2_dense", "deepseek_v3_dense", "mixtral_top2", "mixtral_one_expert",
                      "qwen3_moe_norm", "qwen3_moe_top8", "qwen2_moe_lopsided", "deepseek_v2_moe", "deepseek_v3_moe",
                      "qwen3_next", "qwen3_5", "granite_hybrid", "nemotron_h"})
    for (DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (cpu::Isa isa : cpu::supported_isas())
        if (is_tested(isa, dtype)) out.push_back({model, dtype, std::string(cpu::isa_name(isa))});
  if (cpu::parse_isa("amx-emulated"))
    for (auto& model : {"llama_gqa3_tied", "qwen3_moe_norm", "deepseek_v3_moe"})
      out.push_back({model, DType::BF16, "amx-emulated"});
  for (auto& model : {"llama_gqa3_tied", "mistral_window24", "qwen3_tied"})
    for (DType dtype : {DType::F32, DType::BF16})
      for (cpu::Isa isa : cpu::supported_isas())
        if (is_tested(isa, dtype)) out.push_back({model, dtype, std::string(cpu::isa_name(isa)), true});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, SameBitsTest, testing::ValuesIn(params()), [](const auto& info) {
  std::string isa = info.param.isa;
  std::replace(isa.begin(), isa.end(), '-', '_');
  return fmt::format("{}_{}{}_{}", info.param.model, dtype_name(info.param.dtype), info.param.int8_cache ? "_i8" : "",
                     isa);
});

TEST(TwoEngines, WithDifferentModelsLiveSideBySide) {
  EngineSetup s;
  s.context = 128;
  auto a = testing_support::open_engine(testing_support::tiny_model_path("qwen3_tied"), s);
  auto b = testing_support::open_engine(testing_support::tiny_model_path("llama_bias"), s);
  ASSERT_TRUE(a.is_ok() && b.is_ok());
  const auto ta = random_tokens(40, (*a)->config().vocab_size, 4), tb = random_tokens(40, (*b)->config().vocab_size, 5);
  const auto la = all_logits(**a, ta, 1000), lb = all_logits(**b, tb, 1000);
  EXPECT_TRUE(same_bits(la, all_logits(**a, ta, 3)));
  EXPECT_TRUE(same_bits(lb, all_logits(**b, tb, 3)));
}

}  // namespace
}  // namespace reprise::same_bits_test
