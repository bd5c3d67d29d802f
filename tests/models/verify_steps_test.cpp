// A step with drafts: every row has the bits of the plain decode step with the same history, also behind drafts that
// were wrong before. On the CPU it runs in the decode program as it is; where graphs freeze sizes in a capture of more
// rows, whose other rows read garbage and write nothing that lasts.
#include <gtest/gtest.h>

#include <random>

#include "support/tiny_models.h"
#include "support/wide_latents.h"

namespace reprise::verify_steps_test {
namespace {

using testing_support::EngineSetup;
using testing_support::same_bits;
using Tokens = std::vector<int32_t>;

Tokens random_tokens(int64_t n, int64_t vocab, uint32_t seed) {
  std::mt19937 rng(seed);
  Tokens t(static_cast<size_t>(n));
  for (int32_t& v : t) v = static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab));
  return t;
}

struct Param {
  std::string model;
  DType dtype;
  std::optional<DType> kv_dtype;
  std::optional<engine::GraphPolicy> policy;
  bool frozen = false;  // graphs freeze sizes, as on an accelerator
  DeviceKind device = DeviceKind::Cpu;
};

// What is there before a step in the arena, in the scratch page and in the inputs of rows that belong to nobody.
void spoil(const engine::StagedStep& s) {
  s.fill(s.arena.data(), 0xff, s.arena.size());  // NaN in every dtype
  const auto& shape = s.pool.shape();
  for (size_t c = 0; c < shape.caches.size(); ++c) s.fill(s.pool.cache(c), 0xff, shape.caches[c].page_bytes);
  for (const auto& in : s.stage.inputs()) {
    const int64_t below = in.spec->padding_below.value(s.live);
    const auto numbers = models::ints(in.view);
    for (int64_t i = in.spec->type.shape.elements(s.live); below > 0 && i < in.view.elements(); ++i)
      numbers[static_cast<size_t>(i)] = static_cast<int32_t>(i % below);
  }
}

class VerifySteps : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    EngineSetup s;
    s.dtype = GetParam().dtype;
    s.kv_dtype = GetParam().kv_dtype;
    s.policy = GetParam().policy;
    s.chunk = 512;
    s.most_drafts = 5;
    s.total_tokens = 24 * kv::kPageTokens;
    s.device = GetParam().device;
    s.live_sizes = !GetParam().frozen;
    s.verify = {7, false};
    std::string folder = testing_support::tiny_model_path(GetParam().model);
    if (s.device == DeviceKind::Ascend && GetParam().model.starts_with("deepseek")) {
      wide_.emplace(GetParam().model, 2);
      folder = wide_->path();
    }
    auto e = testing_support::open_engine(folder, s);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    engine_ = std::move(*e);
    vocab_ = static_cast<size_t>(engine_->vocab_size());
    if (GetParam().frozen) engine_->set_step_hook(spoil);
  }

  const engine::StepRunner& runner() const { return *engine_->runner(GetParam().frozen ? "verify" : "decode"); }

  // The bytes of all pages that are nobody's, where the host sees them.
  std::string free_pages() const {
    std::string bytes;
    kv::KvPool& pool = engine_->kv_pool();
    for (size_t c = 0; c < pool.shape().caches.size() && engine_->device().info().host_visible; ++c)
      for (kv::PageId p = 1; p <= pool.total_pages(); ++p)
        if (!pool.in_use(p))
          bytes.append(reinterpret_cast<const char*>(pool.page(c, p)), pool.shape().caches[c].page_bytes);
    return bytes;
  }

  // Logits after every token of `text` from `from` on, one decode step each.
  std::vector<float> decoded(const Tokens& text, int64_t from) {
    engine::Sequence s(Tokens(text.begin(), text.begin() + from));
    EXPECT_TRUE(engine_->reserve(s, static_cast<int64_t>(text.size())).is_ok());
    const engine::StepItem head{&s, from - 1};
    EXPECT_TRUE(engine_->step({&head, 1}).is_ok());
    std::vector<float> out;
    for (size_t i = static_cast<size_t>(from); i <= text.size(); ++i) {
      const engine::StepItem item{&s, 1, 1};
      const auto logits = engine_->step({&item, 1});
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      if (!logits.is_ok()) return out;
      out.insert(out.end(), logits->begin(), logits->end());
      if (i < text.size()) s.append(text[i]);
    }
    engine_->release(s);
    return out;
  }

  std::optional<testing_support::WideLatents> wide_;
  std::unique_ptr<engine::Engine> engine_;
  size_t vocab_ = 0;
};

