// What is captured and how often: one capture for every row count and length (F15, F67), cut where the user says (F24,
// F31), after the same passes in every mode (F35), with or without them (F66), in the memory that was planned (F63),
// and all of it before the engine is ready (F64).
#include <gtest/gtest.h>

#include "graph/text.h"
#include "nn/fused.h"
#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::capture_test {
namespace {

using engine::GraphPolicy;
using testing_support::eager;
using testing_support::same_bits;

constexpr int64_t kRows = 20;

Result<std::unique_ptr<engine::Engine>> try_open(const std::string& model, const engine::GraphOptions& graph,
                                                 bool live_sizes) {
  DeviceOptions device;
  device.threads = 2;
  device.pin_threads = false;
  device.live_sizes = live_sizes;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model);
  o.chunked_prefill_size = 200;
  o.max_running_requests = kRows;
  o.max_total_tokens = kRows * 256;
  o.graph = graph;
  return engine::Engine::create(o, std::move(platform));
}

std::unique_ptr<engine::Engine> open(const std::string& model, const engine::GraphOptions& graph = {},
                                     bool live_sizes = true) {
  auto e = try_open(model, graph, live_sizes);
  EXPECT_TRUE(e.is_ok()) << e.status().message();
  return e.is_ok() ? std::move(*e) : nullptr;
}

// `batch` prompts of `length` tokens and more, then `decodes` decode steps; every logit.
std::vector<float> run(engine::Engine& e, int64_t batch, int64_t length = 3, int decodes = 2) {
  return testing_support::Traffic(e, testing_support::lengths(batch, length, 1, 4), decodes, 11).run(decodes);
}

int64_t fused_ops_in(const Graph& g) {
  const nn::FusedOps fused = nn::fused_ops();
  int64_t n = 0;
  for (const Node* node = g.first(); node; node = node->next)
    for (const nn::FusedOp& op : fused.all()) n += op.name() == node->op->name;
  return n;
}

TEST(OneCapture, ServesEveryRowCount) {
  auto key = open("qwen3_tied", eager());
  engine::GraphOptions whole;
  whole.prefill = GraphMode::Whole;
  auto e = open("qwen3_tied", whole);
  // Of each phase, a graph of the body and one of each head.
  constexpr uint64_t kHeads = 3;  // logits, next tokens, drawn tokens; pooled rows are of other models
  const uint64_t graphs = 2 * (1 + kHeads);
  ASSERT_EQ(e->counters().captures, graphs);
  EXPECT_GT(e->runner("decode")->sizes().size(), 5u);
  for (int64_t batch = 1; batch <= kRows; ++batch)
    EXPECT_TRUE(same_bits(run(*key, batch), run(*e, batch))) << "batch " << batch;
  for (const auto* runner : {e->runner("decode"), e->runner("prefill")}) {
    EXPECT_EQ(runner->stats().replays, runner->stats().steps);
    EXPECT_TRUE(runner->stats().fallbacks.empty());
  }
  EXPECT_EQ(e->counters().captures, graphs);
  // Where sizes freeze, each has a capture of the body, made at start-up as well.
  auto frozen = open("qwen3_tied", whole, false);
  EXPECT_EQ(frozen->counters().captures,
            frozen->runner("decode")->sizes().size() + frozen->runner("prefill")->sizes().size());
}

// Lengths are data: they grow over a page's end, differ between the sequences, and nothing is captured again.
TEST(Lengths, GrowWithoutACaptureInEveryLayer) {
  for (const bool live : {true, false}) {
    auto key = open("llama_gqa3_tied", eager());
    auto e = open("llama_gqa3_tied", {}, live);
    const auto captures = e->counters().captures;
    for (const int64_t length : {2, 29, 125})
      EXPECT_TRUE(same_bits(run(*key, 1, length, 9), run(*e, 1, length, 9))) << length;
    EXPECT_TRUE(same_bits(run(*key, 6, 25, 9), run(*e, 6, 25, 9)));
    EXPECT_EQ(e->runner("decode")->stats().replays, 4u * 9);
    EXPECT_EQ(e->counters().captures, captures);
  }
}

// F31: where the gain comes from. Of all launches of a prefill, only attention's are left.
TEST(PiecewisePrefill, LaunchesNothingButAttention) {
  engine::GraphOptions off;
  off.prefill = GraphMode::Eager;
  auto pieces = open("qwen3_tied"), eager = open("qwen3_tied", off);
  const CompiledModel &a = pieces->runner("prefill")->model(), &b = eager->runner("prefill")->model();
  const auto layers = static_cast<uint64_t>(pieces->config().num_hidden_layers);
  EXPECT_TRUE(same_bits(run(*pieces, 5, 7, 0), run(*eager, 5, 7, 0)));
  EXPECT_EQ(a.counters().launches, layers);
  EXPECT_EQ(a.counters().replays, layers + 1 + 1);  // and the head
  EXPECT_EQ(b.counters().launches, b.launches(engine::head_of(engine::StepOutput::Logits)));
  EXPECT_EQ(b.counters().replays, 0u);
  EXPECT_GT(b.launches(), 5 * layers);
}

