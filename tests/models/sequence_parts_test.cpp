// Sequences that are shared out over parts of a world (DP attention) give the bits of one rank: every family, dtype and
// graph mode, with parts that have nothing to do and prompts beside decoding.
#include <gtest/gtest.h>

#include "engine/local_world.h"
#include "engine/shared_step.h"
#include "sched/generator.h"
#include "sched/together.h"
#include "support/ranked_engine.h"

namespace reprise::sequence_parts_test {
namespace {

using testing_support::EngineSetup;
using testing_support::open_ranked;
using testing_support::same_bits;
using testing_support::tiny_model_path;

EngineSetup setup_of(DType dtype) {
  EngineSetup s;
  s.dtype = dtype;
  s.threads = 1;
  s.rows = 64;
  s.chunk = 96;
  s.context = 0;
  s.total_tokens = 1024;
  return s;
}

std::vector<int32_t> some_tokens(int64_t n, int64_t vocab, uint32_t seed) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    out.push_back(static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(vocab)));
  }
  return out;
}

// Three requests, each in a part. The first decodes while the prompts of the others are read in pieces; in the
// beginning and at the end one of them is alone, and all other parts idle.
struct Requests {
  explicit Requests(engine::Engine& engine, std::vector<int> parts) : e(engine), part(std::move(parts)), logits(3) {
    for (const int64_t n : {5, 40, 23})
      sequences.emplace_back(some_tokens(n, e.vocab_size(), static_cast<uint32_t>(n)));
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(e.reserve(sequences[i], 60, part[i]).is_ok());
  }
  ~Requests() {
    for (size_t i = 0; i < 3; ++i) e.release(sequences[i], part[i]);
  }

  engine::StepItem item(size_t i, int64_t count) {
    engine::StepItem out{&sequences[i], count, 1};
    out.part = part[i];
    return out;
  }

  // All logits of so many tokens of each; none: it takes no part.
  void read(std::vector<int64_t> counts) {
    std::vector<engine::StepItem> items;
    for (size_t i = 0; i < 3; ++i)
      if (counts[i] > 0) {
        items.push_back(item(i, counts[i]));
        items.back().logits = items.back().count;
      }
    const auto got = e.step(items);
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    size_t at = 0;
    for (size_t i = 0; i < 3; ++i) {
      const size_t n = static_cast<size_t>(counts[i]) * static_cast<size_t>(e.vocab_size());
      logits[i].insert(logits[i].end(), got->begin() + static_cast<std::ptrdiff_t>(at),
                       got->begin() + static_cast<std::ptrdiff_t>(at + n));
      at += n;
    }
  }

  // A token of each of these, the largest or a drawn one.
  void decode(const std::vector<size_t>& who, bool drawn) {
    std::vector<engine::StepItem> items;
    for (const size_t i : who) {
      items.push_back(item(i, sequences[i].uncached()));
      if (!drawn) continue;
      Draw draw;
      draw.scale = 1 / 0.9f;
      draw.seed = 5 + i;
      draw.position = sequences[i].size();
      items.back().draw = draw;
    }
    const auto ticket = e.submit(items, drawn ? engine::StepOutput::Sampled : engine::StepOutput::NextTokens);
    ASSERT_TRUE(ticket.is_ok()) << ticket.status().message();
    const auto result = e.wait(*ticket);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    for (size_t k = 0; k < who.size(); ++k) sequences[who[k]].append(std::max(0, result->tokens[k]));
  }

  void run() {
    read({5, 0, 0});
    sequences[0].append(7);
    read({1, 17, 0});
    sequences[0].append(9);
    read({1, 23, 20});
    sequences[0].append(11);
    sequences[1].append(3);
    decode({0, 1, 2}, false);
    decode({0, 1, 2}, true);
    decode({2}, false);
    decode({0, 2}, true);
    decode({1}, false);
    for (const size_t i : {0, 1, 2}) {
      std::vector<int64_t> one(3, 0);
      one[i] = sequences[i].uncached();
      read(one);
    }
  }

  engine::Engine& e;
  std::vector<int> part;
  std::vector<engine::Sequence> sequences;
  std::vector<std::vector<float>> logits;
};

