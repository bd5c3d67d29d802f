#include "graph/graph.h"

#include <gtest/gtest.h>

#include <concepts>
#include <type_traits>

#include "graph/text.h"
#include "graph/tracer.h"
#include "nn/functional.h"
#include "ops/core.h"

namespace reprise::graph_test {
namespace {

// Nothing that could branch on data or on a symbolic size compiles.
template <typename T>
concept ComparesEqual = requires(T a, T b) {
  a == b;
};
template <typename T>
concept ComparesLess = requires(T a, T b) {
  a < b;
};
static_assert(!ComparesEqual<Dim> && !ComparesLess<Dim>);
static_assert(!ComparesEqual<Tensor> && !ComparesLess<Tensor>);
static_assert(!std::is_constructible_v<bool, Tensor>);
static_assert(!std::is_convertible_v<Tensor, bool> && !std::is_convertible_v<Tensor, float>);
static_assert(!std::is_convertible_v<Dim, int64_t> && !std::is_convertible_v<Dim, bool>);

struct GraphTest : testing::Test {
  OpRegistry ops;
  GraphTest() { register_core_ops(ops); }

  // h = silu(linear(x, w)); y = h + x
  Graph small() {
    Tracer t("small", ops);
    const Dim tokens = t.symbol("T", 64);
    Tensor x = t.input("x", {DType::F32, {tokens, Dim(8)}});
    Tensor w = t.param("w", {DType::F32, {Dim(8), Dim(8)}});
    t.output("y", nn::add(nn::silu(nn::linear(x, w)), x));
    auto g = t.finish();
    EXPECT_TRUE(g.is_ok()) << g.status().message();
    return std::move(*g);
  }
};

TEST_F(GraphTest, TracingKeepsExactUseLists) {
  const Graph g = small();
  EXPECT_EQ(g.size(), 5u);
  Node* x = g.find_input("x");
  ASSERT_TRUE(x);
  EXPECT_EQ(x->result()->uses.size(), 2u);
  EXPECT_EQ(g.find_param("w")->result()->uses.size(), 1u);
  EXPECT_EQ(g.outputs()[0].value->def->op->name, "add");
}

TEST_F(GraphTest, ParamOfOneNameIsOneValue) {
  Tracer t("g", ops);
  Tensor a = t.param("w", {DType::F32, {Dim(4)}});
  Tensor b = t.param("w", {DType::F32, {Dim(4)}});
  EXPECT_EQ(a.value(), b.value());
  EXPECT_TRUE(t.status().is_ok());
  (void)t.param("w", {DType::BF16, {Dim(4)}});
  EXPECT_FALSE(t.status().is_ok());
}

TEST_F(GraphTest, FirstTraceErrorSticksAndNamesTheOp) {
  Tracer t("g", ops);
  Tensor x = t.input("x", {DType::F32, {Dim(3), Dim(8)}});
  Tensor w = t.param("w", {DType::F32, {Dim(5), Dim(7)}});
  Tensor y = nn::linear(x, w);
  t.output("y", nn::add(y, y));
  auto g = t.finish();
  ASSERT_FALSE(g.is_ok());
  EXPECT_NE(g.status().message().find("linear"), std::string::npos) << g.status().message();
}

TEST_F(GraphTest, AttributesAreCheckedAndCompleted) {
  Attrs missing;
  EXPECT_FALSE(check_attrs(*ops.find("rms_norm"), missing).is_ok());
  Attrs wrong{{"eps", int64_t{1}}};
  EXPECT_FALSE(check_attrs(*ops.find("rms_norm"), wrong).is_ok());
  Attrs unknown{{"eps", 1e-6}, {"epsilon", 1e-6}};
  EXPECT_FALSE(check_attrs(*ops.find("rms_norm"), unknown).is_ok());
  Attrs defaults;
  ASSERT_TRUE(check_attrs(*ops.find("linear"), defaults).is_ok());
  EXPECT_EQ(defaults.text("out"), "same");
  EXPECT_EQ(defaults.text("shard"), "none");
}

TEST_F(GraphTest, DeadNodesGoAndInputsStay) {
  Tracer t("g", ops);
  Tensor x = t.input("x", {DType::F32, {Dim(3), Dim(8)}});
  (void)t.param("unused", {DType::F32, {Dim(3)}});
  (void)nn::silu(x);
  t.output("y", nn::add(x, x));
  auto g = t.finish();
  ASSERT_TRUE(g.is_ok());
  EXPECT_EQ(g->size(), 2u);
}

TEST_F(GraphTest, ReplaceAllUsesAndEraseKeepTheGraphValid) {
  Graph g = small();
  Node* silu = g.last()->prev;
  ASSERT_EQ(silu->op->name, "silu");
  Value* linear = silu->in[0];
  g.replace_all_uses(silu->result(), linear);
  g.erase(silu);
  EXPECT_TRUE(verify(g).is_ok()) << verify(g).message();
  EXPECT_EQ(g.size(), 4u);
}

TEST_F(GraphTest, VerifierFindsEachBreakage) {
  {
    Graph g = small();
    g.move_before(g.last(), g.first());
    EXPECT_NE(verify(g).message().find("before it is defined"), std::string::npos) << verify(g).message();
  }
  {
    Graph g = small();
    g.last()->in[0]->uses.clear();
    EXPECT_NE(verify(g).message().find("exactly once"), std::string::npos) << verify(g).message();
  }
  {
    Graph g = small();
    g.last()->out[0]->type.dtype = DType::BF16;
    EXPECT_NE(verify(g).message().find("shape function"), std::string::npos) << verify(g).message();
  }
  {
    Graph g = small();
    g.last()->out[0]->type.shape[0] = Dim(1, 5);
    EXPECT_NE(verify(g).message().find("not declared"), std::string::npos) << verify(g).message();
  }
}

TEST_F(GraphTest, AValueWrittenInPlaceIsNotReadUnderItsOldName) {
  Tracer t("g", ops);
  const Dim tokens = t.symbol("T", 8);
  const TensorType head{DType::F32, {tokens, Dim(2), Dim(4)}};
  Tensor kv = t.input("kv", {DType::F32, {Dim(3), Dim(2), Dim(2), Dim(kPageTokens), Dim(4)}});
  Tensor k = t.input("k", head);
  Tensor slots = t.input("slots", {DType::I32, {tokens}});
  (void)nn::kv_write(kv, k, k, slots);
  t.output("second", nn::kv_write(kv, k, k, slots));
  auto g = t.finish();
  ASSERT_FALSE(g.is_ok());
  EXPECT_NE(g.status().message().find("overwritten"), std::string::npos) << g.status().message();
}

TEST_F(GraphTest, RowsOfAnInt8CacheHoldTheirScale) {
  const auto message = [this](DType cache, int64_t row) {
    Tracer t("g", ops);
    const Dim tokens = t.symbol("T", 8);
    Tensor kv = t.input("kv", {cache, {Dim(3), Dim(2), Dim(2), Dim(kPageTokens), Dim(row)}});
    Tensor k = t.input("k", {DType::BF16, {tokens, Dim(2), Dim(6)}});
    t.output("kv", nn::kv_write(kv, k, k, t.input("slots", {DType::I32, {tokens}})));
    auto g = t.finish();
    return g.is_ok() ? std::string() : g.status().message();
  };
  EXPECT_EQ(message(DType::I8, 10), "");
  EXPECT_NE(message(DType::I8, 6).find("cache's head size"), std::string::npos) << message(DType::I8, 6);
  EXPECT_NE(message(DType::I8, 4).find("4 bytes of its scale"), std::string::npos) << message(DType::I8, 4);
  EXPECT_NE(message(DType::U8, 6).find("allowed: floats, i8"), std::string::npos) << message(DType::U8, 6);
}

TEST_F(GraphTest, SymbolsAreBoundedAndNamed) {
  Graph g("g");
  EXPECT_FALSE(g.add_symbol("T", 0).is_ok());
  for (int i = 1; i < kMaxSymbols; ++i) EXPECT_TRUE(g.add_symbol(std::to_string(i), 4).is_ok());
  EXPECT_FALSE(g.add_symbol("more", 4).is_ok());
  EXPECT_EQ(g.bounds().value[3], 4);
  EXPECT_EQ(g.bounds().value[0], 1);
}

}  // namespace
}  // namespace reprise::graph_test
