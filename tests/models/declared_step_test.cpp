// What a family declares of a step is all that the engine needs: a further input with its producer, and states of
// sequences, in every mode of graphs, with padding, checks, faults and failures.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/state_model.h"
#include "support/temporary_path.h"
#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::declared_step_test {
namespace {

using testing_support::all_logits;
using testing_support::eager;
using testing_support::same_bits;
using testing_support::Traffic;

struct Opening {
  engine::GraphOptions graph = {};
  bool live_sizes = true;
  int64_t rows = 12;
};

Result<std::unique_ptr<engine::Engine>> open(const models::ModelSpec* spec, const Opening& s) {
  DeviceOptions device;
  device.threads = 2;
  device.pin_threads = false;
  device.live_sizes = s.live_sizes;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  testing_support::add_state_ops(platform);
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path("qwen3_tied");
  o.dtype = DType::F32;
  o.context_length = 300;
  o.chunked_prefill_size = 64;
  o.max_running_requests = s.rows;
  o.max_total_tokens = 12 * 384;
  o.graph = s.graph;
  if (spec) o.families = {spec};
  return engine::Engine::create(o, std::move(platform));
}

std::unique_ptr<engine::Engine> must_open(const models::ModelSpec* spec, const Opening& s = {}) {
  auto e = open(spec, s);
  EXPECT_TRUE(e.is_ok()) << e.status().message();
  return e.is_ok() ? std::move(*e) : nullptr;
}

// Every mode, with sizes that are read live and sizes that are frozen.
std::vector<Opening> all_modes() {
  std::vector<Opening> out{{.graph = eager()}};
  for (const bool live : {true, false})
    for (const auto& [decode, prefill] :
         {std::pair(GraphMode::Whole, GraphMode::Piecewise), std::pair(GraphMode::Piecewise, GraphMode::Whole)}) {
      Opening s{.live_sizes = live};
      s.graph.decode = decode;
      s.graph.prefill = prefill;
      out.push_back(s);
    }
  return out;
}

std::vector<float> traffic(engine::Engine& e, int64_t batch, int decodes = 4) {
  return Traffic(e, testing_support::lengths(batch, 1, 3, 17), decodes + 2).run(decodes);
}

// The logits that traffic() gives, each from a sequence that is read anew in one step: no state is ever read.
std::vector<float> traffic_read_anew(engine::Engine& e, int64_t batch, int decodes = 4) {
  Traffic t(e, testing_support::lengths(batch, 1, 3, 17), 0);
  std::vector<float> out;
  for (int i = 0; i <= decodes; ++i) {
    for (const engine::Sequence& known : t.sequences) {
      engine::Sequence s(known.tokens());
      EXPECT_TRUE(e.reserve(s, s.size()).is_ok());
      const engine::StepItem item{&s, s.size(), 1};
      auto logits = e.step({&item, 1});
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      if (logits.is_ok()) out.insert(out.end(), logits->begin(), logits->end());
      e.release(s);
    }
    t.append();
  }
  return out;
}

// Three rows of positions, as M-RoPE has them for images; layers take turns. Divisor 0: all are the usual ones.
template <int Axis, int Divisor>
void axis_positions(const models::StepRows& step, const TensorView& view) {
  auto out = models::ints(view);
  size_t at = 0;
  for (const models::StepPart& p : step.parts)
    for (int64_t t = p.cached; t < p.cached + p.count; ++t) {
      const int64_t axes[] = {t, Divisor ? t / Divisor : t, Divisor ? t % Divisor : t};
      out[at++] = static_cast<int32_t>(axes[Axis]);
    }
  std::fill(out.begin() + static_cast<ptrdiff_t>(at), out.end(), 0);
}

constexpr const char* kAxes[] = {"positions.time", "positions.height", "positions.width"};

template <int Divisor>
void declare_axes(const models::ModelConfig&, const models::TraceOptions& trace, models::StepSpec& step) {
  const models::Producer producers[] = {axis_positions<0, Divisor>, axis_positions<1, Divisor>,
                                        axis_positions<2, Divisor>};
  for (int axis = 0; axis < 3; ++axis)
    step.inputs.push_back(
        {.name = kAxes[axis], .type = {trace.index_dtype, {Dim(1, models::kTokens)}}, .producer = producers[axis]});
}

models::ModelOutputs forward_axes(const models::ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto grouped = models::grouped_attention(config, {.qk_norm = true}, in);
  const auto attention = [&](Tensor x, Tensor, int64_t layer, const nn::ParamScope& p) {
    return grouped(x, nn::rope_table(in.more(kAxes[(layer + 1) % 3]), models::rope_spec(config)), layer, p);
  };
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) {
    return nn::gated_mlp(x, config.fields.intermediate_size, false, p / "mlp");
  };
  return models::decoder(config, attention, mlp, in, root);
}

