// A model over several ranks gives the bits of one rank: every family, dtype and quantisation, in prompts, decode
// steps, and steps that return tokens.
#include <gtest/gtest.h>

#include "support/goldens.h"
#include "support/ranked_engine.h"

namespace reprise::ranks_test {
namespace {

using testing_support::all_logits;
using testing_support::EngineSetup;
using testing_support::open_ranked;
using testing_support::same_bits;
using testing_support::tiny_model_path;

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab, uint32_t seed) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    out.push_back(static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(vocab)));
  }
  return out;
}

EngineSetup small_setup(DType dtype) {
  EngineSetup s;
  s.dtype = dtype;
  s.threads = 1;
  s.rows = 160;
  s.chunk = 160;
  s.context = 0;
  s.total_tokens = 2048;
  return s;
}

// What a step of each kind gives for some sequences: a prompt with all logits over the border of a page, decode steps
// token by token, and greedy and drawn tokens of a mixed batch.
struct Answers {
  std::vector<float> prompt, decode;
  std::vector<int32_t> tokens;
};

Answers answers_of(engine::Engine& e) {
  Answers a;
  const int64_t length = std::min<int64_t>(e.context_length(), 133);
  const auto text = random_tokens(length, e.vocab_size(), 1);
  a.prompt = all_logits(e, text, 70);
  a.decode = all_logits(e, std::span(text).first(6), 1);
  std::vector<engine::Sequence> sequences;
  for (const int64_t n : {3, 17, 30})
    sequences.emplace_back(random_tokens(n, e.vocab_size(), static_cast<uint32_t>(n)));
  for (auto& s : sequences) EXPECT_TRUE(e.reserve(s, s.size() + 8).is_ok());
  const std::vector<uint64_t> allowed(static_cast<size_t>((e.vocab_size() + 63) / 64), 0x9249249249249249u);
  std::vector<TokenCount> counts;
  for (int32_t token = 0; token < 20; ++token) counts.push_back({token, token % 3});
  for (int step = 0; step < 6; ++step) {
    const bool drawn = step % 2 == 1;
    std::vector<engine::StepItem> items;
    for (size_t i = 0; i < sequences.size(); ++i) {
      engine::StepItem item{&sequences[i], sequences[i].uncached(), 1};
      if (drawn) {
        Draw draw;
        draw.scale = 1 / 0.8f;
        draw.seed = 17 + i;
        draw.position = sequences[i].size();
        item.draw = draw;
        if (i > 0) item.edits = {.counts = counts, .repetition = 1.8f, .frequency = 0.2f};
        if (i == 2) item.edits.allowed = allowed;
      }
      items.push_back(item);
    }
    const auto ticket = e.submit(items, drawn ? engine::StepOutput::Sampled : engine::StepOutput::NextTokens);
    EXPECT_TRUE(ticket.is_ok()) << ticket.status().message();
    if (!ticket.is_ok()) break;
    const auto result = e.wait(*ticket);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    if (!result.is_ok()) break;
    for (size_t i = 0; i < sequences.size(); ++i) {
      a.tokens.push_back(result->tokens[i]);
      sequences[i].append(std::max(0, result->tokens[i]));
    }
  }
  for (auto& s : sequences) e.release(s);
  return a;
}

void expect_same(const Answers& one, const Answers& many, const std::string& what) {
  EXPECT_TRUE(same_bits(one.prompt, many.prompt)) << what << ": prompt";
  EXPECT_TRUE(same_bits(one.decode, many.decode)) << what << ": decode";
  EXPECT_EQ(one.tokens, many.tokens) << what;
}

// A world, and over how many parts of it whole experts are shared out.
struct Sizes {
  Sizes(int ranks, int parts = 1) : size(ranks), experts(parts) {}
  int size, experts;
};

