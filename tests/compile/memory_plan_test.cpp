#include "compile/memory_plan.h"

#include <gtest/gtest.h>

#include "graph/tracer.h"
#include "nn/functional.h"
#include "ops/core.h"

namespace reprise::memory_plan_test {
namespace {

struct MemoryPlanTest : testing::Test {
  OpRegistry ops;
  MemoryPlanTest() { register_core_ops(ops); }

  // A chain of `length` additions on [T, 16].
  Graph chain(int length) {
    Tracer t("chain", ops);
    Tensor x = t.input("x", {DType::F32, {t.symbol("T", 100), Dim(16)}});
    for (int i = 0; i < length; ++i) x = nn::add(x, x);
    t.output("y", x);
    return std::move(*t.finish());
  }
};

TEST_F(MemoryPlanTest, AChainNeedsTwoBuffersWhateverItsLength) {
  const Graph g = chain(20);
  const MemoryPlan plan = plan_memory(g, {});
  EXPECT_EQ(plan.arena_bytes, 2u * 100 * 16 * 4);
  EXPECT_TRUE(check_plan(g, plan).is_ok());
}

TEST_F(MemoryPlanTest, ViewsShareTheBytesOfWhatTheyView) {
  Tracer t("views", ops);
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 10), Dim(16)}});
  Tensor y = nn::add(x, x);
  Tensor z = nn::flatten(nn::heads(y, 4));
  t.output("out", nn::add(z, y));
  const Graph g = std::move(*t.finish());
  const MemoryPlan plan = plan_memory(g, {});
  EXPECT_EQ(plan.storages.size(), 2u);
  EXPECT_EQ(storage_root(z.value()), y.value());
  EXPECT_TRUE(check_plan(g, plan).is_ok());
}

TEST_F(MemoryPlanTest, WorkspacesLiveOnlyAtTheirNode) {
  const Graph g = chain(3);
  std::unordered_map<const Node*, size_t> workspace;
  for (const Node* n = g.first(); n; n = n->next)
    if (n->op->name == "add") workspace[n] = 1000;
  const MemoryPlan plan = plan_memory(g, workspace);
  EXPECT_TRUE(check_plan(g, plan).is_ok());
  EXPECT_EQ(plan.arena_bytes, 2u * 6400 + 1024);
}

TEST_F(MemoryPlanTest, TheCheckerCatchesAnOverlap) {
  const Graph g = chain(4);
  MemoryPlan plan = plan_memory(g, {});
  for (auto& s : plan.storages) s.offset = 0;
  EXPECT_NE(check_plan(g, plan).message().find("overlap"), std::string::npos);
  plan = plan_memory(g, {});
  plan.arena_bytes /= 2;
  EXPECT_NE(check_plan(g, plan).message().find("ends at"), std::string::npos);
  plan = plan_memory(g, {});
  plan.storage_of.erase(plan.storage_of.begin());
  EXPECT_NE(check_plan(g, plan).message().find("no place"), std::string::npos);
}

TEST_F(MemoryPlanTest, RandomGraphsPlanWithoutOverlap) {
  uint32_t state = 1;
  auto random = [&](size_t n) { return (state = state * 1664525u + 1013904223u) / 65536 % n; };
  for (int round = 0; round < 30; ++round) {
    Tracer t("random", ops);
    const Dim tokens = t.symbol("T", 1 + static_cast<int64_t>(random(50)));
    std::vector<Tensor> values{t.input("x", {DType::F32, {tokens, Dim(16)}})};
    for (int i = 0; i < 40; ++i) {
      Tensor a = values[random(values.size())], b = values[random(values.size())];
      switch (random(4)) {
        case 0: values.push_back(nn::add(a, b)); break;
        case 1: values.push_back(nn::silu(a)); break;
        case 2: values.push_back(nn::flatten(nn::heads(a, 8))); break;
        default: values.push_back(nn::mul(a, b)); break;
      }
    }
    t.output("y", values.back());
    t.output("z", values[values.size() / 2]);
    auto g = t.finish();
    ASSERT_TRUE(g.is_ok());
    const MemoryPlan plan = plan_memory(*g, {});
    const Status s = check_plan(*g, plan);
    ASSERT_TRUE(s.is_ok()) << s.message();
  }
}

}  // namespace
}  // namespace reprise::memory_plan_test
