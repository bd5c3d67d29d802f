// LoRA adapters: the logits that PEFT gives, and the same bits alone, mixed with other adapters and with none, in every
// mode of graphs, with any passes, threads and chunks.
#include <gtest/gtest.h>

#include "backends/cpu/isa.h"
#include "engine/local_world.h"
#include "sched/scheduler.h"
#include "support/answers.h"
#include "support/goldens.h"
#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::lora_models_test {
namespace {

using testing_support::all_logits;
using testing_support::eager;
using testing_support::read_goldens;
using testing_support::same_bits;

std::string folder_of(const std::string& adapter) {
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/lora/" + adapter;
}

struct Opening {
  std::string model = testing_support::tiny_model_path("llama_gqa3_tied");
  DType dtype = DType::F32;
  int64_t loras = 3, rank = 8;
  std::string isa = "auto";
  int threads = 2;
  DeviceKind device = DeviceKind::Cpu;
  engine::GraphOptions graph = {};
  bool test_mode = true;  // REPRISE_TEST_MODE counts
  checkpoint::Quantization quantization = checkpoint::Quantization::Auto;
  std::shared_ptr<ranks::Member> member = nullptr;  // of a world of several ranks
};

Result<std::unique_ptr<engine::Engine>> open(const Opening& s) {
  DeviceOptions device;
  device.kind = s.device;
  device.ascend_runtime = "sim";
  device.isa = s.isa;
  device.threads = s.threads;
  device.pin_threads = false;
  device.member = s.member;
  engine::EngineOptions o;
  o.member = s.member;
  o.graph = s.graph;
  if (s.test_mode) RETURN_IF_ERROR(testing_support::apply_test_mode(o, device));
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  o.model_path = s.model;
  o.dtype = s.dtype;
  o.quantization = s.quantization;
  o.chunked_prefill_size = 160;
  o.max_running_requests = 16;
  o.context_length = 256;
  o.max_total_tokens = 16 * 256;
  o.max_loras = s.loras;
  o.max_lora_rank = s.rank;
  return engine::Engine::create(o, std::move(platform));
}

std::unique_ptr<engine::Engine> must_open(const Opening& s) {
  auto e = open(s);
  EXPECT_TRUE(e.is_ok()) << e.status().message();
  return e.is_ok() ? std::move(*e) : nullptr;
}

Result<int32_t> load(engine::Engine& e, const std::string& folder) {
  ASSIGN_OR_RETURN(const checkpoint::LoraAdapter adapter, checkpoint::LoraAdapter::open(folder));
  ASSIGN_OR_RETURN(const engine::PreparedAdapter prepared, e.adapters().prepare(adapter));
  return e.adapters().load(prepared);
}

int32_t must_load(engine::Engine& e, const std::string& adapter) {
  const auto slot = load(e, folder_of(adapter));
  EXPECT_TRUE(slot.is_ok()) << slot.status().message();
  return slot.is_ok() ? *slot : 0;
}

struct Param {
  std::string base, adapter;
  DType dtype;
  std::string isa;
  bool gguf = false;  // the base as a GGUF file, in which the rows of queries and keys have another order
};

class LoraGoldenTest : public testing::TestWithParam<Param> {};

TEST_P(LoraGoldenTest, LogitsAreThoseOfPeft) {
  const Param& p = GetParam();
  const std::string adapter = p.base + "." + p.adapter;
  const std::string model = p.gguf ? std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/" + p.base + ".gguf"
                                   : testing_support::tiny_model_path(p.base);
  auto e = must_open({.model = model, .dtype = p.dtype, .isa = p.isa});
  ASSERT_TRUE(e);
  const int32_t slot = must_load(*e, adapter);
  const double tolerance = p.dtype == DType::F32 ? 1e-4 : 2e-2;
  const auto vocab = static_cast<size_t>(e->config().vocab_size);
  for (auto& [length, g] : read_goldens(folder_of(adapter)))
    for (const int64_t chunk : {1000, 1}) {
      const std::vector<float> logits = all_logits(*e, g.tokens, chunk, slot);
      ASSERT_EQ(logits.size(), g.tokens.size() * vocab);
      double largest = 0, worst = 0;
      for (const float x : g.logits) largest = std::max(largest, std::fabs(static_cast<double>(x)));
      for (size_t i = 0; i < g.positions.size(); ++i)
        for (size_t v = 0; v < vocab; ++v)
          worst =
              std::max(worst, std::fabs(static_cast<double>(logits[static_cast<size_t>(g.positions[i]) * vocab + v]) -
                                        static_cast<double>(g.logits[i * vocab + v])));
      EXPECT_LE(worst, tolerance * largest) << length << ": off by " << worst / largest << " of the largest";
      EXPECT_FALSE(std::isnan(worst));
    }
}

std::vector<Param> params() {
  std::vector<Param> out;
  for (auto& base : {"llama_gqa3_tied", "qwen3_tied"})
    for (auto& adapter : {"style", "tone"})
      for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
        for (const cpu::Isa isa : cpu::supported_isas())
          out.push_back({base, adapter, dtype, std::string(cpu::isa_name(isa))});
  for (auto& adapter : {"style", "tone"}) out.push_back({"llama_gqa3_tied", adapter, DType::F32, "auto", true});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, LoraGoldenTest, testing::ValuesIn(params()), [](const auto& info) {
  return fmt::format("{}_{}_{}_{}{}", info.param.base, info.param.adapter, dtype_name(info.param.dtype), info.param.isa,
                     info.param.gguf ? "_gguf" : "");
});

// Sequences of several lengths that go through these slots, read and continued together; by sequence the logits of all
// steps.
std::vector<std::vector<float>> together(engine::Engine& e, const std::vector<int32_t>& slots, uint32_t first = 0) {
  constexpr int kDecodes = 3;
  std::vector<std::vector<float>> out(slots.size());
  std::vector<engine::Sequence> sequences;
  uint32_t seed = 0;
  const auto token = [&](uint32_t of) {
    seed = (of + 1) * 2654435761u + seed * 1664525u + 1013904223u;
    return static_cast<int32_t>((seed >> 8) % 200);
  };
  std::vector<std::vector<int32_t>> next(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    seed = 0;
    const auto of = first + static_cast<uint32_t>(i);
    std::vector<int32_t> prompt(1 + of * 5 % 23);
    for (auto& t : prompt) t = token(of);
    for (int d = 0; d < kDecodes; ++d) next[i].push_back(token(of));
    sequences.emplace_back(prompt);
    sequences.back().set_adapter(slots[i]);
    EXPECT_TRUE(e.reserve(sequences.back(), sequences.back().size() + kDecodes).is_ok());
  }
  const auto vocab = static_cast<size_t>(e.config().vocab_size);
  for (size_t d = 0; d <= kDecodes; ++d) {
    std::vector<engine::StepItem> items;
    for (auto& s : sequences) items.push_back({&s, s.uncached(), 1});
    auto logits = e.step(items);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    for (size_t i = 0; logits.is_ok() && i < slots.size(); ++i) {
      const auto row = logits->subspan(i * vocab, vocab);
      out[i].insert(out[i].end(), row.begin(), row.end());
      if (d < kDecodes) sequences[i].append(next[i][d]);
    }
  }
  for (auto& s : sequences) e.release(s);
  return out;
}

// Sequence i of a mixed batch alone.
std::vector<float> alone(engine::Engine& e, int32_t slot, size_t i) {
  return together(e, {slot}, static_cast<uint32_t>(i))[0];
}

const std::vector<int32_t> kMixed{0, 1, 2, 1, 0, 2, 2, 0, 1, 3, 0, 1};  // 3: a slot that nothing was loaded into

struct Base {
  std::string name, model, adapter[2];
  DType dtype = DType::F32;
  checkpoint::Quantization quantization = checkpoint::Quantization::Auto;
};

std::vector<Base> bases() {
  const auto tiny = [](const std::string& n) { return testing_support::tiny_model_path(n); };
  return {{"llama", tiny("llama_gqa3_tied"), {"llama_gqa3_tied.style", "llama_gqa3_tied.tone"}},
          {"qwen3", tiny("qwen3_tied"), {"qwen3_tied.style", "qwen3_tied.tone"}, DType::BF16},
          {"llama_w8a8",
           tiny("llama_gqa3_tied"),
           {"llama_gqa3_tied.style", "llama_gqa3_tied.tone"},
           DType::F32,
           checkpoint::Quantization::W8A8Int8}};
}

class LoraBitsTest : public testing::TestWithParam<Base> {
 protected:
  Opening opening() const {
    return {.model = GetParam().model, .dtype = GetParam().dtype, .quantization = GetParam().quantization};
  }
  std::unique_ptr<engine::Engine> with_adapters(const Opening& s) const {
    auto e = must_open(s);
    for (const std::string& a : GetParam().adapter)
      if (e) must_load(*e, a);
    return e;
  }
};

TEST_P(LoraBitsTest, AloneIsMixedAndNoneIsTheModelWithoutLora) {
  auto e = with_adapters(opening());
  Opening plain = opening();
  plain.loras = 0;
  auto without = must_open(plain);
  ASSERT_TRUE(e && without);
  const auto mixed = together(*e, kMixed);
  const auto model = together(*without, std::vector<int32_t>(kMixed.size(), 0));
  for (size_t i = 0; i < kMixed.size(); ++i) {
    EXPECT_TRUE(same_bits(mixed[i], alone(*e, kMixed[i], i))) << i;
    EXPECT_EQ(same_bits(mixed[i], model[i]), kMixed[i] == 0 || kMixed[i] == 3) << i;
  }
}

TEST_P(LoraBitsTest, EveryModePassAndNumberOfThreads) {
  auto e = with_adapters(opening());
  ASSERT_TRUE(e);
  const auto expected = together(*e, kMixed);
  std::vector<Opening> others;
  const auto other = [&](const auto& change) {
    others.push_back(opening());
    change(others.back());
  };
  other([](Opening& s) { s.graph = eager(); });
  other([](Opening& s) { s.graph.policy = engine::GraphPolicy::Off; });
  other([](Opening& s) { s.graph.pipeline.passes.enable = {"none"}; });
  other([](Opening& s) { s.graph.pipeline.passes.disable = {"lora_before_slices"}; });
  other([](Opening& s) { s.graph.pipeline.passes.disable = {"pack_parallel_linears"}; });
  other([](Opening& s) { s.graph.decode = GraphMode::Piecewise, s.graph.prefill = GraphMode::Whole; });
  other([](Opening& s) { s.threads = 1; });
  other([](Opening& s) { s.threads = 3; });
  other([](Opening& s) { s.graph.verify_replay = 1; });
  for (size_t o = 0; o < others.size(); ++o) {
    others[o].test_mode = false;
    auto again = with_adapters(others[o]);
    ASSERT_TRUE(again);
    const auto got = together(*again, kMixed);
    for (size_t i = 0; i < kMixed.size(); ++i) EXPECT_TRUE(same_bits(expected[i], got[i])) << o << ": " << i;
    EXPECT_EQ(again->counters().differences, 0u);
    EXPECT_EQ(again->counters().checked > 0, others[o].graph.verify_replay > 0);
  }
}

// As many matches of every fusion as without adapters, but for what adds to a linear in its own kernel.
TEST_P(LoraBitsTest, FusionsAreThoseOfTheModelAlone) {
  // Beside a quantised linear an adapter reads what is not quantised, so that fusions with the quantising do not match.
  if (GetParam().quantization != checkpoint::Quantization::Auto) GTEST_SKIP() << "fusions of quantised bases differ";
  Opening with = opening(), plain = opening();
  with.test_mode = plain.test_mode = false;
  plain.loras = 0;
  auto e = must_open(with), without = must_open(plain);
  ASSERT_TRUE(e && without);
  const auto matched = [](const engine::Engine& of, std::string_view pass) {
    for (const PassReport& p : of.passes("decode")->passes)
      if (p.name == pass) return p.matched;
    return int64_t{-1};
  };
  const auto layers = e->config().num_hidden_layers;
  EXPECT_EQ(matched(*e, "add_lora"), 7 * layers);
  EXPECT_EQ(matched(*e, "lora_before_slices"), 2 * layers);
  EXPECT_EQ(matched(*without, "add_lora"), -1);
  for (auto& pass : {"silu_mul", "split_qk_norm_rope", "split_qk_norm_rope_kv", "add_rms_norm"})
    EXPECT_EQ(matched(*e, pass), matched(*without, pass)) << pass;
}

// A rank adds its own columns of an adapter to its own columns of a layer: alone, mixed and with none, eagerly and in
// graphs, and also where several ranks have the same heads.
TEST_P(LoraBitsTest, SeveralRanksGiveTheBitsOfOne) {
  Opening s = opening();
  s.test_mode = false;
  s.threads = 1;
  auto one = with_adapters(s);
  ASSERT_TRUE(one);
  const auto expected = together(*one, kMixed);
  const bool groups_of_three = GetParam().model.find("gqa3") != std::string::npos;
  for (const int size : groups_of_three ? std::vector<int>{2, 3, 6} : std::vector<int>{2, 4})
    for (const auto policy : {engine::GraphPolicy::Auto, engine::GraphPolicy::Off}) {
      s.graph.policy = policy;
      auto world = engine::LocalWorld::start(size, [s](std::shared_ptr<ranks::Member> member) {
        Opening mine = s;
        mine.member = std::move(member);
        return open(mine);
      });
      ASSERT_TRUE(world.is_ok()) << world.status().message();
      engine::Engine& front = (*world)->front();
      for (const std::string& a : GetParam().adapter) must_load(front, a);
      const auto got = together(front, kMixed);
      for (size_t i = 0; i < kMixed.size(); ++i) EXPECT_TRUE(same_bits(expected[i], got[i])) << size << ": " << i;
      EXPECT_LT(front.memory().adapter_bytes, one->memory().adapter_bytes);
      for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
    }
}

INSTANTIATE_TEST_SUITE_P(Bases, LoraBitsTest, testing::ValuesIn(bases()),
                         [](const auto& info) { return info.param.name; });

TEST(LoraTest, SlotsAreWrittenAgainAndMayBeFull) {
  auto e = must_open({.loras = 1});
  ASSERT_TRUE(e);
  const auto none = together(*e, {1});
  EXPECT_EQ(must_load(*e, "llama_gqa3_tied.tone"), 1);
  const auto tone = together(*e, {1});
  const auto full = load(*e, folder_of("llama_gqa3_tied.style"));
  EXPECT_EQ(full.status().code(), Code::Busy);
  EXPECT_NE(full.status().message().find("`max_loras`"), std::string::npos);
  EXPECT_TRUE(e->adapters().unload(1).is_ok());
  EXPECT_FALSE(e->adapters().unload(1).is_ok());
  EXPECT_TRUE(same_bits(none[0], together(*e, {1})[0]));
  EXPECT_EQ(must_load(*e, "llama_gqa3_tied.style"), 1);  // fewer layers than what was there before
  auto fresh = must_open({.loras = 1});
  ASSERT_TRUE(fresh);
  must_load(*fresh, "llama_gqa3_tied.style");
  EXPECT_TRUE(same_bits(together(*fresh, {1})[0], together(*e, {1})[0]));
  EXPECT_FALSE(same_bits(tone[0], together(*e, {1})[0]));
}

// Slots are freed and written again on all ranks; a folder that is gone when the others read it is the front's error.
TEST(LoraTest, SlotsOfSeveralRanksAreWrittenTogether) {
  auto one = must_open({.loras = 1});
  auto world = engine::LocalWorld::start(2, [](std::shared_ptr<ranks::Member> member) {
    return open({.loras = 1, .threads = 1, .member = std::move(member)});
  });
  ASSERT_TRUE(one && world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  const auto none = together(*one, {1});
  must_load(front, "llama_gqa3_tied.tone");
  EXPECT_FALSE(same_bits(none[0], together(front, {1})[0]));
  EXPECT_EQ(load(front, folder_of("llama_gqa3_tied.style")).status().code(), Code::Busy);
  EXPECT_TRUE(front.adapters().unload(1).is_ok());
  EXPECT_TRUE(same_bits(none[0], together(front, {1})[0]));
  {
    const auto adapter = checkpoint::LoraAdapter::open(folder_of("llama_gqa3_tied.style"));
    ASSERT_TRUE(adapter.is_ok()) << adapter.status().message();
    auto prepared = front.adapters().prepare(*adapter);
    ASSERT_TRUE(prepared.is_ok()) << prepared.status().message();
    prepared->source = "/not/there/adapter_model.safetensors";
    const auto refused = front.adapters().load(*prepared);
    ASSERT_FALSE(refused.is_ok());
    EXPECT_NE(refused.status().message().find("rank 1: /not/there: not a folder"), std::string::npos)
        << refused.status().message();
  }
  EXPECT_EQ(must_load(front, "llama_gqa3_tied.style"), 1);
  must_load(*one, "llama_gqa3_tied.style");
  EXPECT_TRUE(same_bits(together(*one, {1})[0], together(front, {1})[0]));
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

TEST(LoraTest, AdaptersThatDoNotFitAreRefusedInOneLine) {
  auto e = must_open({.rank = 4});
  ASSERT_TRUE(e);
  const auto wrong = [&](const std::string& adapter) {
    const auto slot = load(*e, folder_of(adapter));
    EXPECT_FALSE(slot.is_ok());
    return slot.status().message();
  };
  EXPECT_NE(wrong("llama_gqa3_tied.tone").find("`max_lora_rank` allows up to 4"), std::string::npos);
  EXPECT_NE(wrong("qwen3_tied.style").find("is for a layer of"), std::string::npos);
  EXPECT_EQ(e->adapters().loaded(), 0);
}

// Tokens of an answer with their log-probabilities, which differ where two adapters choose the same tokens.
using Said = std::vector<std::pair<int32_t, float>>;
Said said(const sched::Answer& a) {
  Said out;
  for (const sched::SampledToken& t : a.sampled) out.emplace_back(t.token, t.logprob.value_or(1));
  return out;
}

// An engine with its adapters by name, and what a scheduler of its own answers.
class LoraSchedulerTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = must_open({.loras = 2});
    ASSERT_TRUE(engine_);
    table_ = std::make_unique<sched::AdapterTable>(engine_->adapters());
  }
  sched::AdapterPtr add(const std::string& name, const std::string& folder) {
    auto loaded = table_->load({name, folder_of("llama_gqa3_tied." + folder)});
    EXPECT_TRUE(loaded.is_ok()) << loaded.status().message();
    return loaded ? *loaded : nullptr;
  }
  static sched::Asked ask(int64_t length, const std::string& adapter, const sched::AdapterTable& table) {
    sched::Asked a = sched::ask(sched::count_up(length), 6);
    a.request.sampling.ignore_eos = true;
    a.request.sampling.logprobs = 0;
    a.request.adapter = table.find(adapter);
    EXPECT_EQ(adapter.empty(), a.request.adapter == nullptr);
    return a;
  }
  static void run(sched::Scheduler& s) {
    while (!s.idle()) s.step();
    EXPECT_TRUE(s.check_integrity().is_ok()) << s.check_integrity().message();
  }
  // What a scheduler without a prefix cache answers to the request alone.
  Said alone(int64_t length, const std::string& adapter) {
    sched::Scheduler s(*engine_, {.prefix_cache = false});
    sched::Asked a = ask(length, adapter, *table_);
    EXPECT_TRUE(s.add(std::move(a.request)).is_ok());
    while (!s.idle()) s.step();  // the pages of another scheduler's cache are none of its own
    return said(*a.answer);
  }

  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<sched::AdapterTable> table_;
};

TEST_F(LoraSchedulerTest, PrefixesOfOneAdapterAreNoOthers) {
  add("style", "style");
  add("tone", "tone");
  sched::Scheduler s(*engine_, {});
  std::set<Said> different;
  for (const int64_t cached : {0, 128})
    for (const std::string name : {"", "style", "tone"}) {
      sched::Asked a = ask(180, name, *table_);
      ASSERT_TRUE(s.add(std::move(a.request)).is_ok());
      run(s);
      EXPECT_EQ(said(*a.answer), alone(180, name)) << name;
      if (cached == 0)
        EXPECT_EQ(a.answer->result->cached_tokens, 0) << name;
      else
        EXPECT_GE(a.answer->result->cached_tokens, cached) << name;
      different.insert(said(*a.answer));
    }
  EXPECT_EQ(different.size(), 3u);
}

TEST_F(LoraSchedulerTest, AnotherAdapterOfTheSameNameAndSlotHasPrefixesOfItsOwn) {
  sched::Scheduler s(*engine_, {});
  std::vector<Said> answers;
  for (const char* folder : {"style", "tone"}) {
    add("a", folder);
    sched::Asked a = ask(180, "a", *table_);
    ASSERT_TRUE(s.add(std::move(a.request)).is_ok());
    run(s);
    EXPECT_EQ(a.answer->result->cached_tokens, 0);
    EXPECT_EQ(said(*a.answer), alone(180, "a"));
    answers.push_back(said(*a.answer));
    EXPECT_TRUE(table_->remove("a").is_ok());
  }
  EXPECT_NE(answers[0], answers[1]);
}

TEST_F(LoraSchedulerTest, SlotsAreExchangedUnderLoad) {
  add("style", "style");
  add("tone", "tone");
  std::map<std::pair<int64_t, std::string>, Said> wanted;
  const std::vector<int64_t> lengths{3, 40, 131};
  for (const int64_t n : lengths)
    for (const std::string name : {"", "style", "tone"}) wanted[{n, name}] = alone(n, name);
  sched::Scheduler s(*engine_, {});
  std::vector<std::pair<std::shared_ptr<sched::Answer>, Said>> asked;
  const auto send = [&](const std::string& name, const std::string& content) {
    for (const int64_t n : lengths) {
      sched::Asked a = ask(n, name, *table_);
      EXPECT_TRUE(s.add(std::move(a.request)).is_ok());
      asked.emplace_back(a.answer, wanted.at({n, content}));
    }
  };
  const sched::AdapterPlace other{"other", folder_of("llama_gqa3_tied.style")};
  for (int round = 0; round < 3; ++round) {
    send("style", "style"), send("tone", "tone"), send("", "");
    for (int i = 0; i < 2; ++i) s.step();
    EXPECT_EQ(table_->remove("tone").value(), 3);  // its requests run, and go on
    EXPECT_EQ(table_->load(other).status().code(), Code::Busy);
    send("style", "style");
    run(s);
    EXPECT_TRUE(table_->load(other).is_ok());  // in the slot that was tone's
    send("other", "style"), send("style", "style");
    run(s);
    EXPECT_EQ(table_->remove("other").value(), 0);
    add("tone", "tone");
  }
  for (const auto& [answer, wanted_of] : asked) EXPECT_EQ(said(*answer), wanted_of);
}

TEST_F(LoraSchedulerTest, DraftsChangeNoAnswer) {
  add("style", "style");
  add("tone", "tone");
  sched::SchedulerOptions drafting;
  drafting.speculation.algorithm = spec::Algorithm::Suffix;
  sched::Scheduler s(*engine_, drafting);
  std::vector<std::pair<std::shared_ptr<sched::Answer>, Said>> asked;
  for (int round = 0; round < 2; ++round) {
    for (const std::string name : {"", "style", "tone"}) {
      sched::Asked a = ask(40, name, *table_);
      ASSERT_TRUE(s.add(std::move(a.request)).is_ok());
      asked.emplace_back(a.answer, alone(40, name));
    }
    run(s);
  }
  EXPECT_GT(s.stats().speculation.draft_tokens, 0u);
  for (const auto& [answer, wanted_of] : asked) EXPECT_EQ(said(*answer), wanted_of);
}

TEST(LoraSaltTest, PairsOfAdapterAndSaltAreToldApart) {
  auto one = std::make_shared<sched::Adapter>(), two = std::make_shared<sched::Adapter>();
  one->serial = 1, two->serial = 11;
  std::set<std::string> salts;
  for (const sched::AdapterPtr& a : std::vector<sched::AdapterPtr>{nullptr, one, two})
    for (const std::string salt : {"", "a", "\1", "\1a", "\0011\1a", "1\1a", "\1\0011\1a"})
      salts.insert(sched::salt_with(a, salt));
  EXPECT_EQ(salts.size(), 21u);
  EXPECT_EQ(sched::salt_with(nullptr, "tenant"), "tenant");
}

TEST(LoraSaltTest, PlacesOfAdapters) {
  const auto is = [](const std::string& text, const std::string& name, const std::string& path) {
    const auto place = sched::parse_adapter_place(text);
    return place.is_ok() && place->name == name && place->path == path;
  };
  EXPECT_TRUE(is("a=/x/y=z", "a", "/x/y=z"));
  EXPECT_TRUE(is("/x/y", "/x/y", "/x/y"));
  EXPECT_TRUE(is(R"({"name": "a", "path": "/x", "base_model_name": "b"})", "a", "/x"));
  for (const char* wrong : {"", "=x", "a=", "{", R"({"name": "a"})", R"({"name": 1, "path": "x"})",
                            R"({"name": "a", "path": "x", "more": "y"})"})
    EXPECT_FALSE(sched::parse_adapter_place(wrong).is_ok()) << wrong;
}

TEST(LoraTest, DevicesWithoutKernelsRefuse) {
  const auto refused = open({.dtype = DType::BF16, .device = DeviceKind::Ascend, .test_mode = false});
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().message(), "`max_loras` 3: ascend has no kernels for LoRA adapters; allowed: 0");
}

}  // namespace
}  // namespace reprise::lora_models_test