void expect_same_bits_over(const std::string& path, EngineSetup setup, const std::vector<Sizes>& sizes) {
  auto alone = testing_support::open_engine(path, setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Answers one = answers_of(**alone);
  const size_t weights = (*alone)->memory().weight_bytes;
  for (const auto& [size, experts] : sizes) {
    setup.ep_size = experts;
    auto world = open_ranked(path, setup, size);
    ASSERT_TRUE(world.is_ok()) << size << " ranks: " << world.status().message();
    EXPECT_LT((*world)->front().memory().weight_bytes, weights) << size;
    expect_same(one, answers_of((*world)->front()), fmt::format("{} ranks, experts over {}", size, experts));
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

std::string printed(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

struct Case {
  std::string model;
  DType dtype;
  std::vector<Sizes> sizes;
};

class RanksTest : public testing::TestWithParam<Case> {};

TEST_P(RanksTest, AnyNumberOfRanksGivesTheSameBits) {
  const Case& c = GetParam();
  expect_same_bits_over(tiny_model_path(c.model), small_setup(c.dtype), c.sizes);
}

INSTANTIATE_TEST_SUITE_P(
    Families, RanksTest,
    testing::Values(Case{"llama_bias", DType::BF16, {3}}, Case{"llama_gqa4_sharded", DType::BF16, {8}},
                    Case{"llama_gqa3_tied", DType::F32, {2, 3}}, Case{"qwen3_tied", DType::BF16, {2, 4}},
                    Case{"qwen2_untied", DType::F16, {2}}, Case{"mistral_window24", DType::F32, {2}},
                    Case{"mixtral_top2", DType::BF16, {2}}, Case{"qwen2_moe_shared", DType::F32, {2}},
                    Case{"deepseek_v2_lite", DType::BF16, {2}}, Case{"deepseek_v3_moe", DType::F32, {2, 3}},
                    Case{"phi3_partial", DType::BF16, {2}}, Case{"gemma2", DType::F32, {2}},
                    Case{"olmo2", DType::BF16, {2}}, Case{"starcoder2", DType::F32, {2}},
                    Case{"minimax_m2", DType::BF16, {2}}, Case{"gpt_oss", DType::BF16, {2, 6}},
                    Case{"gpt_oss", DType::F32, {2}}),
    [](const auto& info) {
      return printed(info.param.model + std::string("_") + std::string(dtype_name(info.param.dtype)));
    });

// Whole experts on each rank, or a part of the rows of some: uneven counts, fewer experts a rank than a token goes to,
// and one alone.
INSTANTIATE_TEST_SUITE_P(
    Experts, RanksTest,
    testing::Values(
        Case{"mixtral_top2", DType::BF16, {{2, 2}, {4, 2}, {4, 4}}}, Case{"mixtral_one_expert", DType::F32, {{2, 2}}},
        Case{"qwen2_moe_shared", DType::F16, {{2, 2}, {4, 2}}}, Case{"qwen2_moe_lopsided", DType::F32, {{2, 2}}},
        Case{"qwen3_moe_norm", DType::F32, {{2, 2}, {4, 4}}}, Case{"qwen3_moe_top1", DType::BF16, {{2, 2}}},
        Case{"qwen3_moe_top8", DType::BF16, {{2, 2}, {4, 2}}}, Case{"deepseek_v2_lite", DType::BF16, {{2, 2}}},
        Case{"deepseek_v2_moe", DType::F32, {{2, 2}}}, Case{"deepseek_v3_moe", DType::BF16, {{2, 2}, {3, 3}}},
        Case{"gpt_oss", DType::F32, {{2, 2}, {4, 2}, {4, 4}}}, Case{"gpt_oss", DType::BF16, {{2, 2}, {4, 2}}}),
    [](const auto& info) {
      return printed(info.param.model + std::string("_") + std::string(dtype_name(info.param.dtype)));
    });

// The families whose layers are those of the ones above in another order, with other norms, scales or windows.
INSTANTIATE_TEST_SUITE_P(Others, RanksTest,
                         testing::Values(Case{"cohere", DType::F32, {3}}, Case{"cohere2", DType::BF16, {2}},
                                         Case{"ernie", DType::BF16, {2}}, Case{"ernie_moe", DType::F32, {2, {2, 2}}},
                                         Case{"exaone4_full", DType::BF16, {3}},
                                         Case{"exaone4_window", DType::F32, {2}}, Case{"falcon3", DType::BF16, {3}},
                                         Case{"gemma3", DType::BF16, {3}}, Case{"glm4", DType::BF16, {2, 6}},
                                         Case{"glm4_moe", DType::F32, {3, {3, 3}}}, Case{"granite", DType::BF16, {3}},
                                         Case{"granite_moe", DType::F32, {2, {2, 2}}},
                                         Case{"hunyuan", DType::BF16, {3}}, Case{"mistral_small3", DType::BF16, {3}},
                                         Case{"olmo3", DType::F32, {5}}, Case{"phi3_longrope", DType::BF16, {5}},
                                         Case{"seed_oss", DType::F32, {5}}, Case{"smollm3", DType::BF16, {3}}),
                         [](const auto& info) {
                           return printed(info.param.model + std::string("_") +
                                          std::string(dtype_name(info.param.dtype)));
                         });

// States are cut by heads: of as many ranks as heads of keys, fewer or more; three heads over four ranks stay whole.
INSTANTIATE_TEST_SUITE_P(States, RanksTest,
                         testing::Values(Case{"qwen3_next", DType::BF16, {2, 4, 6, {2, 2}, {4, 2}}},
                                         Case{"qwen3_next", DType::F32, {2}}, Case{"qwen3_5", DType::F32, {2, 3}},
                                         Case{"qwen3_5", DType::BF16, {2}},
                                         Case{"qwen3_5_moe_text_of_images", DType::BF16, {2, 4, {4, 4}}}),
                         [](const auto& info) {
                           return printed(info.param.model + std::string("_") +
                                          std::string(dtype_name(info.param.dtype)));
                         });

// Ranks of several hosts see no memory of each other: what they exchange goes over a wire.
struct HostsCase {
  std::string path;
  DType dtype;
  std::vector<int> hosts;  // ranks of each
  int experts = 1;
  GraphMode prefill = GraphMode::Piecewise;
};

class HostsTest : public testing::TestWithParam<HostsCase> {};

TEST_P(HostsTest, SeveralHostsGiveTheBitsOfOneRank) {
  const HostsCase& c = GetParam();
  const std::string path = c.path.find('/') == std::string::npos
                               ? tiny_model_path(c.path)
                               : std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + c.path;
  EngineSetup setup = small_setup(c.dtype);
  setup.prefill = c.prefill;
  auto alone = testing_support::open_engine(path, setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Answers one = answers_of(**alone);
  setup.ep_size = c.experts;
  const testing_support::RankedHosts hosts(c.hosts);
  auto world = open_ranked(path, setup, hosts);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  expect_same(one, answers_of((*world)->front()), fmt::format("{} hosts", c.hosts.size()));
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  const auto standings = hosts.member(0)->standings();
  for (const auto& rank : standings) EXPECT_EQ(rank.collectives, standings[0].collectives);
}

INSTANTIATE_TEST_SUITE_P(Hosts, HostsTest,
                         testing::Values(HostsCase{"qwen3_tied", DType::BF16, {1, 1}},
                                         HostsCase{"qwen3_tied", DType::F32, {2, 2}},
                                         HostsCase{"llama_gqa3_tied", DType::F32, {2, 1}, 1, GraphMode::Whole},
                                         HostsCase{"llama_gqa3_tied", DType::F32, {1, 1, 1}, 1, GraphMode::Eager},
                                         HostsCase{"mixtral_top2", DType::BF16, {1, 1}, 2},
                                         HostsCase{"mixtral_top2", DType::BF16, {2, 2}, 2},
                                         HostsCase{"deepseek_v3_moe", DType::BF16, {2, 1}, 3},
                                         HostsCase{"qwen3_next", DType::BF16, {1, 1}},
                                         HostsCase{"models_quantised/compressed_static", DType::BF16, {1, 1}},
                                         HostsCase{"models_quantised/modelslim_moe_dynamic", DType::BF16, {1, 1}, 2},
                                         HostsCase{"gguf/qwen3_moe_norm.gguf", DType::BF16, {1, 1}}),
                         [](const auto& info) {
                           return printed(fmt::format("{}_{}_on_{}", info.param.path, dtype_name(info.param.dtype),
                                                      fmt::join(info.param.hosts, "_")));
                         });

// Pages are copied and the pool moves on all ranks.
TEST(RanksTest, CopiedPagesAndAMovedCacheAreTheSameOnAllRanks) {
  const EngineSetup setup = small_setup(DType::F32);
  const std::string path = tiny_model_path("llama_gqa4_sharded");
  const auto run = [](engine::Engine& e) {
    std::vector<float> out;
    const auto text = random_tokens(140, e.vocab_size(), 3);
    engine::Sequence first(std::vector<int32_t>(text.begin(), text.begin() + 130));
    EXPECT_TRUE(e.reserve(first, 140).is_ok());
    engine::StepItem item{&first, 130};
    EXPECT_TRUE(e.step({&item, 1}).is_ok());
    // The same prompt in other pages.
    engine::Sequence second(text);
    EXPECT_TRUE(e.reserve(second, 140).is_ok());
    for (size_t p = 0; p < 2; ++p) EXPECT_TRUE(e.copy_page(first.pages()[p], second.pages()[p]).is_ok());
    second.set_cached(130);
    for (const int64_t tokens : {4096, 512}) {
      EXPECT_TRUE(e.resize_kv(tokens).is_ok());
      item = {&second, 5, 5};
      const auto logits = e.step({&item, 1});
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      if (logits.is_ok()) out.insert(out.end(), logits->begin(), logits->end());
    }
    e.release(first);
    e.release(second);
    return out;
  };
  auto alone = testing_support::open_engine(path, setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  auto world = open_ranked(path, setup, 2);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  EXPECT_TRUE(same_bits(run(**alone), run((*world)->front())));
  EXPECT_GE((*world)->front().counters().rebinds, 2u);
}

// Ranks that were started with other settings, or on another model, are told apart before a step.
TEST(RanksTest, RanksThatDoNotFitAreToldApart) {
  const auto open = [](const std::string& model, EngineSetup setup, std::shared_ptr<ranks::Member> member) {
    setup.member = std::move(member);
    return testing_support::open_engine(tiny_model_path(model), setup);
  };
  const auto start =
      [&](const std::function<Result<std::unique_ptr<engine::Engine>>(std::shared_ptr<ranks::Member>)>& f) {
        const auto world = engine::LocalWorld::start(2, f);
        EXPECT_FALSE(world.is_ok());
        return world.status().message();
      };
  EngineSetup setup = small_setup(DType::F32);
  const std::string sizes = start([&](std::shared_ptr<ranks::Member> member) {
    EngineSetup mine = setup;
    mine.rows = member->world().front() ? 16 : 32;
    return open("llama_gqa3_tied", mine, std::move(member));
  });
  EXPECT_NE(sizes.find("settings: rank 1 has "), std::string::npos) << sizes;
  const std::string experts = start([&](std::shared_ptr<ranks::Member> member) {
    EngineSetup mine = setup;
    mine.ep_size = member->world().front() ? 2 : 1;
    return open("mixtral_top2", mine, std::move(member));
  });
  EXPECT_NE(experts.find("settings: rank 1 has "), std::string::npos) << experts;
  EXPECT_NE(experts.find("experts over 2"), std::string::npos) << experts;
  const std::string models = start([&](std::shared_ptr<ranks::Member> member) {
    const bool front = member->world().front();
    return open(front ? "llama_mha_untied" : "llama_gqa3_tied", setup, std::move(member));
  });
  EXPECT_NE(models.find("model: rank 1 has LlamaForCausalLM"), std::string::npos) << models;
  const std::string missing = start([&](std::shared_ptr<ranks::Member> member) {
    const bool front = member->world().front();
    return open(front ? "llama_gqa3_tied" : "not_there", setup, std::move(member));
  });
  EXPECT_NE(missing.find("rank 1 did not start: "), std::string::npos) << missing;
  EXPECT_NE(missing.find("not_there"), std::string::npos) << missing;
}

// Scales, folded biases, offsets and blocks are cut with their rows; a row's own scale is that of the whole row.
class QuantisedRanksTest : public testing::TestWithParam<std::string> {};

TEST_P(QuantisedRanksTest, TwoRanksGiveTheSameBits) {
  EngineSetup setup = small_setup(DType::BF16);
  if (GetParam().find("f16") != std::string::npos) setup.dtype = DType::F16;
  const auto named = [&](const char* part) { return GetParam().find(part) != std::string::npos; };
  const bool experts = named("moe") || named("deepseek") || named("mla") || named("next");
  expect_same_bits_over(std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + GetParam(), setup,
                        experts ? std::vector<Sizes>{2, {2, 2}} : std::vector<Sizes>{2});
}

INSTANTIATE_TEST_SUITE_P(
    Stored, QuantisedRanksTest,
    testing::Values("models_quantised/compressed_dynamic", "models_quantised/compressed_moe_dynamic",
                    "models_quantised/compressed_moe_static", "models_quantised/compressed_static",
                    "models_quantised/compressed_static_zero_point", "models_quantised/modelslim_dynamic",
                    "models_quantised/modelslim_mixed_f16", "models_quantised/modelslim_mla_mixed",
                    "models_quantised/modelslim_moe_dynamic", "models_quantised/modelslim_moe_static",
                    "models_quantised/modelslim_norm_bias", "models_quantised/modelslim_static",
                    "models_quantised/modelslim_static_bias", "gguf/deepseek_v2_lite.gguf", "gguf/deepseek_v3_moe.gguf",
                    "gguf/qwen3_moe_norm.gguf", "gguf/qwen3_next.gguf"),
    [](const auto& info) { return printed(info.param); });

// Experts in MXFP4 are cut by rows of blocks; one group of keys and values is on all ranks.
TEST(RanksTest, PackedExpertsWithBiasesAndSinksKeepTheBits) {
  const std::string path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/mxfp4";
  for (const DType dtype : {DType::F32, DType::BF16})
    expect_same_bits_over(path, small_setup(dtype), {2, 3, 4, {2, 2}, {3, 3}, {4, 2}, {4, 4}});
}

// Eager, whole and piecewise graphs contain the same collectives.
TEST(RanksTest, SharedOutExpertsGiveTheSameBitsInEveryGraphMode) {
  EngineSetup setup = small_setup(DType::BF16);
  const std::string path = tiny_model_path("qwen3_moe_norm");
  auto alone = testing_support::open_engine(path, setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Answers one = answers_of(**alone);
  setup.ep_size = 2;
  for (const auto policy : {engine::GraphPolicy::Off, engine::GraphPolicy::Auto})
    for (const GraphMode prefill : {GraphMode::Eager, GraphMode::Piecewise, GraphMode::Whole}) {
      setup.policy = policy;
      setup.prefill = prefill;
      auto world = open_ranked(path, setup, 2);
      ASSERT_TRUE(world.is_ok()) << world.status().message();
      expect_same(one, answers_of((*world)->front()), std::string(graph_mode_name(prefill)));
    }
}

// A rank's slots have its heads alone; eager, whole and piecewise graphs go on from them alike.
TEST(RanksTest, StatesGiveTheSameBitsInEveryGraphMode) {
  for (const char* model : {"qwen3_next", "qwen3_5"}) {
    EngineSetup setup = small_setup(DType::BF16);
    const std::string path = tiny_model_path(model);
    auto alone = testing_support::open_engine(path, setup);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    const Answers one = answers_of(**alone);
    for (const auto policy : {engine::GraphPolicy::Off, engine::GraphPolicy::Auto})
      for (const GraphMode prefill : {GraphMode::Piecewise, GraphMode::Whole}) {
        setup.policy = policy;
        setup.prefill = prefill;
        auto world = open_ranked(path, setup, 2);
        ASSERT_TRUE(world.is_ok()) << world.status().message();
        const auto &mine = (*world)->front().state_pool().caches(), &all = (*alone)->state_pool().caches();
        ASSERT_EQ(mine.size(), all.size());
        for (size_t c = 0; c < all.size(); ++c) EXPECT_EQ(mine[c].slot_bytes * 2, all[c].slot_bytes) << mine[c].name;
        expect_same(one, answers_of((*world)->front()), fmt::format("{} {}", model, graph_mode_name(prefill)));
        for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
      }
  }
}

// What no world of these ranks can do is one line with the numbers that fit.
TEST(RanksTest, ExpertsThatCannotBeSharedOutAreRefused) {
  const auto refusal = [](const std::string& model, int size, int64_t parts) {
    EngineSetup setup = small_setup(DType::F32);
    setup.ep_size = parts;
    const auto world = open_ranked(tiny_model_path(model), setup, size);
    EXPECT_FALSE(world.is_ok());
    return world.status().message();
  };
  EXPECT_NE(refusal("llama_gqa4_sharded", 2, 2).find("`ep_size` 2: LlamaForCausalLM has no experts; allowed: 1"),
            std::string::npos);
  EXPECT_NE(refusal("mixtral_one_expert", 4, 4)
                .find("`ep_size` 4: MixtralForCausalLM has 3 experts, and the world 4 ranks; allowed: 1, 2"),
            std::string::npos);
  EXPECT_NE(refusal("mixtral_top2", 2, 3).find("and the world 2 ranks; allowed: 1, 2"), std::string::npos);
}

// The front counts the rows of all ranks' experts.
TEST(RanksTest, RowsOfExpertsAreCountedOnce) {
  EngineSetup setup = small_setup(DType::F32);
  setup.count_experts = true;
  const auto counted = [&](engine::Engine& e) {
    (void)answers_of(e);
    std::vector<uint64_t> out;
    const engine::ExpertUse& use = *e.expert_use();
    for (size_t l = 0; l < use.layers(); ++l)
      for (int64_t i = 0; i < use.experts(l); ++i) out.push_back(use.rows(l, i));
    return out;
  };
  const std::string path = tiny_model_path("mixtral_top2");
  auto alone = testing_support::open_engine(path, setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const auto one = counted(**alone);
  setup.ep_size = 2;
  auto world = open_ranked(path, setup, 2);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  EXPECT_EQ(counted((*world)->front()), one);
  EXPECT_GT(one[0], 0u);
}

// Rows of a float model that become int8 while they are loaded, and an int8 cache.
TEST(RanksTest, LoadTimeQuantisationAndInt8CacheKeepTheBits) {
  EngineSetup setup = small_setup(DType::BF16);
  setup.quantization = checkpoint::Quantization::W8A8Int8;
  expect_same_bits_over(tiny_model_path("qwen3_tied"), setup, {2, 4});
  expect_same_bits_over(tiny_model_path("qwen2_moe_shared"), setup, {{2, 2}, {4, 2}});
  expect_same_bits_over(tiny_model_path("qwen3_next"), setup, {2, 4});
  setup = small_setup(DType::F32);
  setup.kv_dtype = DType::I8;
  expect_same_bits_over(tiny_model_path("llama_gqa4_sharded"), setup, {2});
}

// The form that adds sums: close to one rank, not its bits; the same bits in every mode, batch and chunk of so many
// ranks. A bias is added once (F56): these models have some in every layer, and static W8A8 has folded ones in int32.
struct ReducedCase {
  std::string path;  // below tests/data
  DType dtype;
  int ranks;
  int64_t products;  // whose sums are added
};

class ReducedRanksTest : public testing::TestWithParam<ReducedCase> {};

// How far apart two rows of logits are, of the largest.
double distance(std::span<const float> a, std::span<const float> b) {
  double largest = 0, worst = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(a[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return worst / largest;
}

TEST_P(ReducedRanksTest, SumsAddedOverRanksAreCloseToOneRankAndTheSameInEveryMode) {
  const ReducedCase& c = GetParam();
  const std::string path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + c.path;
  EngineSetup setup = small_setup(c.dtype);
  auto alone = testing_support::open_engine(path, setup);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Answers one = answers_of(**alone);
  setup.reduce = true;
  std::optional<Answers> first;
  for (const auto policy : {engine::GraphPolicy::Auto, engine::GraphPolicy::Off}) {
    setup.policy = policy;
    auto world = open_ranked(path, setup, c.ranks);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    engine::Engine& e = (*world)->front();
    EXPECT_LT(e.memory().weight_bytes, (*alone)->memory().weight_bytes);
    const Answers many = answers_of(e);
    if (!first) {
      int64_t added = 0;
      for (const PassReport& p : e.passes("decode")->passes)
        for (const PassRemark& remark : p.applied) added += remark.reason.find("ranks are added") != std::string::npos;
      EXPECT_EQ(added, c.products);
      const double near = c.dtype == DType::F32 ? 1e-5 : 2e-2;
      EXPECT_LE(distance(one.prompt, many.prompt), near);
      EXPECT_LE(distance(one.decode, many.decode), near);
      const auto text = random_tokens(std::min<int64_t>(e.context_length(), 133), e.vocab_size(), 1);
      EXPECT_TRUE(same_bits(many.prompt, all_logits(e, text, 1))) << "token by token";
      first = many;
    } else {
      expect_same(*first, many, "another mode");
    }
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

// Two layers each, with shared experts; an expert's products and rows quantised as they come are gathered.
INSTANTIATE_TEST_SUITE_P(Reduced, ReducedRanksTest,
                         testing::Values(ReducedCase{"models/llama_bias", DType::F32, 3, 4},
                                         ReducedCase{"models/llama_gqa3_tied", DType::F32, 2, 4},
                                         ReducedCase{"models/qwen3_tied", DType::BF16, 4, 4},
                                         ReducedCase{"models/deepseek_v2_lite", DType::F32, 2, 4},
                                         ReducedCase{"models/mixtral_top2", DType::BF16, 2, 2},
                                         ReducedCase{"models/gpt_oss", DType::F32, 2, 3},
                                         ReducedCase{"models/qwen3_5", DType::F32, 2, 9},
                                         ReducedCase{"models_quantised/compressed_static_zero_point", DType::F32, 2, 4},
                                         ReducedCase{"models_quantised/modelslim_static_bias", DType::F32, 2, 4},
                                         ReducedCase{"models_quantised/compressed_dynamic", DType::F32, 2, 0}),
                         [](const auto& info) {
                           return printed(fmt::format("{}_{}_over_{}", info.param.path, dtype_name(info.param.dtype),
                                                      info.param.ranks));
                         });

// What transformers gave (tests/data/models), at two ranks that add sums.
TEST(ReducedRanksTest, LogitsAreThoseOfTheReference) {
  for (const char* model : {"llama_bias", "qwen3_tied"}) {
    EngineSetup setup = small_setup(DType::F32);
    setup.reduce = true;
    auto world = open_ranked(tiny_model_path(model), setup, 2);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    engine::Engine& e = (*world)->front();
    const auto vocab = static_cast<size_t>(e.vocab_size());
    for (auto& [length, g] : testing_support::read_goldens(tiny_model_path(model))) {
      if (length > e.context_length()) continue;
      const auto logits = all_logits(e, g.tokens, 70);
      std::vector<float> at;
      for (const int32_t p : g.positions) {
        const auto row = logits.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(p) * vocab);
        at.insert(at.end(), row, row + static_cast<std::ptrdiff_t>(vocab));
      }
      EXPECT_LE(distance(g.logits, at), 1e-4) << model << " " << length;
    }
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

}  // namespace
}  // namespace reprise::ranks_test
