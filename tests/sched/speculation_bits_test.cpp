// Answers with drafts have the bits of answers without: tokens, log-probabilities and ends of every kind of request, in
// every graph mode, whatever makes the drafts, with chunks, preemption, cancelled neighbours and an int8 cache.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/local_world.h"
#include "engine/shared_step.h"
#include "sched/model_drafter.h"
#include "sched/scheduler.h"
#include "sched/together.h"
#include "support/answers.h"
#include "support/drafters.h"
#include "support/tiny_models.h"
#include "support/toy_grammar.h"

namespace reprise::sched::speculation_bits_test {
namespace {

using engine::SamplingParams;
using testing_support::ByThree;
using testing_support::from_script;
using testing_support::TestDrafter;

struct Kind {
  SamplingParams sampling;
  bool grammar = false, prompt_logprobs = false;
  int64_t stop_after = -1;
};

constexpr int64_t kTokens = 24;

std::vector<Kind> kinds() {
  std::vector<Kind> out(14);
  for (size_t i = 0; i < out.size(); ++i) {
    SamplingParams& p = out[i].sampling;
    p.max_new_tokens = kTokens;
    p.ignore_eos = true;
    p.seed = 100 + i;
    if (i % 2) p.temperature = 0.4 + 0.1 * static_cast<double>(i);
  }
  out[2].sampling.logprobs = 3;
  out[3].sampling.logprobs = 2, out[3].sampling.top_p = 0.9;
  out[4].grammar = true;
  out[5].grammar = true, out[5].sampling.logprobs = 1;
  out[6].sampling.repetition_penalty = 1.3;
  out[7].sampling.frequency_penalty = 1, out[7].sampling.logprobs = 0;
  out[8].sampling.logit_bias = {{3, 4.0f}, {7, -2.0f}}, out[8].sampling.logprobs = 2;
  out[9].sampling.min_new_tokens = 9, out[9].sampling.stop_token_ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  out[10].stop_after = 7;
  out[11].prompt_logprobs = true, out[11].sampling.logprobs = 1;
  out[12].sampling.min_new_tokens = 12, out[12].sampling.ignore_eos = false, out[12].sampling.logprobs = 1;
  out[13].sampling.logprobs = 30;  // more than a device gives
  return out;
}

struct Setup {
  std::string name;
  std::string model = "llama_gqa3_tied";
  DType dtype = DType::BF16;
  std::optional<DType> kv_dtype = {};
  std::optional<engine::GraphPolicy> policy = {};
  std::optional<GraphMode> decode = {};
  int64_t chunk = 256, pages = 40, rows = 64;
  int64_t verify_replay = 0;
  std::string fault = {};  // of a step with drafts
  // Graphs freeze sizes: steps with drafts have captures of their own, of so many rows; 0: as many as come.
  std::optional<int64_t> frozen = {};
  DeviceKind device = DeviceKind::Cpu;
};

Result<std::unique_ptr<engine::Engine>> open(const Setup& s) {
  DeviceOptions device;
  device.threads = 2;
  device.pin_threads = false;
  device.live_sizes = !s.frozen;
  device.kind = s.device;
  device.ascend_runtime = "sim";
  setenv("ASCEND_SIM_RACES", "1", 0);  // work on the same memory that nothing orders is an error
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(s.model);
  o.dtype = s.dtype;
  o.kv_dtype = s.kv_dtype;
  o.context_length = 256;
  o.most_drafts = 4;  // of a model with states
  o.chunked_prefill_size = s.chunk;
  o.max_running_requests = s.rows;
  o.max_total_tokens = s.pages * kv::kPageTokens;
  if (s.policy) o.graph.policy = *s.policy;
  if (s.decode) o.graph.decode = *s.decode;
  o.graph.verify_replay = s.verify_replay;
  o.graph.verify = {5, true, s.frozen.value_or(0)};
  if (!s.fault.empty()) {
    ASSIGN_OR_RETURN(const engine::Fault fault, engine::parse_fault(s.fault));
    o.graph.faults.push_back(fault);
  }
  return engine::Engine::create(o, std::move(platform));
}

struct Outcome {
  std::vector<Answer> answers;
  std::vector<Tokens> prompts;
  SchedulerStats stats;
};

Outcome run(engine::Executor& e, const SchedulerOptions& options) {
  Outcome out;
  SchedulerOptions preempting = options;
  preempting.preemption_threshold = 0;
  Scheduler scheduler(e, preempting);
  std::vector<std::shared_ptr<Answer>> answers;
  const std::vector<Kind> all = kinds();
  for (size_t i = 0; i < all.size(); ++i) {
    Asked a = ask(count_up(5 + static_cast<int64_t>(i) * 37 % 131, static_cast<int32_t>(i)));
    out.prompts.push_back(a.request.prompt);
    a.request.sampling = all[i].sampling;
    a.request.prompt_logprobs = all[i].prompt_logprobs;
    a.answer->stop_after = all[i].stop_after;
    if (all[i].grammar) a.request.constraint = std::make_unique<ByThree>(e.vocab_size());
    answers.push_back(a.answer);
    EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  }
  // A neighbour that goes away in the middle.
  const auto gone = scheduler.add(ask(count_up(9, 3), 200).request);
  for (int i = 0; !scheduler.idle(); ++i) {
    if (i == 9) scheduler.cancel(*gone);
    if (i == 7) {
      Asked important = ask(count_up(200, 5), 3);
      important.request.priority = 5;
      EXPECT_TRUE(scheduler.add(std::move(important.request)).is_ok());
    }
    scheduler.step();
    const Status ok = scheduler.check_integrity();
    EXPECT_TRUE(ok.is_ok()) << ok.message();
  }
  out.stats = scheduler.stats();
  for (const auto& a : answers) {
    EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
    out.answers.push_back(*a);
  }
  return out;
}

bool same_bits(std::optional<float> a, std::optional<float> b) {
  return a.has_value() == b.has_value() && (!a || std::memcmp(&*a, &*b, sizeof(float)) == 0);
}

void expect_same_bits(const std::vector<SampledToken>& got, const std::vector<SampledToken>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t t = 0; t < got.size(); ++t) {
    EXPECT_TRUE(same_bits(got[t].logprob, want[t].logprob)) << "token " << t;
    ASSERT_EQ(got[t].top.size(), want[t].top.size()) << "token " << t;
    for (size_t k = 0; k < got[t].top.size(); ++k) {
      EXPECT_EQ(got[t].top[k].token, want[t].top[k].token);
      EXPECT_TRUE(same_bits(got[t].top[k].logprob, want[t].top[k].logprob)) << "token " << t << ", place " << k;
    }
  }
}

void expect_same(const Outcome& got, const Outcome& want) {
  for (size_t i = 0; i < want.answers.size(); ++i) {
    SCOPED_TRACE(fmt::format("request {}", i));
    const Answer &g = got.answers[i], &w = want.answers[i];
    EXPECT_EQ(g.tokens, w.tokens);
    expect_same_bits(g.sampled, w.sampled);
    expect_same_bits(g.prompt, w.prompt);
    EXPECT_EQ(g.result->finish, w.result->finish);
    EXPECT_EQ(g.result->stop_token, w.result->stop_token);
    EXPECT_EQ(g.result->completion_tokens, w.result->completion_tokens);
    EXPECT_EQ(g.result->completion_tokens, g.result->decode_steps + g.result->drafts.accepted);
    EXPECT_EQ(g.result->prompt_tokens, w.result->prompt_tokens);
  }
}

struct Drafters {
  std::string name;
  std::function<SchedulerOptions(const Outcome& plain, int32_t vocab)> options;
  bool all_come_true = false, none_comes_true = false;
};

std::vector<Drafters> drafters() {
  const auto scripted = [](double wrong) {
    return [wrong](const Outcome& plain, int32_t vocab) {
      std::vector<Tokens> texts = plain.prompts;
      for (size_t i = 0; i < texts.size(); ++i)
        texts[i].insert(texts[i].end(), plain.answers[i].tokens.begin(), plain.answers[i].tokens.end());
      SchedulerOptions o;
      o.drafter = [=] {
        return std::make_unique<TestDrafter>(TestDrafter::Options{.wrong = wrong, .vocab = vocab}, from_script(texts));
      };
      return o;
    };
  };
  const auto native = [](spec::Algorithm algorithm) {
    return [algorithm](const Outcome&, int32_t) {
      SchedulerOptions o;
      o.speculation.algorithm = algorithm;
      o.speculation.shortest_match = 1;
      o.speculation.suffix_factor = 4;
      return o;
    };
  };
  return {{"ngram", native(spec::Algorithm::Ngram)},
          {"suffix", native(spec::Algorithm::Suffix)},
          {"random",
           [](const Outcome&, int32_t vocab) {
             SchedulerOptions o;
             o.drafter = [=] {
               return std::make_unique<TestDrafter>(TestDrafter::Options{.whole = false, .vocab = vocab},
                                                    testing_support::at_random(5, vocab));
             };
             return o;
           }},
          {"perfect", scripted(0), true},
          {"worst", scripted(1), false, true},
          {"half", scripted(0.5)}};
}

// Over all answers: where a step has few rows, some of them get no drafts.
int64_t decode_steps(const Outcome& o) {
  int64_t sum = 0;
  for (const auto& answer : o.answers) sum += answer.result->decode_steps;
  return sum;
}

void expect_answers_of_plain_steps(const Setup& setup) {
  auto e = open(setup);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto vocab = static_cast<int32_t>((*e)->vocab_size());
  const Outcome plain = run(**e, {});
  for (const Drafters& d : drafters()) {
    SCOPED_TRACE(d.name);
    SchedulerOptions options = d.options(plain, vocab);
    options.speculation.adaptive = false;
    options.speculation.draft_tokens = 5;
    const Outcome got = run(**e, options);
    expect_same(got, plain);
    const SpeculationStats& s = got.stats.speculation;
    EXPECT_GT(s.draft_tokens, 0u);
    EXPECT_LE(s.accepted_tokens, s.draft_tokens);
    if (d.none_comes_true) {
      EXPECT_EQ(s.accepted_tokens, 0u);
    }
    if (d.all_come_true) {
      EXPECT_GT(s.accepted_tokens, 20u);
      EXPECT_LT(decode_steps(got), decode_steps(plain));
    }
  }
  EXPECT_EQ((*e)->counters().differences, 0u);
  if (setup.verify_replay > 0) {
    EXPECT_GT((*e)->counters().checked, 50u);
  }
  if (setup.fault.starts_with("alloc")) {
    EXPECT_EQ((*e)->runner("verify")->dropped().size(), 1u);
  } else if (!setup.fault.empty()) {
    EXPECT_EQ((*e)->runner(setup.frozen ? "verify" : "decode")->quarantined().size(), 1u);
  }
  if (setup.frozen) {
    const engine::StepRunner& verify = *(*e)->runner("verify");
    EXPECT_GT(verify.stats().steps, 50u);
    if (setup.fault.empty() && !setup.policy) {
      EXPECT_TRUE(verify.stats().fallbacks.empty());
      EXPECT_GT(verify.stats().padded_rows, 0u);
    }
  }
  if (setup.pages < 20) {
    EXPECT_GT(plain.stats.preemptions, 0u);
  }
}

class SpeculationBits : public testing::TestWithParam<Setup> {};

TEST_P(SpeculationBits, AnswersAreThoseWithoutDrafts) { expect_answers_of_plain_steps(GetParam()); }

// Where graphs freeze sizes, on the CPU and on the simulated NPU, which computes steps by itself besides.
class FrozenSpeculation : public testing::TestWithParam<Setup> {};

TEST_P(FrozenSpeculation, AnswersAreThoseWithoutDrafts) { expect_answers_of_plain_steps(GetParam()); }

// Drafts of the same model, and of one with other weights.
TEST_P(SpeculationBits, AnswersAreThoseWithoutADraftModel) {
  const auto& setup = GetParam();
  auto e = open(setup);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const Outcome plain = run(**e, {});
  for (const std::string& name : std::vector<std::string>{setup.model, "llama_mha_untied"}) {
    SCOPED_TRACE(name);
    if (name == setup.model && (*e)->has_states()) continue;  // a draft model keeps none
    auto draft = open({.name = "draft",
                       .model = name,
                       .dtype = setup.dtype,
                       .kv_dtype = setup.kv_dtype,
                       .pages = setup.pages + 8,
                       .rows = setup.rows,
                       .frozen = setup.frozen,
                       .device = setup.device});
    ASSERT_TRUE(draft.is_ok()) << draft.status().message();
    SchedulerOptions options;
    options.speculation.adaptive = false;
    options.speculation.draft_tokens = 5;
    options.drafter = [&] { return std::make_unique<ModelDrafter>(**draft, ModelDrafterOptions{.most_drafts = 4}); };
    const Outcome got = run(**e, options);
    expect_same(got, plain);
    if (name != setup.model) continue;
    EXPECT_GT(got.stats.speculation.draft_tokens, 20u);
    // Greedy and drawn, where nothing changes the logits before: what the model draws is what it drew before.
    for (const size_t i : {0, 1, 2, 3, 11}) {
      EXPECT_EQ(got.answers[i].result->drafts.accepted, got.answers[i].result->drafts.drafted) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , SpeculationBits,
    testing::Values(
        Setup{.name = "whole"}, Setup{.name = "piecewise", .decode = GraphMode::Piecewise},
        Setup{.name = "eager", .policy = engine::GraphPolicy::Off}, Setup{.name = "chunked", .chunk = 17},
        Setup{.name = "small_pool", .pages = 9}, Setup{.name = "int8_cache", .kv_dtype = DType::I8},
        Setup{.name = "fp32_qwen3", .model = "qwen3_tied", .dtype = DType::F32},
        Setup{.name = "window", .model = "mistral_window24"}, Setup{.name = "latents", .model = "deepseek_v2_moe"},
        Setup{.name = "checked", .verify_replay = 2}, Setup{.name = "few_rows", .rows = 6},
        Setup{.name = "failed_verify_step", .fault = "kernel-error@95"},
        Setup{.name = "states_whole", .model = "qwen3_next", .verify_replay = 2},
        Setup{.name = "states_piecewise", .model = "qwen3_5", .decode = GraphMode::Piecewise, .chunk = 17},
        Setup{.name = "states_eager", .model = "qwen3_5", .dtype = DType::F32, .policy = engine::GraphPolicy::Off},
        Setup{.name = "states_small_pool", .model = "qwen3_next", .pages = 9},
        Setup{.name = "states_failed_verify_step", .model = "qwen3_5", .fault = "kernel-error@95"},
        Setup{.name = "frozen", .rows = 16, .frozen = 0},
        Setup{.name = "ascend", .rows = 16, .frozen = 0, .device = DeviceKind::Ascend}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    , FrozenSpeculation,
    testing::Values(Setup{.name = "piecewise", .decode = GraphMode::Piecewise, .rows = 16, .frozen = 0},
                    Setup{.name = "eager", .policy = engine::GraphPolicy::Off, .rows = 16, .frozen = 0},
                    Setup{.name = "few_rows_checked", .rows = 6, .verify_replay = 3, .frozen = 9},
                    Setup{.name = "failed_verify_step", .rows = 16, .fault = "kernel-error@95", .frozen = 0},
                    Setup{.name = "failed_capture", .chunk = 64, .rows = 4, .fault = "alloc@14", .frozen = 0},
                    Setup{.name = "states_checked", .model = "qwen3_next", .rows = 16, .verify_replay = 3, .frozen = 0},
                    Setup{.name = "states_failed_verify_step",
                          .model = "qwen3_5",
                          .rows = 16,
                          .fault = "kernel-error@100",
                          .frozen = 0},
                    Setup{.name = "ascend_eager",
                          .policy = engine::GraphPolicy::Off,
                          .rows = 16,
                          .frozen = 0,
                          .device = DeviceKind::Ascend},
                    Setup{.name = "ascend_piecewise",
                          .decode = GraphMode::Piecewise,
                          .rows = 4,
                          .frozen = 0,
                          .device = DeviceKind::Ascend}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace reprise::sched::speculation_bits_test