TEST_P(VerifySteps, RowsHaveTheBitsOfPlainSteps) {
  // Sequences of several lengths: within a page, over its border, behind it; each with other drafts.
  struct One {
    Tokens text;       // what is true
    int64_t begin;     // tokens before the first verify step
    size_t good, bad;  // drafts of a step: so many that are true, then others
    std::vector<float> plain;
    engine::Sequence sequence{Tokens{}};
  };
  std::vector<One> all;
  const int64_t lengths[] = {5, 124, 140, 128}, good[] = {2, 4, 0, 0}, bad[] = {2, 1, 3, 0};
  for (size_t i = 0; i < 4; ++i) {
    One o{random_tokens(lengths[i] + 12, static_cast<int64_t>(vocab_), static_cast<uint32_t>(i)),
          lengths[i],
          static_cast<size_t>(good[i]),
          static_cast<size_t>(bad[i]),
          {}};
    o.plain = decoded(o.text, o.begin);
    o.sequence = engine::Sequence(Tokens(o.text.begin(), o.text.begin() + o.begin));
    all.push_back(std::move(o));
  }
  std::vector<engine::StepItem> heads;
  for (One& o : all) {
    ASSERT_TRUE(engine_->reserve(o.sequence, static_cast<int64_t>(o.text.size()) + 4).is_ok());
    if (o.begin > 1) heads.push_back({&o.sequence, o.begin - 1});
  }
  ASSERT_TRUE(engine_->step(heads).is_ok());
  const uint64_t prompt_steps = engine_->runner("prefill")->stats().steps;
  const size_t planned = engine_->runner("decode")->planned_bytes();
  const uint64_t before = runner().stats().steps;
  const std::string others = free_pages();
  for (int round = 0; round < 2; ++round) {
    std::vector<Tokens> drafts;
    for (const One& o : all) {
      Tokens d(o.text.begin() + o.sequence.size(), o.text.begin() + o.sequence.size() + static_cast<ptrdiff_t>(o.good));
      const int32_t next = o.text[static_cast<size_t>(o.sequence.size()) + o.good];
      for (size_t k = 0; k < o.bad; ++k)
        d.push_back(static_cast<int32_t>((static_cast<size_t>(next) + 1 + k) % vocab_));
      drafts.push_back(std::move(d));
    }
    std::vector<engine::StepItem> items;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto rows = static_cast<int64_t>(1 + drafts[i].size());
      items.push_back({&all[i].sequence, rows, rows, drafts[i]});
    }
    const auto logits = engine_->step(items);
    ASSERT_TRUE(logits.is_ok()) << logits.status().message();
    size_t row = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      One& o = all[i];
      ASSERT_EQ(o.sequence.cached(), o.sequence.size()) << "a step counts its drafts as cached";
      const auto at = static_cast<size_t>(o.sequence.size() - o.begin);
      for (size_t k = 0; k <= o.good; ++k)
        EXPECT_TRUE(same_bits(logits->subspan((row + k) * vocab_, vocab_),
                              std::span(o.plain).subspan((at + k) * vocab_, vocab_)))
            << "sequence " << i << ", row " << k << ", round " << round;
      row += 1 + drafts[i].size();
      // The true drafts, and the token behind them.
      for (size_t k = 0; k <= o.good; ++k) o.sequence.append(o.text[static_cast<size_t>(o.sequence.size())]);
      o.sequence.commit(static_cast<int64_t>(o.good));
      EXPECT_EQ(o.sequence.cached(), o.sequence.size() - 1);
    }
  }
  EXPECT_EQ(engine_->runner("prefill")->stats().steps, prompt_steps) << "a verify step ran as a prompt";
  EXPECT_EQ(engine_->runner("decode")->planned_bytes(), planned);
  EXPECT_EQ(runner().stats().steps, before + 2);
  if (GetParam().frozen) {
    EXPECT_TRUE(runner().stats().fallbacks.empty());
    EXPECT_GT(runner().stats().padded_rows, 0u);
    EXPECT_TRUE(free_pages() == others) << "a step with drafts has written to a page of nobody";
  }
  for (One& o : all) engine_->release(o.sequence);
}