TEST(DeclaredInputs, ReachTheModelInEveryMode) {
  const models::ModelSpec usual = testing_support::qwen3_with(forward_axes, declare_axes<0>),
                          images = testing_support::qwen3_with(forward_axes, declare_axes<7>);
  auto plain = must_open(nullptr, {.graph = eager()});
  const auto of_qwen3 = traffic(*plain, 5);
  std::vector<float> first;
  for (const Opening& s : all_modes()) {
    auto same = must_open(&usual, s);
    EXPECT_TRUE(same_bits(of_qwen3, traffic(*same, 5)));
    auto other = must_open(&images, s);
    const auto now = traffic(*other, 5);
    if (first.empty()) first = now;
    EXPECT_TRUE(same_bits(first, now));
    EXPECT_FALSE(same_bits(of_qwen3, now));
  }
}

TEST(DeclaredInputs, AreNamedWhereTheDeclarationIsWrong) {
  const auto message_of = [](decltype(models::ModelSpec::declare) declare) {
    const models::ModelSpec spec = testing_support::qwen3_with(models::qwen3::kQwen3.forward, declare);
    const auto e = open(&spec, {});
    return e.is_ok() ? std::string() : e.status().message();
  };
  EXPECT_NE(message_of([](const models::ModelConfig&, const models::TraceOptions&, models::StepSpec& step) {
              step.inputs.push_back(step.inputs.front());
            }).find("declares tokens twice"),
            std::string::npos);
  EXPECT_NE(message_of([](const models::ModelConfig&, const models::TraceOptions&, models::StepSpec& step) {
              step.inputs.push_back({.name = "silent", .type = step.inputs.front().type});
            }).find("input silent has no producer"),
            std::string::npos);
  EXPECT_NE(message_of([](const models::ModelConfig&, const models::TraceOptions&, models::StepSpec& step) {
              step.caches.front().idempotent = false;
            }).find("cache kv.0"),
            std::string::npos);
}

TEST(States, ChunksAndModesGiveTheBitsOfOneStep) {
  const models::ModelSpec& spec = testing_support::state_model();
  std::vector<int32_t> tokens(150);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 37 % 300);
  std::vector<float> whole;
  for (Opening s : all_modes()) {
    s.rows = 60;  // logits of so many rows in a step
    auto e = must_open(&spec, s);
    for (const int64_t chunk : {60, 1, 7, 16}) {
      const auto now = all_logits(*e, tokens, chunk);
      if (whole.empty()) whole = now;
      EXPECT_TRUE(same_bits(whole, now)) << chunk;
    }
    EXPECT_EQ(e->state_pool().free_slots(), e->state_pool().slots() - 2);
  }
  auto without = must_open(nullptr, {.graph = eager(), .rows = 60});
  EXPECT_FALSE(same_bits(whole, all_logits(*without, tokens, 60)));
}

TEST(States, BatchesWithPaddingGiveTheBitsOfSequencesReadAnew) {
  const models::ModelSpec& spec = testing_support::state_model();
  auto key = must_open(&spec, {.graph = eager()});
  for (const Opening& s : all_modes()) {
    auto e = must_open(&spec, s);
    for (const int64_t batch : {1, 3, 5, 7})
      EXPECT_TRUE(same_bits(traffic_read_anew(*key, batch), traffic(*e, batch))) << batch;
  }
}

