// Heads that draft for ranks that share out requests (DP attention): logits of their guesses, answers, and what is
// guessed behind each text have the bits of one rank, in every graph mode, with experts shared out, with parts that
// have nothing to do and with prompts beside decoding. Each part's rows stay its own, although pages of all parts have
// the same numbers.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "engine/local_world.h"
#include "engine/shared_step.h"
#include "sched/model_drafter.h"
#include "sched/together.h"
#include "support/answers.h"
#include "support/applied.h"
#include "support/heads.h"
#include "support/wide_latents.h"

namespace reprise::sched::head_parts_test {
namespace {

using testing_support::Guess;
using testing_support::HeadSetup;
using testing_support::HeldText;
using testing_support::open_with_head;
using testing_support::same_bits;

constexpr int64_t kDrafts = 3;

struct World {
  HeadSetup setup;
  int ranks, parts;
  int64_t experts = 1;
};

Result<std::unique_ptr<engine::LocalWorld>> open_world(const World& w) {
  HeadSetup s = w.setup;
  s.parts = w.parts;
  s.ep_size = w.experts;
  return engine::LocalWorld::start(
      w.ranks,
      [s](std::shared_ptr<ranks::Member> member) {
        HeadSetup mine = s;
        mine.member = std::move(member);
        return open_with_head(mine);
      },
      std::chrono::seconds(120));
}

void expect_end(engine::LocalWorld& world) {
  for (const Status& end : world.stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

HeadSetup with(const char* model, const char* head, DType dtype = DType::F32) {
  return {.model = model, .head = head, .dtype = dtype};
}

HeadSetup in_mode(HeadSetup s, std::string_view mode) {
  if (mode == "eager") s.policy = engine::GraphPolicy::Off;
  if (mode == "whole") s.decode = s.prefill = GraphMode::Whole;
  if (mode == "pieces") s.decode = s.prefill = GraphMode::Piecewise;
  return s;
}

void expect_same(const Guess& got, const Guess& want) {
  EXPECT_TRUE(same_bits(got.logits, want.logits));
  EXPECT_TRUE(same_bits(got.chain_logits, want.chain_logits));
  EXPECT_EQ(got.tokens, want.tokens);
}

// A text in each part, all in pages of the same numbers, and the longest in the first: rows that the head leaves behind
// a shorter text lie at slots where the longer one has its own.
void expect_guesses_of_one_rank(const World& w) {
  auto alone = open_with_head(w.setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  auto world = open_world(w);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  std::vector<Guess> want;
  std::vector<std::unique_ptr<HeldText>> texts;
  for (int part = 0; part < w.parts; ++part) {
    const Tokens text = count_up(31 - 9 * part, 3 + part);
    want.push_back(HeldText(**alone, text, kDrafts).guess());
    texts.push_back(std::make_unique<HeldText>(front, text, kDrafts, part));
  }
  for (int round = 0; round < 2; ++round)
    for (int part = 0; part < w.parts; ++part) {
      SCOPED_TRACE(fmt::format("round {}, part {}", round, part));
      expect_same(texts[static_cast<size_t>(part)]->guess(), want[static_cast<size_t>(part)]);
    }
  EXPECT_GT(testing_support::applied(*front.draft(), "are in this cache"), 0);
  EXPECT_GT(front.draft()->counters().idle_steps[0], 0u);
  texts.clear();
  expect_end(**world);
}

TEST(HeadParts, GuessesHaveTheBitsOfOneRank) {
  for (const World& w :
       {World{with("deepseek_v3", "deepseek_v3"), 2, 2},
        World{with("deepseek_v3", "deepseek_v3", DType::BF16), 4, 2, 2},
        World{with("deepseek_v3", "deepseek_v3", DType::BF16), 2, 2, 2},
        World{with("glm4_moe", "glm4_moe", DType::BF16), 2, 2, 2}, World{with("glm4_moe", "glm4_moe"), 4, 2},
        World{with("llama", "llama_eagle"), 2, 2}, World{with("llama", "llama_eagle", DType::F16), 4, 2},
        World{with("llama", "llama_eagle3", DType::BF16), 2, 2}, World{with("llama", "llama_eagle3"), 4, 2},
        World{with("llama", "llama_full_eagle3"), 4, 4}}) {
    SCOPED_TRACE(fmt::format("{} with {} in {}, {} ranks, {} parts, experts in {}", w.setup.model, w.setup.head,
                             dtype_name(w.setup.dtype), w.ranks, w.parts, w.experts));
    expect_guesses_of_one_rank(w);
  }
}

// What is guessed behind each text, whoever asks.
class Overheard final : public spec::Drafter {
 public:
  using Guesses = std::map<Tokens, Tokens>;
  Overheard(engine::Executor& head, Guesses& guesses)
      : inner_(head, ModelDrafterOptions{.most_drafts = kDrafts}), guesses_(guesses) {}
  void begin(const spec::Start& start) override { inner_.begin(start); }
  void propose(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override {
    inner_.propose(wishes, out);
    EXPECT_TRUE(inner_.check_integrity().is_ok()) << inner_.check_integrity().message();
    for (size_t i = 0; i < wishes.size(); ++i) {
      Tokens& known = guesses_[Tokens(wishes[i].tokens.begin(), wishes[i].tokens.end())];
      if (out[i].tokens.size() > known.size()) known = out[i].tokens;
    }
  }
  bool foresee(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override {
    return inner_.foresee(wishes, out);
  }
  void judged(uint64_t id, int64_t verified, int64_t accepted) override { inner_.judged(id, verified, accepted); }
  void end(uint64_t id, std::span<const int32_t> answer) override { inner_.end(id, answer); }
  void flush() override { inner_.flush(); }

 private:
  ModelDrafter inner_;
  Guesses& guesses_;
};

struct Outcome {
  std::vector<std::shared_ptr<Answer>> answers;
  Overheard::Guesses guesses;
  uint64_t drafted = 0;
};

SchedulerOptions options_of(engine::Executor& executor, Bell& bell, Overheard::Guesses& guesses) {
  SchedulerOptions o;
  o.bell = &bell;
  o.speculation.adaptive = false;
  o.speculation.draft_tokens = kDrafts + 1;
  o.drafter = [&executor, &guesses] { return std::make_unique<Overheard>(*executor.draft(), guesses); };
  return o;
}

// Greedy and drawn requests, some with log-probabilities, of which two come while others decode. Of several executors
// the first one gets most of them, so the others have nothing to do in the end.
Outcome run(const std::vector<engine::Executor*>& executors) {
  constexpr int kRequests = 7;
  Outcome out;
  Bell bell;
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  std::vector<Scheduler*> all;
  for (engine::Executor* e : executors) {
    schedulers.push_back(std::make_unique<Scheduler>(*e, options_of(*e, bell, out.guesses)));
    all.push_back(schedulers.back().get());
  }
  Together together(all, bell);
  const auto idle = [&] { return std::all_of(all.begin(), all.end(), [](Scheduler* s) { return s->idle(); }); };
  for (int i = 0, steps = 0; i < kRequests || !idle(); ++steps) {
    if (i < kRequests && (i < 5 || steps > 3 * i)) {
      Asked a = ask(count_up(2 + i * 29 % 140, i % 4), 18 - 2 * i);
      a.request.sampling.ignore_eos = true;
      if (i % 3 == 0) a.request.sampling.logprobs = 2;
      if (i % 2 == 1) a.request.sampling.temperature = 0.7, a.request.sampling.seed = static_cast<uint64_t>(i);
      out.answers.push_back(a.answer);
      const size_t where = i % 3 == 1 ? 1 % all.size() : 0;
      EXPECT_TRUE(all[where]->add(std::move(a.request)).is_ok());
      if (++i < 5) continue;
    }
    together.step();
    for (Scheduler* s : all) EXPECT_TRUE(s->check_integrity().is_ok()) << s->check_integrity().message();
  }
  for (Scheduler* s : all) out.drafted += s->stats().speculation.draft_tokens;
  for (const auto& a : out.answers) EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
  return out;
}

void expect_same(const Outcome& got, const Outcome& want) {
  for (size_t i = 0; i < want.answers.size(); ++i) {
    const Answer &g = *got.answers[i], &w = *want.answers[i];
    EXPECT_EQ(g.tokens, w.tokens) << "request " << i;
    ASSERT_EQ(g.sampled.size(), w.sampled.size());
    for (size_t t = 0; t < w.sampled.size(); ++t) {
      ASSERT_EQ(g.sampled[t].logprob.has_value(), w.sampled[t].logprob.has_value());
      if (!w.sampled[t].logprob) continue;
      EXPECT_EQ(std::memcmp(&*g.sampled[t].logprob, &*w.sampled[t].logprob, sizeof(float)), 0)
          << "request " << i << ", token " << t;
    }
  }
  // A text may be given more drafts here than there.
  size_t common = 0;
  for (const auto& [text, tokens] : want.guesses) {
    const auto found = got.guesses.find(text);
    if (found == got.guesses.end()) continue;
    const size_t n = std::min(tokens.size(), found->second.size());
    common += n;
    EXPECT_EQ(Tokens(found->second.begin(), found->second.begin() + static_cast<ptrdiff_t>(n)),
              Tokens(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n)))
        << "behind " << text.size() << " tokens";
  }
  EXPECT_GT(common, 60u);
}

Outcome run_in_parts(engine::Engine& front) {
  engine::SharedStep step(front);
  std::vector<engine::Executor*> parts;
  for (int part = 0; part < step.parts(); ++part) parts.push_back(&step.part(part));
  return run(parts);
}

void expect_answers_of_one_rank(const World& w) {
  auto alone = open_with_head(w.setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Outcome one = run({alone->get()});
  EXPECT_GT(one.drafted, 60u);
  auto world = open_world(w);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  const Outcome many = run_in_parts(front);
  expect_same(many, one);
  EXPECT_GT(many.drafted, 60u);
  EXPECT_GT(front.counters().idle_steps[1], 0u);
  EXPECT_GT(front.draft()->counters().idle_steps[1], 20u);
  EXPECT_GT(front.draft()->counters().idle_steps[0], 5u);
  expect_end(**world);
}

TEST(HeadParts, AnswersAndGuessesAreThoseOfOneRankInEveryMode) {
  for (const char* model : {"deepseek_v3", "glm4_moe"})
    for (const char* mode : {"eager", "whole", "pieces"}) {
      SCOPED_TRACE(fmt::format("{} {}", model, mode));
      expect_answers_of_one_rank({in_mode(with(model, model, DType::BF16), mode), 2, 2, 2});
    }
}

TEST(HeadParts, AnswersAndGuessesOfTrainedHeadsAreThoseOfOneRank) {
  for (const char* head : {"llama_eagle", "llama_eagle3", "llama_full_eagle3"}) {
    SCOPED_TRACE(head);
    expect_answers_of_one_rank({with("llama", head), 2, 2});
  }
}

TEST(HeadParts, PartsOfSeveralRanksAnswerAsOneRank) {
  expect_answers_of_one_rank({with("deepseek_v3", "deepseek_v3", DType::BF16), 4, 2, 4});
  expect_answers_of_one_rank({with("llama", "llama_eagle3"), 4, 2});
}

// Rows that a model keeps are among what is compared, and among what is computed again of a part's texts.
TEST(HeadParts, CheckedReplaysFindFaultsAlone) {
  const World plain{with("deepseek_v3", "deepseek_v3", DType::BF16), 2, 2};
  auto alone = open_with_head(plain.setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Outcome one = run({alone->get()});
  for (const char* fault : {"", "stale-input@4", "padding-leak@6"}) {
    SCOPED_TRACE(fault);
    World w = plain;
    w.setup.verify_replay = 1;
    w.setup.fault = fault;
    auto world = open_world(w);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    engine::Engine& front = (*world)->front();
    expect_same(run_in_parts(front), one);
    EXPECT_GT(front.counters().checked, 10u);
    EXPECT_EQ(front.counters().differences, *fault ? 1u : 0u);
    expect_end(**world);
  }
}

HeadSetup on_ascend(const std::string& model, const std::string& head, int64_t rows = 8) {
  HeadSetup s{.model = model, .head = head, .dtype = DType::BF16, .chunk = 64, .rows = rows};
  s.device = DeviceKind::Ascend;
  return s;
}

// On simulated cards the host stages what differs over parts: also where a head leaves its rows.
TEST(HeadParts, OverCardsGuessesHaveTheBitsOfOneCard) {
  const testing_support::WideLatents wide("../heads/deepseek_v3", 4);
  expect_guesses_of_one_rank({on_ascend(wide.path(), wide.path(), 32), 2, 2, 2});
  expect_guesses_of_one_rank({on_ascend("glm4_moe", "glm4_moe", 32), 4, 2});
  expect_guesses_of_one_rank({on_ascend("llama", "llama_full_eagle3", 32), 2, 2});
}

TEST(HeadParts, OverCardsAnswersAndGuessesAreThoseOfOneCardInEveryMode) {
  const testing_support::WideLatents wide("../heads/deepseek_v3", 4);
  for (const char* mode : {"eager", "whole", "pieces"}) {
    SCOPED_TRACE(mode);
    expect_answers_of_one_rank({in_mode(on_ascend(wide.path(), wide.path()), mode), 2, 2, 2});
  }
  expect_answers_of_one_rank({on_ascend("llama", "llama_eagle"), 2, 2});
}

// The checkpoint of heads/glm4_moe with rows of 64 numbers, which operators send to the cards of their experts; random
// weights.
class SentRows {
 public:
  SentRows() : to_(fmt::format("{}/reprise_sent_rows_{}", testing::TempDir(), ::getpid())) {
    std::filesystem::create_directories(to_);
    const std::string from = testing_support::head_path("glm4_moe");
    Json config = *parse_json(*read_file(from + "/config.json"), "config.json");
    config["hidden_size"] = 64;
    config["moe_intermediate_size"] = 32;
    std::ofstream(to_ + "/config.json") << config.dump();
    const auto file = checkpoint::SafetensorsFile::open(from + "/model.safetensors");
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    const std::map<int64_t, int64_t> wide{{36, 64}, {72, 128}, {14, 32}};
    std::deque<std::vector<float>> values;  // the tensors point into it
    std::vector<checkpoint::TensorToWrite> tensors;
    std::mt19937 rng(29);
    std::uniform_real_distribution<float> near(-0.25f, 0.25f);
    for (const checkpoint::StoredTensor& t : file->tensors()) {
      std::vector<int64_t> shape = t.shape;
      size_t count = 1;
      for (int64_t& n : shape) {
        if (const auto wider = wide.find(n); wider != wide.end()) n = wider->second;
        count *= static_cast<size_t>(n);
      }
      std::vector<float>& v = values.emplace_back(count);
      for (float& x : v) x = near(rng) + (t.name.ends_with("norm.weight") ? 1.f : 0.f);
      tensors.push_back({t.name, DType::F32, shape, {reinterpret_cast<const uint8_t*>(v.data()), 4 * count}});
    }
    const Status written = checkpoint::write_safetensors(to_ + "/model.safetensors", tensors);
    EXPECT_TRUE(written.is_ok()) << written.message();
  }
  ~SentRows() { std::filesystem::remove_all(to_); }
  SentRows(const SentRows&) = delete;
  SentRows& operator=(const SentRows&) = delete;
  const std::string& path() const { return to_; }

 private:
  std::string to_;
};

// Requests and experts are shared out, and rows are sent: of the model, and of the layer that drafts.
TEST(HeadParts, RowsAreSentToTheCardsOfTheirExperts) {
  const SentRows model;
  World w{on_ascend(model.path(), model.path()), 2, 2, 2};
  w.setup.dispatch = true;
  expect_answers_of_one_rank(w);
  auto world = open_world(w);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  for (const engine::Engine* e : {&front, front.draft()})
    EXPECT_GT(testing_support::applied(*e, "rows are sent to the ranks of their experts"), 0);
  expect_end(**world);
}

}  // namespace
}  // namespace reprise::sched::head_parts_test