void expect_bits_of_one_rank(const std::string& path, EngineSetup setup, int ranks, int parts, int experts = 1) {
  auto alone = testing_support::open_engine(path, setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  Requests one(**alone, {0, 0, 0});
  one.run();
  setup.sequence_parts = parts;
  setup.ep_size = experts;
  auto world = open_ranked(path, setup, ranks);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  for (const std::vector<int>& where :
       {std::vector<int>{0, 0, parts - 1}, {0, 1, 1}, {parts - 1, parts - 1, parts - 1}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} parts, requests in {}", ranks, parts, fmt::join(where, ", ")));
    Requests many(front, where);
    many.run();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(same_bits(one.logits[i], many.logits[i])) << "request " << i;
      EXPECT_EQ(one.sequences[i].tokens(), many.sequences[i].tokens()) << "request " << i;
    }
  }
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

struct Case {
  std::string path;
  DType dtype;
  int ranks, parts, experts = 1;
};

class SequencePartsTest : public testing::TestWithParam<Case> {};

TEST_P(SequencePartsTest, EachPartGivesTheBitsOfOneRank) {
  const Case& c = GetParam();
  const std::string path = c.path.find('/') == std::string::npos
                               ? tiny_model_path(c.path)
                               : std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + c.path;
  expect_bits_of_one_rank(path, setup_of(c.dtype), c.ranks, c.parts, c.experts);
}

INSTANTIATE_TEST_SUITE_P(
    Families, SequencePartsTest,
    testing::Values(Case{"qwen3_tied", DType::BF16, 2, 2}, Case{"llama_gqa3_tied", DType::F32, 3, 3},
                    Case{"llama_bias", DType::F16, 2, 2}, Case{"mistral_window24", DType::F32, 2, 2},
                    Case{"mixtral_top2", DType::BF16, 2, 2, 2}, Case{"qwen2_moe_shared", DType::F32, 2, 2},
                    Case{"qwen3_moe_norm", DType::BF16, 4, 4, 4}, Case{"deepseek_v2_lite", DType::BF16, 2, 2},
                    Case{"deepseek_v3_moe", DType::F32, 3, 3, 3}, Case{"qwen3_tied", DType::F32, 4, 2},
                    Case{"deepseek_v3_moe", DType::BF16, 4, 2, 2},
                    Case{"models_quantised/modelslim_static_bias", DType::BF16, 2, 2},
                    Case{"models_quantised/compressed_moe_dynamic", DType::BF16, 2, 2, 2},
                    Case{"models_quantised/modelslim_mla_mixed", DType::BF16, 2, 2}),
    [](const auto& info) {
      std::string name = fmt::format("{}_{}_{}_in_{}", info.param.path, dtype_name(info.param.dtype), info.param.ranks,
                                     info.param.parts);
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      return name;
    });

TEST(SequencePartsTest, EveryGraphModeGivesTheSameBits) {
  EngineSetup setup = setup_of(DType::BF16);
  for (const std::string model : {"qwen3_tied", "deepseek_v3_moe"})
    for (const auto policy : {engine::GraphPolicy::Off, engine::GraphPolicy::Auto})
      for (const GraphMode prefill : {GraphMode::Piecewise, GraphMode::Whole}) {
        if (policy == engine::GraphPolicy::Off && prefill == GraphMode::Whole) continue;
        SCOPED_TRACE(fmt::format("{} {}", model, graph_mode_name(prefill)));
        setup.policy = policy;
        setup.prefill = prefill;
        expect_bits_of_one_rank(tiny_model_path(model), setup, 2, 2);
      }
}

// Every replay is run again: each rank looks at its own pages, and pages of other parts have the same numbers. What a
// fault has spoilt is computed again in the part that it is of.
TEST(SequencePartsTest, CheckedReplaysFindFaultsAlone) {
  const EngineSetup setup = setup_of(DType::BF16);
  for (const std::string model : {"qwen3_tied", "deepseek_v3_moe"}) {
    auto alone = testing_support::open_engine(tiny_model_path(model), setup);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    Requests one(**alone, {0, 0, 0});
    one.run();
    for (const char* fault : {"", "stale-input@4", "padding-leak@3"}) {
      SCOPED_TRACE(fmt::format("{} {}", model, fault));
      const auto open = [&](std::shared_ptr<ranks::Member> member) -> Result<std::unique_ptr<engine::Engine>> {
        DeviceOptions device;
        device.threads = 1;
        device.pin_threads = false;
        device.member = member;
        ASSIGN_OR_RETURN(Platform platform, make_platform(device));
        engine::EngineOptions o = (*alone)->options();
        o.graph.verify_replay = 1;
        o.graph.report_dir = testing::TempDir();
        if (*fault) {
          ASSIGN_OR_RETURN(const engine::Fault parsed, engine::parse_fault(fault));
          o.graph.faults = {parsed};
        }
        o.member = std::move(member);
        o.sequence_parts = 2;
        return engine::Engine::create(o, std::move(platform));
      };
      auto world = engine::LocalWorld::start(2, open);
      ASSERT_TRUE(world.is_ok()) << world.status().message();
      engine::Engine& front = (*world)->front();
      {
        Requests many(front, {0, 1, 1});
        many.run();
        for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(one.logits[i], many.logits[i])) << "request " << i;
      }
      EXPECT_GT(front.counters().checked, 3u);
      EXPECT_EQ(front.counters().differences, *fault ? 1u : 0u);
      for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
    }
  }
}

