// Each rule of the rewrite engine on a graph of a few nodes.
#include <gtest/gtest.h>

#include "nn/functional.h"
#include "support.h"

namespace reprise::rewrite_test {
namespace {

constexpr int64_t kWidth = 12;

struct RewriteTest : testing::Test {
  Platform platform = test::null_platform();
  OpRegistry& ops = *platform.ops;
  nn::FusedOps fused = nn::fused_ops();
  Tracer t{"g", ops};
  Dim tokens = t.symbol("T", 16);
  Tensor x = t.input("x", {DType::F32, {tokens, Dim(kWidth)}});
  Tensor r = t.input("r", {DType::F32, {tokens, Dim(kWidth)}});
  Tensor w = t.param("w", {DType::F32, {Dim(kWidth)}});

  Rewrite named(std::string_view name) { return rewrite_from(*fused.find(name), ops); }

  // Finishes the trace and applies one rewrite; the graph must be valid afterwards and survive its text form.
  PassReport apply(const Rewrite& rewrite) {
    auto traced = t.finish();
    EXPECT_TRUE(traced.is_ok()) << traced.status().message();
    graph = std::make_unique<Graph>(std::move(*traced));
    PassContext context(ops, fused, &platform);
    context.begin(rewrite.name, false, -1);
    const Status s = run_rewrite(rewrite, *graph, context);
    EXPECT_TRUE(s.is_ok()) << s.message();
    EXPECT_TRUE(verify(*graph).is_ok()) << verify(*graph).message() << print(*graph);
    EXPECT_EQ(print(test::copy_of(*graph, ops)), print(*graph));
    return context.report();
  }
  std::string order() const {
    std::string out;
    for (const Node* n = graph->first(); n; n = n->next)
      if (!n->is_source()) out += (out.empty() ? "" : " ") + n->op->name;
    return out;
  }
  void expect_refused(const PassReport& report, std::string_view reason) {
    EXPECT_EQ(report.matched, 0);
    std::string all;
    for (auto& r : report.refused) all += fmt::format("%{}: {}\n", r.at, r.reason);
    EXPECT_NE(all.find(reason), std::string::npos) << all;
  }
  std::unique_ptr<Graph> graph;
};

TEST_F(RewriteTest, FusesAndNamesItself) {
  t.output("y", nn::rms_norm(nn::add(x, r), w, 1e-5));
  const PassReport report = apply(named("add_rms_norm"));
  EXPECT_EQ(report.tried, 1);
  EXPECT_EQ(report.matched, 1);
  EXPECT_TRUE(report.refused.empty());
  EXPECT_EQ(order(), "add_rms_norm");
  EXPECT_EQ(graph->last()->made_by, "add_rms_norm");
  EXPECT_EQ(graph->last()->attrs.number("eps"), 1e-5);
}

TEST_F(RewriteTest, AnOutputOfThePatternMayBeReadAndReturned) {
  Tensor sum = nn::add(x, r);
  t.output("y", nn::rms_norm(sum, w, 1e-6));
  t.output("sum", sum);
  t.output("twice", nn::add(sum, sum));
  EXPECT_EQ(apply(named("add_rms_norm")).matched, 1);
  EXPECT_EQ(graph->outputs()[1].value->def->op->name, "add_rms_norm");
  EXPECT_EQ(graph->outputs()[1].value->result, 1u);
}

TEST_F(RewriteTest, ReadersBetweenTheMatchedNodesMoveBehind) {
  Tensor sum = nn::add(x, r);
  Tensor between = nn::silu(sum);
  Tensor later = nn::mul(between, between);
  Tensor norm = nn::rms_norm(sum, w, 1e-6);
  t.output("y", nn::add(norm, later));
  EXPECT_EQ(apply(named("add_rms_norm")).matched, 1);
  EXPECT_EQ(order(), "add_rms_norm silu mul add");
}

TEST_F(RewriteTest, ChainsFuseEachStep) {
  Tensor sum = x;
  for (int i = 0; i < 4; ++i) {
    sum = nn::add(sum, r);
    sum = nn::add(sum, nn::rms_norm(sum, w, 1e-6));
  }
  t.output("y", sum);
  EXPECT_EQ(apply(named("add_rms_norm")).matched, 4);
}

TEST_F(RewriteTest, CommutedOperandsMatch) {
  Tensor m = t.param("m", {DType::F32, {Dim(kWidth), Dim(kWidth)}});
  t.output("a", nn::add(nn::linear(x, m), r));
  t.output("b", nn::add(r, nn::linear(x, m, {}, nn::Shard::Row)));
  EXPECT_EQ(apply(named("linear_add")).matched, 2);
  for (auto& o : graph->outputs()) EXPECT_EQ(o.value->def->in[2], graph->find_input("r")->result());
  EXPECT_EQ(graph->outputs()[1].value->def->attrs.text("shard"), "row");
}

TEST_F(RewriteTest, BothOperandsMayBeTheSame) {
  t.output("y", nn::rms_norm(nn::add(x, x), w, 1e-6));
  EXPECT_EQ(apply(named("add_rms_norm")).matched, 1);
  EXPECT_EQ(graph->last()->in[0], graph->last()->in[1]);
}

TEST_F(RewriteTest, AnInnerValueReadOutsideRefuses) {
  Tensor gate = nn::silu(nn::slice(x, 0, kWidth / 2));
  t.output("y", nn::mul(gate, nn::slice(x, kWidth / 2, kWidth / 2)));
  t.output("z", nn::add(gate, gate));
  expect_refused(apply(named("silu_mul")), "is also used by %");
}

TEST_F(RewriteTest, AnInnerValueThatIsReturnedRefuses) {
  Tensor gate = nn::silu(nn::slice(x, 0, kWidth / 2));
  t.output("y", nn::mul(gate, nn::slice(x, kWidth / 2, kWidth / 2)));
  t.output("gate", gate);
  expect_refused(apply(named("silu_mul")), "is the graph's output gate");
}

TEST_F(RewriteTest, WholeNumbersFollowFromTheTypes) {
  t.output("y", nn::mul(nn::silu(nn::slice(x, 0, 4)), nn::slice(x, 6, 4)));
  expect_refused(apply(named("silu_mul")), "size is 4, expected 6");
}

TEST_F(RewriteTest, ANearMissNamesTheNodeThatStopsIt) {
  Tensor h = nn::silu(x);
  t.output("y", nn::rms_norm(h, w, 1e-6));
  const PassReport report = apply(named("add_rms_norm"));
  expect_refused(report, "expected add, found silu");
  EXPECT_EQ(report.refused[0].at, graph->outputs()[0].value->def->in[0]->id);
}

// add(linear(x, w), r): neither order of the addition's operands has a linear. Of the two the one is named that is
// nearly one, whichever side it stands on, and not the residual.
TEST_F(RewriteTest, ANearMissOfCommutingOperandsNamesTheLikelyOne) {
  Rewrite rewrite;
  rewrite.name = "linear_and_residual";
  rewrite.operands = 3;
  rewrite.search = [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
    return {nn::add(nn::linear(in[0], in[1]), in[2])};
  };
  rewrite.replace = [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
    return {nn::add(in[2], nn::linear(in[0], in[1]))};
  };
  const TensorType wide{DType::F32, {Dim(1, 1), Dim(68)}}, narrow{DType::F32, {Dim(1, 1), Dim(44)}};
  rewrite.examples = {{{{"T", 9}}, {wide, {DType::F32, {Dim(44), Dim(68)}}, narrow}, {}}};
  Tensor packed = t.param("packed", {DType::U8, {Dim(kWidth), Dim(34)}});
  Tensor activation = t.input("activation", {DType::F32, {t.symbol("P", 9), Dim(32)}});
  const auto product = [&] {
    return t.call("linear_blocks", {activation, packed}, {{"format", std::string("q8_0")}})[0];
  };
  Tensor residual = nn::silu(t.input("residual", {DType::F32, {t.symbol("P", 9), Dim(kWidth)}}));
  t.output("left", nn::add(product(), residual));
  t.output("right", nn::add(residual, product()));
  const PassReport report = apply(rewrite);
  ASSERT_EQ(report.refused.size(), 2u);
  for (const PassRemark& r : report.refused)
    EXPECT_NE(r.reason.find("expected linear, found linear_blocks"), std::string::npos) << r.reason;
}

// Two results; the second input may come to depend on the first result.
Rewrite two_results() {
  Rewrite rewrite;
  rewrite.name = "two_results";
  rewrite.operands = 2;
  rewrite.search = [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
    return {nn::silu(in[0]), nn::mul(in[0], in[1])};
  };
  rewrite.replace = [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
    Tensor second = nn::mul(in[1], in[0]);
    return {nn::silu(in[0]), second};
  };
  const TensorType type{DType::F32, {Dim(1, 1), Dim(44)}};
  rewrite.examples = {{{{"T", 9}}, {type, type}, {}}};
  return rewrite;
}

TEST_F(RewriteTest, AnInputThatDependsOnAnOwnOutputRefuses) {
  Tensor first = nn::silu(x);
  Tensor outside = nn::add(first, r);
  t.output("y", nn::mul(x, outside));
  expect_refused(apply(two_results()), "depends on an output of the match through %");
}

TEST_F(RewriteTest, SeveralRootsAreFoundThroughWhatTheyShare) {
  Tensor first = nn::silu(x);
  (void)first;
  Tensor other = nn::silu(r);
  t.output("z", nn::add(first, other));
  t.output("y", nn::mul(x, r));
  EXPECT_EQ(apply(two_results()).matched, 1);
}

struct AttentionRewriteTest : RewriteTest {
  static constexpr int64_t kHeads = 4, kGroups = 2, kSize = 16;
  const TensorType query{DType::F32, {tokens, Dim(kHeads), Dim(kSize)}};
  Tensor qkv = t.input("qkv", {DType::F32, {tokens, Dim((kHeads + 2 * kGroups) * kSize)}});
  Tensor table = t.input("table", {DType::F32, {tokens, Dim(kSize)}});
  Tensor slots = t.input("slots", {DType::I32, {tokens}});
  Tensor kv = t.input("kv", {DType::F32, {Dim(3), Dim(2), Dim(kGroups), Dim(kPageTokens), Dim(kSize)}});
  Tensor norm = t.param("norm", {DType::F32, {Dim(kSize)}});
  Tensor q0 = nn::heads(nn::slice(qkv, 0, kHeads* kSize), kSize);
  Tensor k0 = nn::heads(nn::slice(qkv, kHeads* kSize, kGroups* kSize), kSize);
  Tensor v = nn::heads(nn::slice(qkv, (kHeads + kGroups) * kSize, kGroups* kSize), kSize);