TEST_P(VerifySteps, DrawnTokensAreThoseOfPlainSteps) {
  if (!engine_->has_sampled_steps()) GTEST_SKIP() << "its device draws no tokens";
  const Tokens text = random_tokens(30, static_cast<int64_t>(vocab_), 9);
  const std::vector<TokenBias> biases{{3, 2.0f}, {5, -4.0f}};
  Draw draw;
  draw.scale = 1.2f, draw.top_p = 0.9f, draw.seed = 11, draw.position = 20, draw.logprobs = 2;
  struct Drawn {
    Tokens tokens, tops;
    std::vector<float> logprobs;
  } plain, verified;
  const auto keep = [](Drawn& out, const engine::StepResult& r) {
    out.tokens.insert(out.tokens.end(), r.tokens.begin(), r.tokens.end());
    out.tops.insert(out.tops.end(), r.top_tokens.begin(), r.top_tokens.end());
    out.logprobs.insert(out.logprobs.end(), r.logprobs.begin(), r.logprobs.end());
  };
  const auto step = [&](engine::StepItem item, Drawn& out) {
    item.draw = draw;
    item.draw->position = item.sequence->size();
    item.edits.biases = biases;
    const auto ticket = engine_->submit({&item, 1}, engine::StepOutput::Sampled);
    ASSERT_TRUE(ticket.is_ok()) << ticket.status().message();
    const auto result = engine_->wait(*ticket);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    keep(out, *result);
  };
  engine::Sequence s(Tokens(text.begin(), text.begin() + 20));
  ASSERT_TRUE(engine_->reserve(s, 32).is_ok());
  const engine::StepItem head{&s, 19};
  ASSERT_TRUE(engine_->step({&head, 1}).is_ok());
  for (size_t i = 20; i <= 25; ++i) {
    ASSERT_NO_FATAL_FAILURE(step({&s, 1, 1}, plain));
    s.append(text[i]);
  }
  engine_->release(s);
  engine::Sequence t(Tokens(text.begin(), text.begin() + 20));
  ASSERT_TRUE(engine_->reserve(t, 32).is_ok());
  const engine::StepItem again{&t, 19};
  ASSERT_TRUE(engine_->step({&again, 1}).is_ok());
  ASSERT_NO_FATAL_FAILURE(step({&t, 6, 6, std::span(text).subspan(20, 5)}, verified));
  engine_->release(t);
  EXPECT_EQ(plain.tokens, verified.tokens);
  EXPECT_EQ(plain.tops, verified.tops);
  EXPECT_TRUE(same_bits(plain.logprobs, verified.logprobs));
}

TEST_P(VerifySteps, BadDraftsAreErrors) {
  engine::Sequence s(random_tokens(20, static_cast<int64_t>(vocab_), 1));
  ASSERT_TRUE(engine_->reserve(s, 24).is_ok());
  const auto fails = [&](const engine::StepItem& item, std::string_view part) {
    const auto done = engine_->step({&item, 1});
    ASSERT_FALSE(done.is_ok());
    EXPECT_NE(done.status().message().find(part), std::string::npos) << done.status().message();
    EXPECT_EQ(s.cached(), 0);
  };
  const Tokens drafts{1, 2}, unknown{static_cast<int32_t>(vocab_)};
  fails({&s, 12, 3, drafts}, "drafts behind token 10 of 20");
  fails({&s, 2, 2, drafts}, "0 tokens of a sequence");
  fails({&s, 21, 2, unknown}, "outside the vocabulary");
  engine_->release(s);
}

std::vector<Param> params() {
  std::vector<Param> out;
  for (auto* model : {"llama_gqa3_tied", "mistral_window24", "qwen3_tied", "deepseek_v2_moe", "mixtral_top2",
                      "qwen3_next", "qwen3_5", "granite_hybrid"})
    for (DType dtype : {DType::F32, DType::BF16}) out.push_back({model, dtype, {}, {}});
  out.push_back({"llama_gqa3_tied", DType::BF16, DType::I8, {}});
  out.push_back({"qwen3_tied", DType::BF16, {}, engine::GraphPolicy::Off});
  for (auto* model :
       {"llama_gqa3_tied", "deepseek_v2_moe", "mistral_window24", "qwen3_next", "qwen3_5", "granite_hybrid"})
    out.push_back({model, DType::BF16, {}, {}, true});
  for (auto* model : {"qwen3_tied", "qwen3_moe_norm", "deepseek_v2_lite"})
    out.push_back({model, DType::BF16, {}, {}, true, DeviceKind::Ascend});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, VerifySteps, testing::ValuesIn(params()), [](const auto& info) {
  const Param& p = info.param;
  return fmt::format("{}_{}{}{}{}", p.model, dtype_name(p.dtype), p.kv_dtype ? "_i8" : "", p.policy ? "_eager" : "",
                     p.device == DeviceKind::Ascend ? "_ascend"
                     : p.frozen                     ? "_frozen"
                                                    : "");
});

}  // namespace
}  // namespace reprise::verify_steps_test
