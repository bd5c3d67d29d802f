// Which weights are read ahead beside which launches, and why others are not.
#include <gtest/gtest.h>

#include "graph/streams.h"
#include "support.h"

namespace reprise::insert_prefetch_test {
namespace {

struct InsertPrefetch : testing::Test {
  // 100 bytes a microsecond: the tiny models' weights are large. A launch leaves memory idle for 100 us, and a prefetch
  // begins after 150.
  ReadAhead ahead{"", 100, 300, 100, 1000, 150, 10, 1 << 20};
  Platform platform = test::null_platform();  // outlives the graphs
  int streams = 1, ranks = 1;
  int64_t most = 1 << 20, keys = 0;

  struct Planned {
    Graph graph;
    PassReport report;
    MemoryPlan plan;
  };
  Planned plan(const test::TinyModel& model) {
    null::NullDeviceOptions device;
    device.read_ahead = ahead;
    platform.device = null::make_null_device(device);
    PipelineOptions options;
    options.streams = streams;
    options.ranks.size = ranks;
    options.prefetch_bytes = most;
    options.prefetch_keys = keys;
    Planned p{test::trace_tiny(model, *platform.ops), {}, {}};
    auto report = run_pipeline(p.graph, options, platform);
    EXPECT_TRUE(report.is_ok()) << report.status().message();
    EXPECT_EQ(report->passes.back().name, "insert_prefetch");
    EXPECT_TRUE(verify(p.graph).is_ok()) << verify(p.graph).message();
    p.plan = plan_memory(p.graph, {});
    const Status checked = check_plan(p.graph, p.plan);
    EXPECT_TRUE(checked.is_ok()) << checked.message();
    p.report = std::move(report->passes.back());
    // Written down and read again it is the same.
    const auto read = parse_graph(print(p.graph), *platform.ops);
    EXPECT_TRUE(read.is_ok()) << read.status().message();
    if (read.is_ok()) EXPECT_EQ(print(*read), print(p.graph));
    return p;
  }
  // From now on a launch of the op starts so many kernels.
  void starts(std::string_view op, int kernels) {
    KernelRegistry all;
    null::register_null(all, *platform.ops);
    auto some = std::make_unique<KernelRegistry>();
    for (const auto& e : all.entries()) {
      KernelEntry entry = *e;
      if (entry.op == op) entry.starts = [kernels](const OpCall&) -> Result<int> { return kernels; };
      some->add(std::move(entry));
    }
    platform.kernels = std::move(some);
  }
  // "BYTES from FIRST of ALL after OP until OP"
  static std::vector<std::string> hints(const Graph& g) {
    std::vector<std::string> out;
    for (const Node* n = g.first(); n; n = n->next) {
      if (!n->is_hint()) continue;
      const Node* reader = n->next;
      while (reader->is_hint() || std::find(reader->in.begin(), reader->in.end(), n->in[0]) == reader->in.end())
        reader = reader->next;
      out.push_back(fmt::format("{} from {} of {}{} until {}", n->attrs.integer("bytes"), n->attrs.integer("first"),
                                n->in[0]->type.shape.elements({}) * 2,
                                n->waits.empty() ? "" : " after " + n->waits[0]->op->name, reader->op->name));
    }
    return out;
  }
};

TEST_F(InsertPrefetch, WeightsComeWhileMemoryIdles) {
  const Planned p = plan({"Qwen3ForCausalLM", 2});
  // Behind the last attention the wanted rows are gathered as well.
  EXPECT_EQ(hints(p.graph), (std::vector<std::string>{"14848 from 0 of 98304 until linear",
                                                      "14848 from 0 of 49152 after linear until linear",
                                                      "34816 from 0 of 49152 after linear until linear"}));
  ASSERT_FALSE(p.report.refused.empty());
  EXPECT_EQ(p.report.refused[0].reason, "memory idles for 100.0 us before it, and a prefetch begins after 150.0 us");
  // Values have the places that they have without.
  Graph plain = test::trace_tiny({"Qwen3ForCausalLM", 2}, *platform.ops);
  ASSERT_TRUE(run_pipeline(plain, {}, platform).is_ok());
  EXPECT_EQ(p.plan.arena_bytes, plan_memory(plain, {}).arena_bytes);
}

// Between two products stands one launch of a norm: 100 us of it are too short, three kernels of it are not.
TEST_F(InsertPrefetch, ALaunchIsAsLongAsItsKernels) {
  const auto ahead_of_gates = [](const Planned& p) {
    const std::vector<std::string> all = hints(p.graph);
    return std::count(all.begin(), all.end(), "14848 from 0 of 61440 after linear until linear");
  };
  const Planned one = plan({"Qwen3ForCausalLM", 2});
  starts("add_rms_norm", 3);
  const Planned three = plan({"Qwen3ForCausalLM", 2});
  EXPECT_EQ(ahead_of_gates(one), 0);
  EXPECT_EQ(ahead_of_gates(three), 2);
  starts("add_rms_norm", 0);
  const Planned none = plan({"Qwen3ForCausalLM", 2});
  EXPECT_EQ(none.report.refused[0].reason, "memory idles for 0.0 us before it, and a prefetch begins after 150.0 us");
}

// Of a collective's kernels one is the exchange.
TEST_F(InsertPrefetch, AnExchangeHasKernelsBesides) {
  ranks = 2;
  ahead.launch_us = 10;
  ahead.collective_us = 200;
  const auto ahead_of_an_exchange = [&](int kernels, const std::string& bytes) {
    starts("all_gather", kernels);
    const std::vector<std::string> all = hints(plan({"Qwen3ForCausalLM", 2}).graph);
    return std::count_if(all.begin(), all.end(), [&](const std::string& h) { return h.starts_with(bytes + " from"); });
  };
  // 200 + 10 of the norm - 150, and with three kernels more 240 - 150, at 100 bytes a microsecond in whole lines.
  EXPECT_GT(ahead_of_an_exchange(1, "5632"), 0);
  EXPECT_EQ(ahead_of_an_exchange(4, "5632"), 0);
  EXPECT_GT(ahead_of_an_exchange(4, "8704"), 0);
}

// With time for more than one weight: each byte is asked for once, from the first on, and no more than the limit.
TEST_F(InsertPrefetch, NothingIsReadAheadTwice) {
  ahead.launch_us = 600;
  for (const int64_t limit : {int64_t{1} << 20, int64_t{20000}}) {
    most = limit;
    const Planned p = plan({"Qwen3ForCausalLM", 3});
    std::map<const Value*, int64_t> asked;
    int several = 0;
    for (const Node* n = p.graph.first(); n; n = n->next) {
      if (!n->is_hint()) continue;
      EXPECT_EQ(n->attrs.integer("first"), asked[n->in[0]]);
      asked[n->in[0]] += n->attrs.integer("bytes");
      EXPECT_LE(asked[n->in[0]], std::min(limit, n->in[0]->type.shape.elements({}) * 2));
      several += n->next->is_hint() || (n->next->is_param() && n->next->next->is_hint()) ? 1 : 0;
    }
    EXPECT_GT(several, 0) << limit;
    EXPECT_GT(asked.size(), 6u) << limit;
  }
}

// The time of a window and the product behind it, step by step: what runs at the same time divides the bandwidth by
// what each asks for, all of it (a prefetch) or `share` of it (a launch of `alone` us). Microseconds.
double simulated(double begins, double prefetch, double before, double alone, double share, double behind) {
  constexpr double kStep = 1e-2;
  double now = 0, window = before, attention = alone;
  for (; attention > 0; now += kStep) {
    const bool reads = now >= begins && prefetch > 0;
    const double speed = window <= 0 && reads ? 1 / (1 + share) : 1;
    if (reads) prefetch -= kStep * speed;
    (window > 0 ? window : attention) -= kStep * speed;
  }
  return now + behind;
}

// Attention over contexts reads memory itself: what a prefetch takes of its bandwidth is counted, and the rows up to
// which it pays all the same are those of a simulation.
TEST_F(InsertPrefetch, WhatRunsBesideNeedsItsBandwidth) {
  int64_t before = 4096;
  for (const int64_t k : {16, 32, 128}) {  // the launch before attention ends before the prefetch begins
    keys = k;
    const Planned p = plan({"Qwen3ForCausalLM", 2});
    const Node *first = nullptr, *attention = nullptr;
    for (const Node* n = p.graph.first(); n; n = n->next) {
      if (n->is_hint() && !n->waits.empty() && !first) first = n;  // the window before it has no attention
      if (n->op->name == "paged_attention" && !attention) attention = n;
    }
    ASSERT_TRUE(attention);
    LiveSizes one;
    one.value.fill(1);
    const double row = 2.0 * static_cast<double>(attention->in[0]->type.shape.elements(one)) +
                       2.0 * static_cast<double>(attention->in[1]->type.shape.elements(one) * k) / kPageTokens;
    const double bytes = 14848, ahead_us = bytes / ahead.bytes_per_us, cached_us = bytes / ahead.cached_bytes_per_us;
    int64_t pays = 0;
    for (int64_t rows = 1; rows < before; ++rows) {
      const double reads = row * static_cast<double>(rows) / ahead.bytes_per_us, alone = 200 + reads;
      const double with = simulated(150, ahead_us, 100, alone, reads / alone, cached_us + ahead.mark_us);
      if (with >= simulated(150, 0, 100, alone, 0, ahead_us)) break;
      pays = rows;
    }
    if (pays == 0) {
      EXPECT_EQ(first, nullptr) << k;
    } else {
      ASSERT_TRUE(first) << k;
      EXPECT_EQ(first->attrs.integer("bytes"), 14848);
      EXPECT_NEAR(static_cast<double>(first->attrs.integer("rows")), static_cast<double>(pays), 1) << k;
      ASSERT_GT(p.report.applied.size(), 1u);
      EXPECT_TRUE(p.report.applied[1].reason.ends_with(
          fmt::format(", in steps of up to {} rows", first->attrs.integer("rows"))))
          << p.report.applied[1].reason;
    }
    EXPECT_LT(pays, before) << k;
    before = pays + 1;
  }
}

// Where even one row loses nothing is placed, and the report says what it would have cost.
TEST_F(InsertPrefetch, AWindowThatLosesIsRefused) {
  keys = 1 << 20;
  const Planned p = plan({"Qwen3ForCausalLM", 2});
  EXPECT_EQ(hints(p.graph), (std::vector<std::string>{"14848 from 0 of 98304 until linear"}));  // no attention yet
  const auto told = std::count_if(p.report.refused.begin(), p.report.refused.end(), [](const PassRemark& r) {
    return r.reason ==
           "0.0 MB ahead would save 99.0 us, and to start them costs 10.0 us and what runs beside them "
           "148.5 us of its bandwidth, at one row of 1048576 keys";
  });
  EXPECT_EQ(told, 1);
}

TEST_F(InsertPrefetch, ExpertsAreNotReadAhead) {
  const Planned p = plan({"Qwen3MoeForCausalLM", 2});
  const auto told = [&](const std::string& why) {
    return std::count_if(p.report.refused.begin(), p.report.refused.end(),
                         [&](const PassRemark& r) { return r.reason == why; });
  };
  EXPECT_GT(told("which of its matrices are read depends on the step"), 0);
  for (const Node* n = p.graph.first(); n; n = n->next)
    if (n->is_hint()) EXPECT_EQ(n->in[0]->type.shape.rank(), 2);
}

// Beside the shared expert's products on the side stream memory is busy.
TEST_F(InsertPrefetch, WhatRunsBesideAProductLeavesNoTime) {
  const auto beside_routing = [&] {
    const Planned p = plan({"Qwen2MoeForCausalLM", 2});
    return std::count_if(p.report.applied.begin(), p.report.applied.end(),
                         [](const PassRemark& r) { return r.reason.find("moe_combine") != std::string::npos; });
  };
  ahead.launch_us = 300;
  const auto alone = beside_routing();
  streams = 2;
  EXPECT_GT(alone, 0);
  EXPECT_EQ(beside_routing(), 0);
}

TEST_F(InsertPrefetch, ADeviceThatCannotSaysSo) {
  ahead.refusal = "nobody asked it";
  const Planned p = plan({"Qwen3ForCausalLM", 2});
  EXPECT_TRUE(hints(p.graph).empty());
  ASSERT_EQ(p.report.refusals, 1);
  EXPECT_EQ(p.report.refused[0].reason, "nobody asked it");
}

}  // namespace
}  // namespace reprise::insert_prefetch_test