  Tensor attend(Tensor q, Tensor cache) {
    Tensor pages = t.input("pages", {DType::I32, {Dim(2), Dim(1)}});
    Tensor lengths = t.input("lengths", {DType::I32, {Dim(2)}});
    Tensor starts = t.input("starts", {DType::I32, {Dim(3)}});
    return nn::paged_attention(q, cache, pages, lengths, starts, 0.25);
  }
};

TEST_F(AttentionRewriteTest, SplitNormRotateAndWrite) {
  Tensor q = nn::rope(nn::rms_norm(q0, norm, 1e-6), table);
  Tensor k = nn::rope(nn::rms_norm(k0, norm, 1e-6), table);
  t.output("y", attend(q, nn::kv_write(kv, k, v, slots)));
  ASSERT_EQ(apply(named("split_qk_norm_rope_kv")).matched, 1);
  const Node* n = graph->first();
  while (n->op->name != "split_qk_norm_rope_kv") n = n->next;
  EXPECT_EQ(order(), "split_qk_norm_rope_kv paged_attention");
  EXPECT_EQ(n->attrs.integer("heads"), kHeads);
  EXPECT_EQ(n->attrs.integer("kv_heads"), kGroups);
  EXPECT_EQ(n->attrs.number("eps"), 1e-6);
}

TEST_F(AttentionRewriteTest, WithoutNormsAndWithoutCache) {
  t.output("q", nn::rope(q0, table));
  t.output("k", nn::rope(k0, table));
  t.output("v", v);
  EXPECT_EQ(apply(named("split_qk_norm_rope")).matched, 1);
  EXPECT_EQ(order(), "split_qk_norm_rope");
  EXPECT_EQ(graph->last()->in.size(), 2u);
}

TEST_F(AttentionRewriteTest, DifferentEpsilonsRefuse) {
  t.output("q", nn::rope(nn::rms_norm(q0, norm, 1e-6), table));
  t.output("k", nn::rope(nn::rms_norm(k0, norm, 1e-5), table));
  t.output("v", v);
  expect_refused(apply(named("split_qk_norm_rope")), "eps is ");
}

TEST_F(AttentionRewriteTest, ColumnsInAnotherOrderRefuse) {
  Tensor swapped = nn::heads(nn::slice(qkv, 6 * kSize, kGroups * kSize), kSize);
  t.output("q", nn::rope(q0, table));
  t.output("k", nn::rope(swapped, table));
  t.output("v", nn::heads(nn::slice(qkv, 4 * kSize, kGroups * kSize), kSize));
  expect_refused(apply(named("split_qk_norm_rope")), "expected ");
}

TEST_F(AttentionRewriteTest, AReaderOfTheCacheBetweenTheMatchedNodesRefuses) {
  Tensor other = t.input("other", query);
  Tensor cache = nn::kv_write(kv, nn::rope(k0, table), v, slots);
  t.output("between", attend(other, cache));
  t.output("q", nn::rope(q0, table));
  expect_refused(apply(named("split_qk_norm_rope_kv")), "which they write");
}

TEST_F(AttentionRewriteTest, AReaderOfTheCacheBehindThemDoesNot) {
  Tensor q = nn::rope(q0, table);
  Tensor cache = nn::kv_write(kv, nn::rope(k0, table), v, slots);
  Tensor other = t.input("other", query);
  t.output("behind", attend(other, cache));
  t.output("q", q);
  EXPECT_EQ(apply(named("split_qk_norm_rope_kv")).matched, 1);
}

TEST_F(RewriteTest, AReplacementOfAnotherTypeRefuses) {
  Rewrite bad = two_results();
  bad.name = "bad";
  bad.replace = [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
    return {nn::slice(in[0], 0, 3), nn::mul(in[0], in[1])};
  };
  t.output("a", nn::silu(x));
  t.output("b", nn::mul(x, r));
  expect_refused(apply(bad), "result 0 of the replacement is");
}

TEST_F(RewriteTest, AGuardGivesTheReason) {
  Rewrite guarded = named("add_rms_norm");
  guarded.guard = [](const Match& m, const PassContext&) {
    return m.attrs.number("eps") > 1e-4 ? Status::ok() : invalid("epsilon {} is too small", m.attrs.number("eps"));
  };
  t.output("y", nn::rms_norm(nn::add(x, r), w, 1e-5));
  expect_refused(apply(guarded), "epsilon 1e-05 is too small");
}

TEST_F(RewriteTest, ADeviceWithoutTheKernelRefuses) {
  platform.kernels = std::make_unique<KernelRegistry>();
  t.output("y", nn::rms_norm(nn::add(x, r), w, 1e-5));
  expect_refused(apply(named("add_rms_norm")), "no null kernel for add_rms_norm");
}

TEST_F(RewriteTest, APatternThatFallsApartIsAnError) {
  Rewrite loose = two_results();
  loose.search = [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
    return {nn::silu(in[0]), nn::silu(in[1])};
  };
  auto pass = pass_from(loose, ops);
  ASSERT_FALSE(pass.is_ok());
  EXPECT_NE(pass.status().message().find("falls apart"), std::string::npos) << pass.status().message();
}

TEST_F(RewriteTest, ACopyThatIsWrittenInPlaceStays) {
  Tensor kv = t.input("kv", {DType::F32, {Dim(3), Dim(2), Dim(2), Dim(kPageTokens), Dim(6)}});
  Tensor slots = t.input("slots", {DType::I32, {tokens}});
  Tensor k = nn::heads(x, 6);
  t.output("kv", nn::kv_write(nn::copy(kv), k, k, slots));
  t.output("y", nn::copy(r));
  for (Rewrite& rewrite : canonical_rewrites()) {
    if (rewrite.name != "erase_copy") continue;
    const PassReport report = apply(rewrite);
    EXPECT_EQ(report.matched, 1);
    ASSERT_EQ(report.refused.size(), 1u);
    EXPECT_NE(report.refused[0].reason.find("in place"), std::string::npos) << report.refused[0].reason;
  }
}

}  // namespace
}  // namespace reprise::rewrite_test