// An int8 cache has its scales with its rows.
TEST(SequencePartsTest, AnInt8CacheKeepsTheBits) {
  EngineSetup setup = setup_of(DType::F32);
  setup.kv_dtype = DType::I8;
  expect_bits_of_one_rank(tiny_model_path("llama_gqa4_sharded"), setup, 2, 2);
}

// Each part has pages of its own: the same numbers in two parts are two pages, and a copy is made in one part alone.
TEST(SequencePartsTest, PartsHavePagesOfTheirOwn) {
  EngineSetup setup = setup_of(DType::F32);
  const std::string path = tiny_model_path("llama_gqa4_sharded");
  const auto text = some_tokens(20, 300, 4);
  const auto run = [&](engine::Engine& e, int part) {
    std::vector<float> out;
    engine::Sequence first(std::vector<int32_t>(text.begin(), text.begin() + 15)), second(text);
    EXPECT_TRUE(e.reserve(first, 15, part).is_ok());
    EXPECT_TRUE(e.reserve(second, 20, part).is_ok());
    // What lies under the same numbers in the other part.
    engine::Sequence other(some_tokens(20, 300, 5)), more(some_tokens(20, 300, 6));
    EXPECT_TRUE(e.reserve(other, 20, 0).is_ok());
    EXPECT_TRUE(e.reserve(more, 20, 0).is_ok());
    const auto step = [&](engine::Sequence& s, int64_t count, int of) {
      engine::StepItem item{&s, count, count};
      item.part = of;
      const auto logits = e.step({&item, 1});
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      return logits.is_ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
    };
    (void)step(first, 15, part);
    (void)step(other, 20, 0);
    (void)step(more, 20, 0);
    EXPECT_TRUE(e.copy_page_of(part, first.pages()[0], second.pages()[0]).is_ok());
    second.set_cached(15);
    out = step(second, 5, part);
    EXPECT_TRUE(e.resize_kv(2048).is_ok());
    second.set_cached(15);
    const auto again = step(second, 5, part);
    EXPECT_TRUE(same_bits(out, again));
    e.release(first, part);
    e.release(second, part);
    e.release(other, 0);
    e.release(more, 0);
    return out;
  };
  auto alone = testing_support::open_engine(path, setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  setup.sequence_parts = 2;
  auto world = open_ranked(path, setup, 2);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  EXPECT_TRUE(same_bits(run(**alone, 0), run((*world)->front(), 1)));
  EXPECT_EQ((*world)->front().kv_pool_of(1).total_pages(), (*world)->front().kv_pool().total_pages());
}

struct Kept final : sched::RequestSink {
  explicit Kept(std::vector<int32_t>& out) : tokens(out) {}
  bool token(const sched::SampledToken& t, sched::FinishReason) override { return tokens.push_back(t.token), true; }
  void finished(const sched::RequestResult& r) override { EXPECT_TRUE(r.status.is_ok()) << r.status.message(); }
  std::vector<int32_t>& tokens;
};

// A scheduler for each part, in rounds: greedy requests beside drawn ones and one that the host draws, longer and
// shorter ones, so that prompts meet decoding and in the end one part is idle.
TEST(SequencePartsTest, SchedulersOfAllPartsShareTheirSteps) {
  EngineSetup setup = setup_of(DType::BF16);
  const std::string path = tiny_model_path("qwen3_moe_norm");
  const auto request = [](int64_t vocab, uint32_t i) {
    sched::GenerationRequest r;
    r.prompt = some_tokens(7 + 31 * i, vocab, i);
    r.sampling.max_new_tokens = 3 + 5 * i;
    r.sampling.ignore_eos = true;
    if (i % 3 == 1) r.sampling.temperature = 0.8f, r.sampling.seed = 11;
    if (i % 3 != 1) r.sampling.temperature = 0;
    if (i % 3 == 2) r.sampling.logprobs = 2;
    return r;
  };
  constexpr uint32_t kRequests = 7;
  auto alone = testing_support::open_engine(path, setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  std::vector<sched::GenerationRequest> list;
  for (uint32_t i = 0; i < kRequests; ++i) list.push_back(request((*alone)->vocab_size(), i));
  const auto one = sched::Generator(**alone).run(list);
  ASSERT_TRUE(one.is_ok()) << one.status().message();

  setup.sequence_parts = 2;
  auto world = open_ranked(path, setup, 2);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::SharedStep step((*world)->front());
  // Without drafts, then with some in each part.
  for (const bool drafts : {false, true}) {
    sched::Bell bell;
    sched::SchedulerOptions options;
    options.bell = &bell;
    if (drafts) options.speculation.algorithm = spec::Algorithm::Ngram;
    options.speculation.adaptive = false;
    options.speculation.shortest_match = 1;
    sched::Scheduler first(step.part(0), options), second(step.part(1), options);
    sched::Together together({&first, &second}, bell);
    std::vector<std::vector<int32_t>> tokens(kRequests);
    for (uint32_t i = 0; i < kRequests; ++i) {
      sched::Request r;
      r.prompt = list[i].prompt;
      r.sampling = list[i].sampling;
      r.sink = std::make_unique<Kept>(tokens[i]);
      const auto id = (i % 2 == 0 ? first : second).add(std::move(r));
      ASSERT_TRUE(id.is_ok()) << id.status().message();
      for (uint32_t round = 0; round < 2 * i; ++round) together.step();
    }
    while (!first.idle() || !second.idle()) {
      together.step();
      for (const sched::Scheduler* s : {&first, &second}) {
        const Status sound = s->check_integrity();
        ASSERT_TRUE(sound.is_ok()) << sound.message();
      }
    }
    for (uint32_t i = 0; i < kRequests; ++i) EXPECT_EQ(tokens[i], (*one)[i].tokens) << "request " << i;
    EXPECT_GT((*world)->front().counters().idle_steps[1], 0u);
    EXPECT_GT(first.stats().steps, second.stats().steps);
    for (const sched::Scheduler* s : {&first, &second})
      EXPECT_EQ(s->stats().speculation.draft_tokens > 0, drafts) << "a part of the world";
  }
}

TEST(SequencePartsTest, PartsThatTheWorldHasNotAreRefused) {
  const auto refusal = [](EngineSetup setup, int ranks, int parts) {
    setup.sequence_parts = parts;
    const auto world = open_ranked(tiny_model_path("llama_gqa3_tied"), setup, ranks);
    EXPECT_FALSE(world.is_ok());
    return world.status().message();
  };
  EXPECT_NE(refusal(setup_of(DType::F32), 4, 3).find("allowed: 2, 4"), std::string::npos)
      << refusal(setup_of(DType::F32), 4, 3);
}

TEST(SequencePartsTest, StatesAreNotSharedOutOverParts) {
  EngineSetup setup = setup_of(DType::F32);
  setup.sequence_parts = 2;
  const auto world = open_ranked(tiny_model_path("qwen3_next"), setup, 2);
  ASSERT_FALSE(world.is_ok());
  EXPECT_NE(world.status().message().find("`enable_dp_attention`: Qwen3NextForCausalLM keeps a state"),
            std::string::npos)
      << world.status().message();
}

}  // namespace
}  // namespace reprise::sequence_parts_test