TEST(SplitOps, CutWhereTheUserSaysAndKeepTheBits) {
  auto key = open("qwen3_tied", eager());
  const auto layers = static_cast<size_t>(key->config().num_hidden_layers);
  engine::GraphOptions g;
  g.decode = GraphMode::Piecewise;
  for (const bool live : {true, false}) {
    g.split_ops = {};
    auto usual = open("qwen3_tied", g, live);
    g.split_ops = {"silu_mul"};
    auto cut = open("qwen3_tied", g, live);
    for (const engine::PhaseSpec& phase : usual->phases()) {
      const CompiledModel &before = usual->runner(phase.name)->model(), &after = cut->runner(phase.name)->model();
      // Where sizes freeze, what works on the rows with logits alone is not captured in a prefill anyway.
      const bool all = live || phase.each == 1;
      EXPECT_EQ(after.pieces().size(), before.pieces().size() + 2 * (layers - (all ? 0 : 1)));
      size_t alone = 0;
      for (const Piece& p : after.pieces()) {
        for (const Thunk& t : p.thunks) {
          if (after.node(t.node)->op->name != "silu_mul") continue;
          EXPECT_FALSE(p.captured);
          ++alone;
        }
      }
      EXPECT_EQ(alone, layers);
      EXPECT_EQ(after.launches(), before.launches());
    }
    for (const int64_t batch : {1, 5, 16}) EXPECT_TRUE(same_bits(run(*key, batch), run(*cut, batch))) << batch;
  }
  g.split_ops = {"silly_mul"};
  const auto wrong = try_open("qwen3_tied", g, true);
  ASSERT_FALSE(wrong.is_ok());
  for (const char* words : {"`split_ops`", "silly_mul", "paged_attention"})
    EXPECT_NE(wrong.status().message().find(words), std::string::npos) << wrong.status().message();
}

TEST(Passes, AreTheSameInEveryMode) {
  std::string text;
  for (const auto mode : {GraphMode::Whole, GraphMode::Piecewise, GraphMode::Eager}) {
    engine::GraphOptions g;
    g.decode = g.prefill = mode;
    auto e = open("qwen2_untied", g);
    ASSERT_EQ(e->runner("decode")->mode(), mode);
    std::string now = print(e->runner("decode")->model().graph()) + print(e->runner("prefill")->model().graph());
    for (const auto* passes : {e->passes("decode"), e->passes("prefill")})
      for (const PassReport& p : passes->passes) now += fmt::format("{} {} {}\n", p.name, p.matched, p.refusals);
    if (text.empty()) text = now;
    EXPECT_EQ(now, text) << graph_mode_name(mode);
  }
  EXPECT_NE(text.find("split_qk_norm_rope_kv"), std::string::npos);
}

TEST(Optional, PassesWithoutCaptureAndCaptureWithoutPasses) {
  auto key = open("qwen3_tied", eager());
  for (const bool capture : {true, false}) {
    for (const bool passes : {true, false}) {
      SCOPED_TRACE(fmt::format("capture {}, passes {}", capture, passes));
      engine::GraphOptions g;
      if (!capture) g.policy = GraphPolicy::Off;
      if (!passes) g.pipeline.passes.enable = {"none"};
      auto e = open("qwen3_tied", g);
      EXPECT_EQ(fused_ops_in(e->runner("decode")->model().graph()) > 0, passes);
      EXPECT_EQ(e->counters().captures > 0, capture);
      for (const int64_t batch : {1, 3, 20}) EXPECT_TRUE(same_bits(run(*key, batch), run(*e, batch)));
      EXPECT_EQ(e->runner("decode")->stats().replays, capture ? 6u : 0u);
    }
  }
}

// What was planned is what the device's pool gave, to the byte, and steps ask for no more.
TEST(Planned, MemoryIsWhatIsAllocated) {
  for (const bool live : {true, false}) {
    auto e = open("qwen3_tied", {}, live);
    const auto at_start = e->device().pool().stats();
    const auto planned = std::max(e->runner("decode")->planned_bytes(), e->runner("prefill")->planned_bytes());
    EXPECT_EQ(at_start.live_by_label.at("activations"), planned);
    const engine::MemoryReport m = e->memory();
    EXPECT_EQ(at_start.live_by_label.at("weights"), m.weight_bytes);
    EXPECT_EQ(at_start.live_by_label.at("kv"), m.kv_bytes);
    EXPECT_EQ(at_start.live_by_label.at("activations") + at_start.live_by_label.at("staging"), m.activation_bytes);
    for (const int64_t batch : {1, 20}) (void)run(*e, batch);
    EXPECT_EQ(e->device().pool().stats().live_by_label, at_start.live_by_label);
    EXPECT_EQ(e->device().pool().stats().peak_bytes, at_start.peak_bytes);
  }
}

TEST(StartUp, IsTimedAndCompilesEverything) {
  for (const bool live : {true, false}) {
    auto e = open("qwen3_tied", {}, live);
    const engine::LoadTimes t = e->load_times();
    EXPECT_GT(t.load_s, 0);
    EXPECT_GT(t.compile_s, 0);
    EXPECT_GT(t.capture_s, 0);
    EXPECT_EQ(e->counters().steps, 0u);
    const auto captures = e->counters().captures;
    EXPECT_GT(captures, 0u);
    const std::string graph = print(e->runner("decode")->model().graph());
    for (int64_t batch = 1; batch <= kRows; ++batch) (void)run(*e, batch, 1 + batch % 7);
    EXPECT_EQ(e->counters().steps, 3u * kRows);
    EXPECT_EQ(e->counters().captures, captures);
    EXPECT_EQ(print(e->runner("decode")->model().graph()), graph);
    const engine::LoadTimes after = e->load_times();
    EXPECT_EQ(std::tie(after.load_s, after.compile_s, after.capture_s), std::tie(t.load_s, t.compile_s, t.capture_s));
  }
}

}  // namespace
}  // namespace reprise::capture_test
