// Heads that draft from hidden states: their logits are those of the original formulas; answers with them have the bits
// of answers without, in every graph mode; what they guess, step by step, is what they guess when all is read anew; and
// what does not fit together is refused by name.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/local_world.h"
#include "sched/model_drafter.h"
#include "sched/scheduler.h"
#include "support/answers.h"
#include "support/heads.h"
#include "support/lost_rank.h"
#include "support/vision_golden.h"

namespace reprise::sched::head_drafter_test {
namespace {

using testing_support::guess;
using testing_support::HeadSetup;
using testing_support::open_with_head;

struct Pair {
  std::string model, head;
};
const std::vector<Pair>& pairs() {
  static const std::vector<Pair> all{
      {"deepseek_v3", "deepseek_v3"}, {"glm4_moe", "glm4_moe"},     {"llama", "llama_eagle"}, {"llama", "llama_eagle3"},
      {"llama", "llama_full_eagle3"}, {"qwen3_next", "qwen3_next"}, {"qwen3_5", "qwen3_5"}};
  return all;
}

template <typename T>
std::vector<T> numbers(const checkpoint::SafetensorsFile& file, std::string_view name) {
  for (const auto& t : file.tensors())
    if (t.name == name) {
      std::vector<T> out(t.bytes / sizeof(T));
      std::memcpy(out.data(), file.bytes(t).data(), t.bytes);
      return out;
    }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

double off_by(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  return worst / largest;
}

TEST(HeadDrafter, LogitsAreThoseOfTheOriginalFormula) {
  for (const Pair& p : pairs()) {
    SCOPED_TRACE(p.head);
    auto file = checkpoint::SafetensorsFile::open(testing_support::head_path(p.head) + "/golden.safetensors");
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    auto e = open_with_head({p.model, p.head});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const auto chain = numbers<int32_t>(*file, "chain");
    const auto got = guess(**e, numbers<int32_t>(*file, "tokens"), static_cast<int64_t>(chain.size()));
    EXPECT_LT(off_by(got.logits, numbers<float>(*file, "logits")), 1e-4);
    EXPECT_LT(off_by(got.chain_logits, numbers<float>(*file, "chain_logits")), 1e-4);
    EXPECT_EQ(got.tokens, chain);
  }
}

struct Outcome {
  std::vector<Answer> answers;
  SpeculationStats stats;
};

constexpr int64_t kDrafts = 3;

// Greedy and seeded requests of several lengths, one of which is preempted, and one that goes away.
Outcome run(engine::Engine& e, bool drafts) {
  SchedulerOptions o;
  o.preemption_threshold = 0;
  o.speculation.adaptive = false;
  o.speculation.draft_tokens = kDrafts + 1;
  ModelDrafter* drafter = nullptr;
  if (drafts)
    o.drafter = [&] {
      auto made = std::make_unique<ModelDrafter>(*e.draft(), ModelDrafterOptions{.most_drafts = kDrafts});
      drafter = made.get();
      return made;
    };
  Scheduler scheduler(e, o);
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 6; ++i) {
    Asked a = ask(count_up(2 + i * 29 % 140, i % 4), 24);
    a.request.sampling.ignore_eos = true;
    a.request.sampling.logprobs = i % 3 == 2 ? 30 : 2;
    if (i % 2) a.request.sampling.temperature = 0.7, a.request.sampling.seed = static_cast<uint64_t>(i);
    answers.push_back(a.answer);
    EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  }
  const auto gone = scheduler.add(ask(count_up(40, 1), 100).request);
  for (int i = 0; !scheduler.idle(); ++i) {
    if (i == 5) scheduler.cancel(*gone);
    if (i == 4) {
      Asked important = ask(count_up(200, 5), 3);
      important.request.priority = 5;
      EXPECT_TRUE(scheduler.add(std::move(important.request)).is_ok());
    }
    if (i == 8) scheduler.flush_cache();
    scheduler.step();
    EXPECT_TRUE(scheduler.check_integrity().is_ok());
    if (drafter) {
      const Status whole = drafter->check_integrity();
      EXPECT_TRUE(whole.is_ok()) << whole.message();
    }
  }
  Outcome out{{}, scheduler.stats().speculation};
  for (const auto& a : answers) {
    EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
    out.answers.push_back(*a);
  }
  return out;
}

void expect_same(const Outcome& got, const Outcome& want) {
  for (size_t i = 0; i < want.answers.size(); ++i) {
    EXPECT_EQ(got.answers[i].tokens, want.answers[i].tokens) << "request " << i;
    ASSERT_EQ(got.answers[i].sampled.size(), want.answers[i].sampled.size());
    for (size_t t = 0; t < want.answers[i].sampled.size(); ++t) {
      const SampledToken &g = got.answers[i].sampled[t], &w = want.answers[i].sampled[t];
      EXPECT_EQ(std::memcmp(&*g.logprob, &*w.logprob, sizeof(float)), 0) << "request " << i << ", token " << t;
      EXPECT_EQ(g.top.size(), w.top.size());
    }
  }
}

// A head has the model's embedding and logits' head, where its files do not have their own, and both are there once.
TEST(HeadDrafter, WhatItSharesWithTheModelIsThereOnce) {
  for (const Pair& p : pairs()) {
    SCOPED_TRACE(p.head);
    auto e = open_with_head({p.model, p.head}), bare = open_with_head({p.model, ""});
    ASSERT_TRUE(e.is_ok() && bare.is_ok()) << e.status().message();
    const auto& f = (*bare)->config();
    const auto table = static_cast<size_t>(f.vocab_size * f.hidden_size) * sizeof(float);
    const bool own_head = p.head == "llama_eagle3";
    const size_t shared = f.tie_word_embeddings || own_head ? table : 2 * table;
    // Rows of a matrix are padded to panels, and parameters to pages.
    const size_t saved = (*bare)->memory().weight_bytes - (*e)->memory().weight_bytes;
    EXPECT_GE(saved, shared);
    EXPECT_LT(saved, shared + shared * 7 / 10);
    EXPECT_GE(static_cast<engine::Engine*>((*e)->draft())->memory().weight_bytes, shared);
  }
}

// Pictures are the model's: its head has no tower, and guesses behind their placeholders. Prompts go on behind pictures
// where another left off.
TEST(HeadDrafter, AnswersBehindPicturesAreThoseWithoutAHead) {
  const std::string folder = "../vision/qwen3_5_vl";
  const testing_support::VisionGolden golden("qwen3_5_vl");
  auto e = open_with_head({.model = folder, .head = folder, .chunk = 32});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  ASSERT_TRUE((*e)->tower());
  EXPECT_EQ(static_cast<engine::Engine*>((*e)->draft())->tower(), nullptr);
  const auto tokens = golden.get<int32_t>("tokens");
  std::vector<Tokens> want;
  for (const bool drafts : {false, true}) {
    SchedulerOptions o;
    o.speculation.adaptive = false;
    o.speculation.draft_tokens = kDrafts + 1;
    if (drafts)
      o.drafter = [&] {
        return std::make_unique<ModelDrafter>(*(*e)->draft(), ModelDrafterOptions{.most_drafts = kDrafts});
      };
    Scheduler scheduler(**e, o);
    for (size_t round = 0; round < 2; ++round) {
      Asked a = ask(tokens, 60);
      a.request.prompt.push_back(7);
      a.request.sampling.ignore_eos = true;
      a.request.images = golden.images();
      ASSERT_TRUE(scheduler.add(std::move(a.request)).is_ok());
      while (!scheduler.idle()) scheduler.step();
      ASSERT_TRUE(a.answer->result->status.is_ok()) << a.answer->result->status.message();
      if (!drafts)
        want.push_back(a.answer->tokens);
      else
        EXPECT_EQ(a.answer->tokens, want[round]);
    }
    EXPECT_EQ(scheduler.stats().speculation.draft_tokens > 60, drafts);
  }
}

// On the simulated NPU, whose graphs freeze sizes and which reads no zeros for a negative slot.
TEST(HeadDrafter, AnswersOnAscendAreThoseWithoutAHead) {
  for (const Pair& p : pairs()) {
    // Ascend has no kernels for layers with states, nor for latents of this size.
    if (p.model.starts_with("qwen3") || p.model.starts_with("deepseek")) continue;
    SCOPED_TRACE(p.head);
    HeadSetup s{.model = p.model, .head = p.head, .dtype = DType::BF16, .chunk = 64, .rows = 4};
    s.device = DeviceKind::Ascend;
    auto e = open_with_head(s);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    s.head.clear();
    auto bare = open_with_head(s);
    ASSERT_TRUE(bare.is_ok()) << bare.status().message();
    const Outcome plain = run(**bare, false), drafted = run(**e, true);
    for (size_t i = 0; i < plain.answers.size(); ++i) {
      EXPECT_EQ(drafted.answers[i].tokens, plain.answers[i].tokens) << "request " << i;
    }
    EXPECT_GT(drafted.stats.draft_tokens, 20u);
    // Untrained heads are seldom right, so what they say is looked at: the golden's logits, in bf16.
    auto file = checkpoint::SafetensorsFile::open(testing_support::head_path(p.head) + "/golden.safetensors");
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    s.head = p.head, s.rows = 32;
    e = open_with_head(s);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const auto got = guess(**e, numbers<int32_t>(*file, "tokens"), 2);
    EXPECT_LT(off_by(got.logits, numbers<float>(*file, "logits")), 0.08);
  }
}

// Three short requests with log-probabilities, the second of which is drawn. `predicted`: drafts in place of a head's.
Outcome short_run(engine::Engine& e, bool heads, const std::vector<Answer>& predicted = {}) {
  SchedulerOptions o;
  o.speculation.adaptive = false;
  o.speculation.draft_tokens = kDrafts + 1;
  if (heads)
    o.drafter = [&] { return std::make_unique<ModelDrafter>(*e.draft(), ModelDrafterOptions{.most_drafts = kDrafts}); };
  if (!predicted.empty()) o.speculation.algorithm = spec::Algorithm::Ngram;
  Scheduler scheduler(e, o);
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 3; ++i) {
    Asked a = ask(count_up(3 + i * 17, i), 9);
    a.request.sampling.ignore_eos = true;
    a.request.sampling.logprobs = 2;
    if (i == 1) a.request.sampling.temperature = 0.7, a.request.sampling.seed = 3;
    if (!predicted.empty()) a.request.prediction = predicted[static_cast<size_t>(i)].tokens;
    answers.push_back(a.answer);
    EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  }
  while (!scheduler.idle()) scheduler.step();
  Outcome out{{}, scheduler.stats().speculation};
  for (const auto& a : answers) {
    EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
    out.answers.push_back(*a);
  }
  return out;
}

Result<std::unique_ptr<engine::LocalWorld>> open_over_cards(const HeadSetup& s, int cards) {
  return engine::LocalWorld::start(
      cards,
      [s](std::shared_ptr<ranks::Member> member) {
        HeadSetup mine = s;
        mine.member = std::move(member);
        return open_with_head(mine);
      },
      std::chrono::seconds(120));
}

HeadSetup small_on_ascend(const char* model, const char* head) {
  HeadSetup s{.model = model, .head = head, .dtype = DType::BF16, .chunk = 32, .rows = 2, .context = 64};
  s.device = DeviceKind::Ascend;
  return s;
}

// On simulated cards a follower's steps of both run beside its host: a head's step reads rows that the step of the
// model in front of it has kept.
TEST(HeadDrafter, OverCardsAnswersAreThoseOfOneCard) {
  for (const auto& [model, head] : {std::pair("glm4_moe", "glm4_moe"), std::pair("llama", "llama_full_eagle3")}) {
    SCOPED_TRACE(head);
    const HeadSetup s = small_on_ascend(model, head);
    auto one = open_with_head(s);
    ASSERT_TRUE(one.is_ok()) << one.status().message();
    auto world = open_over_cards(s, 2);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    engine::Engine& front = (*world)->front();
    ASSERT_TRUE(front.overlaps() && front.draft()->overlaps());
    const Outcome alone = short_run(**one, true);
    expect_same(short_run(front, false), alone);
    const Outcome over = short_run(front, true), copied = short_run(front, false, alone.answers);
    expect_same(over, alone);
    expect_same(copied, alone);
    EXPECT_GT(over.stats.draft_tokens, 10u);
    EXPECT_EQ(over.stats.draft_tokens, alone.stats.draft_tokens);
    EXPECT_EQ(over.stats.accepted_tokens, alone.stats.accepted_tokens);
    EXPECT_GT(copied.stats.accepted_tokens, 3u);
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

TEST(HeadDrafter, ACardThatIsLostInADraftEndsAll) {
  for (const int step : {1, 2, 4}) {
    SCOPED_TRACE(step);
    auto world = open_over_cards(small_on_ascend("llama", "llama_eagle"), 2);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    testing_support::expect_end_in_a_draft(**world, step);
  }
}

TEST(HeadDrafter, AnswersAreThoseWithoutAHead) {
  const auto mode = [](GraphMode m) { return std::optional(m); };
  const std::vector<HeadSetup> modes{
      {.dtype = DType::F32, .policy = engine::GraphPolicy::Off},
      {.dtype = DType::BF16, .decode = mode(GraphMode::Whole), .prefill = mode(GraphMode::Whole)},
      {.dtype = DType::BF16, .decode = mode(GraphMode::Piecewise), .pages = 9, .chunk = 48},
  };
  for (const Pair& p : pairs())
    for (HeadSetup s : modes) {
      SCOPED_TRACE(fmt::format("{} with {}, {} pages, {}", p.model, p.head, s.pages, dtype_name(s.dtype)));
      s.model = p.model, s.head = p.head;
      auto e = open_with_head(s);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      HeadSetup without = s;
      without.head.clear();
      auto bare = open_with_head(without);
      ASSERT_TRUE(bare.is_ok()) << bare.status().message();
      const Outcome plain = run(**bare, false), drafted = run(**e, true);
      expect_same(drafted, plain);
      EXPECT_GT(drafted.stats.draft_tokens, 100u);
      EXPECT_LE(drafted.stats.accepted_tokens, drafted.stats.draft_tokens);
    }
}

// Every rank has a part of the head and reads rows that its own part of the model has kept, which are whole: logits of
// guesses and answers have the bits of one rank, and as many drafts come true.
TEST(HeadDrafter, OverRanksGuessesAndAnswersAreThoseOfOneRank) {
  const std::vector<HeadSetup> modes{
      {.dtype = DType::F32, .policy = engine::GraphPolicy::Off},
      {.dtype = DType::BF16, .decode = GraphMode::Whole, .prefill = GraphMode::Whole},
      {.dtype = DType::BF16, .decode = GraphMode::Piecewise, .pages = 9, .chunk = 48},
  };
  size_t turn = 0;
  for (const Pair& p : pairs()) {
    HeadSetup s = modes[turn++ % modes.size()];
    SCOPED_TRACE(fmt::format("{} with {}, {} pages, {}", p.model, p.head, s.pages, dtype_name(s.dtype)));
    s.model = p.model, s.head = p.head;
    auto one = open_with_head(s);
    ASSERT_TRUE(one.is_ok()) << one.status().message();
    auto world = engine::LocalWorld::start(2, [s](std::shared_ptr<ranks::Member> member) {
      HeadSetup mine = s;
      mine.member = std::move(member);
      return open_with_head(mine);
    });
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    engine::Engine& front = (*world)->front();
    const auto a = guess(**one, count_up(30), kDrafts), b = guess(front, count_up(30), kDrafts);
    EXPECT_TRUE(testing_support::same_bits(a.logits, b.logits));
    EXPECT_TRUE(testing_support::same_bits(a.chain_logits, b.chain_logits));
    EXPECT_EQ(a.tokens, b.tokens);
    const Outcome alone = run(**one, true), over = run(front, true);
    expect_same(over, alone);
    EXPECT_GT(over.stats.draft_tokens, 100u);
    EXPECT_EQ(over.stats.draft_tokens, alone.stats.draft_tokens);
    EXPECT_EQ(over.stats.accepted_tokens, alone.stats.accepted_tokens);
    EXPECT_LT(front.memory().weight_bytes, (*one)->memory().weight_bytes);
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

// Lets an answer be this text alone.
class Scripted final : public engine::TokenConstraint {
 public:
  Scripted(Tokens text, int64_t vocab) : text_(std::move(text)), vocab_(vocab) {}
  Result<std::span<const uint64_t>> allowed() override {
    mask_.assign(static_cast<size_t>((vocab_ + 63) / 64), 0);
    if (at_ < text_.size()) mask_[static_cast<size_t>(text_[at_] / 64)] |= uint64_t{1} << (text_[at_] % 64);
    return std::span<const uint64_t>(mask_);
  }
  int64_t allowed_prefix(std::span<const int32_t> tokens) const override {
    return kv::common_prefix(tokens, std::span(text_).subspan(at_));
  }
  Status accept(int32_t token) override { return text_[at_++] == token ? Status::ok() : invalid("token {}", token); }

 private:
  Tokens text_;
  int64_t vocab_;
  size_t at_ = 0;
  std::vector<uint64_t> mask_;
};

// A text that goes on as the head guesses for 0 to 3 tokens, and then otherwise; a loop in which model and head read it
// anew for each guess counts steps, drafts and what came true at each place. So rows of the head's own are replaced by
// the model's, and nothing that was guessed stays.
TEST(HeadDrafter, AcceptanceIsThatOfAPlainSimulation) {
  for (const Pair& p : pairs()) {
    SCOPED_TRACE(p.head);
    auto e = open_with_head({.model = p.model, .head = p.head, .rows = 160});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const auto vocab = static_cast<int32_t>((*e)->vocab_size());
    const Tokens prompt = count_up(110);  // the answer crosses a border of pages
    Tokens text = prompt;
    text.push_back(7);
    uint64_t steps = 0, drafted = 0;
    std::vector<int64_t> came_true(kDrafts);
    for (size_t turn = 1; turn < 14; ++turn) {
      Tokens guessed = guess(**e, text, kDrafts).tokens;
      ASSERT_EQ(guessed.size(), static_cast<size_t>(kDrafts));
      const size_t kept = turn * 3 % (kDrafts + 1);
      if (kept > 0) ++steps;
      drafted += kept;
      for (size_t i = 0; i < kept; ++i) ++came_true[i];
      text.insert(text.end(), guessed.begin(), guessed.begin() + static_cast<ptrdiff_t>(kept));
      text.push_back(kept < guessed.size() ? (guessed[kept] + 1) % vocab : 5);
    }
    text.insert(text.end(), kDrafts, 5);  // the last guesses are of a text that ends, and never right
    const Tokens answer(text.begin() + static_cast<ptrdiff_t>(prompt.size()), text.end());
    SchedulerOptions o;
    o.speculation.adaptive = false;
    o.speculation.draft_tokens = kDrafts + 1;
    o.drafter = [&] {
      return std::make_unique<ModelDrafter>(*(*e)->draft(), ModelDrafterOptions{.most_drafts = kDrafts});
    };
    Scheduler scheduler(**e, o);
    Asked a = ask(prompt, static_cast<int64_t>(answer.size()) - kDrafts);
    a.request.sampling.ignore_eos = true;
    a.request.constraint = std::make_unique<Scripted>(answer, vocab);
    ASSERT_TRUE(scheduler.add(std::move(a.request)).is_ok());
    while (!scheduler.idle()) scheduler.step();
    EXPECT_EQ(a.answer->tokens, Tokens(answer.begin(), answer.end() - kDrafts));
    const SpeculationStats s = scheduler.stats().speculation;
    EXPECT_EQ(s.drafts, steps);
    EXPECT_EQ(s.draft_tokens, drafted);
    for (size_t i = 0; i < came_true.size(); ++i) EXPECT_EQ(s.places.accepted.at(i), came_true[i]) << "place " << i;
  }
}

TEST(HeadDrafter, WhatDoesNotFitIsRefusedByName) {
  const auto message = [](const HeadSetup& s) {
    const auto e = open_with_head(s);
    EXPECT_FALSE(e.is_ok());
    return e.is_ok() ? std::string() : e.status().message();
  };
  EXPECT_NE(message({"llama", "llama"}).find("LlamaForCausalLM has no layer here that predicts further tokens"),
            std::string::npos);
  EXPECT_NE(message({"glm4_moe", "llama_eagle"}).find("it is for an embedding of 131 x 40 and"), std::string::npos)
      << message({"glm4_moe", "llama_eagle"});
  EXPECT_NE(message({"llama", "glm4_moe"}).find("\"Glm4MoeForCausalLM\" is not known; known: LlamaForCausalLMEagle"),
            std::string::npos);
  // LlamaForCausalLM, as some heads have it, is read as a head.
  EXPECT_NE(message({"llama", "../heads/llama"}).find("fc.weight"), std::string::npos);
}

}  // namespace
}  // namespace reprise::sched::head_drafter_test