// What "graph verify" does to a decode step: a row whose state is forgotten changes, and no other.
TEST(States, OfARowAreReadThroughItsEntryAlone) {
  auto e = must_open(&testing_support::state_model());
  const auto run = [&](int64_t changed) {
    int step = 0;
    e->set_step_hook([&](const engine::StagedStep& s) {
      if (++step < 3 || changed < 0) return;
      for (const auto& in : s.stage.inputs())
        if (in.spec->name == "state_read") {
          EXPECT_TRUE(in.spec->change(in.view, changed, s.live));
        }
    });
    return traffic(*e, 3, 2);
  };
  const auto key = run(-1);
  const auto vocab = static_cast<size_t>(e->config().vocab_size);
  for (int64_t changed = 0; changed < 3; ++changed) {
    const auto now = run(changed);
    for (size_t row = 0; row < key.size() / vocab; ++row)
      EXPECT_EQ(same_bits(std::span(key).subspan(row * vocab, vocab), std::span(now).subspan(row * vocab, vocab)),
                row != 6 + static_cast<size_t>(changed))
          << row;
  }
}

class StateFaults : public testing::TestWithParam<const char*> {};

TEST_P(StateFaults, AreCaughtAndServingGoesOnWithTheRightBits) {
  const auto dir = std::filesystem::path(testing_support::temporary_path("reprise-state-faults"));
  const models::ModelSpec& spec = testing_support::state_model();
  const std::string fault = GetParam();
  for (const bool live : {true, false}) {
    Opening s{.live_sizes = live};
    s.graph.verify_replay = 1;
    s.graph.report_dir = dir.string();
    if (!fault.empty()) s.graph.faults = {*engine::parse_fault(fault)};
    auto key = must_open(&spec, {.graph = eager()});
    auto e = must_open(&spec, s);
    EXPECT_TRUE(same_bits(traffic_read_anew(*key, 3, 6), traffic(*e, 3, 6)));
    EXPECT_GT(e->counters().checked, 0u);
    const bool differs = fault.starts_with("stale") || fault.starts_with("bit");
    EXPECT_EQ(e->counters().differences, differs ? 1u : 0u);
    EXPECT_EQ(e->runner("decode")->quarantined().size(), differs || fault.starts_with("kernel") ? 1u : 0u);
    EXPECT_TRUE(same_bits(traffic_read_anew(*key, 5, 2), traffic(*e, 5, 2)));
  }
  std::filesystem::remove_all(dir);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StateFaults,
                         testing::Values("", "stale-input@3", "bit-flip@3", "kernel-error@3", "alloc@2"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.empty() ? "none" : name.substr(0, name.find('-')).substr(0, name.find('@'));
                         });

// Says that the checks can see it: a state that is updated in place is another one at the second run.
TEST(States, DeclaredIdempotentAreSeenToDifferByTheChecks) {
  const auto dir = std::filesystem::path(testing_support::temporary_path("reprise-state-misdeclared"));
  Opening s;
  s.graph.verify_replay = 1;
  s.graph.report_dir = dir.string();
  auto e = must_open(&testing_support::misdeclared_state_model(), s);
  (void)traffic(*e, 3);
  EXPECT_GT(e->counters().differences, 0u);
  std::filesystem::remove_all(dir);
}

TEST(States, OfMoreSequencesThanThereIsRoomForAreAnError) {
  auto e = must_open(&testing_support::state_model(), {.rows = 2});
  std::vector<engine::Sequence> sequences;
  for (int i = 0; i < 3; ++i) sequences.emplace_back(std::vector<int32_t>{1, 2, 3});
  for (size_t i = 0; i < sequences.size(); ++i) {
    ASSERT_TRUE(e->reserve(sequences[i], 4).is_ok());
    const engine::StepItem item{&sequences[i], 3, 1};
    const auto logits = e->step({&item, 1});
    EXPECT_EQ(logits.is_ok(), i < 2);
    EXPECT_EQ(logits.status().code(), i < 2 ? Code::Ok : Code::OutOfMemory) << logits.status().message();
  }
  e->release(sequences[0]);
  const engine::StepItem again{&sequences[2], 3, 1};
  EXPECT_TRUE(e->step({&again, 1}).is_ok());
  for (auto& s : sequences) e->release(s);
}

}  // namespace
}  // namespace reprise::declared_step_test
