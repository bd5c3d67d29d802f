// Declaration lines: roles, traits, what is refused, and what holds of every op.
#include "ops/schema.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "nn/fused.h"
#include "ops/core.h"

namespace reprise {
namespace {

TEST(Schema, RolesAndTraitsOfADeclaration) {
  const auto s = parse_schema(
      "mine(Cache(a!) kv, Rows x, Weight w, Table t, Index i, Starts s, Slots u, Tensor? bias, *, int n = 3) -> "
      "Tensor(a) : linear  commutes");
  ASSERT_TRUE(s.is_ok()) << s.status().message();
  std::vector<OperandRole> roles;
  for (const OperandSchema& o : s->operands) roles.push_back(o.role);
  EXPECT_EQ(roles, (std::vector<OperandRole>{OperandRole::Cache, OperandRole::Rows, OperandRole::Weight,
                                             OperandRole::Table, OperandRole::Index, OperandRole::Starts,
                                             OperandRole::Slots, OperandRole::Tensor}));
  EXPECT_TRUE(s->operands[0].mutated);
  EXPECT_TRUE(s->operands[7].optional);
  EXPECT_EQ(s->traits, op_trait::kLinear | op_trait::kCommutes);
  EXPECT_TRUE(s->has(op_trait::kLinear | op_trait::kView));
  EXPECT_FALSE(s->has(op_trait::kView));
  EXPECT_EQ(s->first(OperandRole::Weight), 2u);
  EXPECT_EQ(s->first(OperandRole::Tensor), 7u);
  EXPECT_TRUE(s->has(OperandRole::Starts));
  for (size_t i = 0; i < s->operands.size(); ++i) {
    EXPECT_EQ(s->operands[i].is_index(), i >= 4 && i <= 6);
    EXPECT_EQ(s->operands[i].has_own_layout(), i == 2 || i == 3);
  }
  const auto hint = parse_schema("mine(Tensor x, *, int n) -> () : hint");
  ASSERT_TRUE(hint.is_ok()) << hint.status().message();
  EXPECT_EQ(hint->results, 0);
  EXPECT_FALSE(parse_schema("mine(Tensor x) -> ()").is_ok());
  EXPECT_FALSE(parse_schema("mine(Tensor x) -> Tensor : hint").is_ok());
  const auto plain = parse_schema("mine(Tensor x) -> Tensor");
  ASSERT_TRUE(plain.is_ok());
  EXPECT_EQ(plain->traits, 0u);
  EXPECT_FALSE(plain->has(OperandRole::Weight));
  EXPECT_EQ(plain->first(OperandRole::Weight), 1u);
}

TEST(Schema, WhatGathersAndCombinesHasItsOperandsInOrder) {
  EXPECT_TRUE(parse_schema("mine(Tensor x, Index i) -> Tensor : gathers").is_ok());
  EXPECT_TRUE(parse_schema("mine(Rows x, Index i) -> Tensor : gathers").is_ok());
  EXPECT_TRUE(parse_schema("mine(Tensor y, Tensor weights, Index place) -> Tensor : combines").is_ok());
}

TEST(Schema, WhatADeclarationMayNotSay) {
  const std::pair<const char*, const char*> cases[] = {
      {"mine(Tensors x) -> Tensor", "int, float, floats or str"},
      {"mine(Index(a!) x) -> Tensor(a)", "column 11: expected a name"},
      {"mine(Tensor x) -> Tensor :", "expected a trait"},
      {"mine(Tensor x) -> Tensor : quick", "expected commutes, split_point"},
      {"mine(Tensor x) -> Tensor : viewed", "expected commutes, split_point"},
      {"mine(Tensor x) -> Tensor view", "nothing more"},
      {"mine(Tensor x) -> Tensor : input", "no operands of an input or param"},
      {"mine(Tensor x, Tensor y) -> Tensor : view", "one operand and one result of a view"},
      {"mine(Tensor x) -> Tensor : commutes", "two operands"},
      {"mine(Tensor x) -> Tensor : linear", "a Weight with the trait linear"},
      {"mine(Rows x) -> (Tensor, Tensor)", "one result of an op that reads Rows"},
      {"mine(Tensor x, Tensor y) -> (Tensor, Tensor, Tensor) : dispatches", "one operand and three results"},
      {"mine(Tensor x) -> (Tensor, Tensor) : dispatches", "one operand and three results"},
      {"mine(Tensor x) -> Tensor : gathers", "(x, Index), no attribute and one result"},
      {"mine(Tensor x, Tensor y) -> Tensor : gathers", "(x, Index), no attribute and one result"},
      {"mine(Index i, Tensor x) -> Tensor : gathers", "(x, Index), no attribute and one result"},
      {"mine(Tensor x, Index? i) -> Tensor : gathers", "(x, Index), no attribute and one result"},
      {"mine(Tensor x, Starts s) -> Tensor : gathers", "(x, Index), no attribute and one result"},
      {"mine(Tensor x, Index i, Tensor y) -> Tensor : gathers", "(x, Index), no attribute and one result"},
      {"mine(Tensor x, Index i) -> (Tensor, Tensor) : gathers", "(x, Index), no attribute and one result"},
      {"mine(Tensor x, Index i, *, int n) -> Tensor : gathers", "(x, Index), no attribute and one result"},
      {"mine(Tensor x, Tensor y) -> Tensor : combines", "(y, weights, Index) and one result"},
      {"mine(Tensor y, Index place) -> Tensor : combines", "(y, weights, Index) and one result"},
      {"mine(Tensor y, Index place, Tensor weights) -> Tensor : combines", "(y, weights, Index) and one result"},
      {"mine(Tensor x) -> Tensor : row_scales", "two results with the trait row_scales"},
      {"mine(Tensor x) -> Tensor : attends", "a Cache or (q, k, v), and one result with the trait attends"},
      {"mine(Tensor q, Cache kv) -> (Tensor, Tensor) : attends", "and one result with the trait attends"},
      {"mine(Tensor q, Cache kv) -> Tensor : attends expands", "a Weight and the trait attends"},
      {"mine(Cache kv, Weight w) -> Tensor : expands", "a Weight and the trait attends"},
      {"mine(Tensor x, Slots s) -> Tensor", "a Cache with Slots"},
      {"mine(Cache(a!) kv, Index i) -> Tensor(a) : corrects", "Slots with the trait corrects"},
  };
  for (const auto& [decl, expected] : cases) {
    const auto s = parse_schema(decl);
    ASSERT_FALSE(s.is_ok()) << decl;
    EXPECT_NE(s.status().message().find(expected), std::string::npos) << s.status().message();
  }
}

class House : public testing::Test {
 public:
  House() {
    register_core_ops(ops_);
    nn::register_fused_ops(ops_);
  }

 protected:
  OpRegistry ops_;
};

// A device stores every parameter of a matrix product its own way, whichever op reads it.
TEST_F(House, LinearsHaveWeights) {
  int linears = 0;
  for (const OpSchema* op : ops_.all()) {
    linears += op->has(op_trait::kLinear);
    if (op->name.find("linear") == std::string::npos) continue;
    EXPECT_TRUE(op->has(OperandRole::Weight)) << op->decl;
    EXPECT_EQ(op->name.starts_with("grouped_"), op->has(OperandRole::Starts)) << op->decl;
  }
  EXPECT_EQ(linears, 8);
}

// What reports count of attention and of states (see/node_cost.h) hangs on these.
TEST_F(House, AttentionAndStatesSayWhatTheyAre) {
  std::map<uint32_t, std::set<std::string>> with;
  std::set<std::string> states;
  for (const OpSchema* op : ops_.all()) {
    for (const uint32_t trait : {op_trait::kAttends, op_trait::kExpands, op_trait::kDivides, op_trait::kCorrects})
      if (op->has(trait)) with[trait].insert(op->name);
    if (op->has(OperandRole::Slots)) states.insert(op->name);
    // A cache that is read and not written is read by attention, or is looked at under another shape.
    bool reads = false;
    for (const OperandSchema& o : op->operands) reads |= o.role == OperandRole::Cache && !o.mutated;
    EXPECT_TRUE(!reads || op->has(op_trait::kAttends | op_trait::kView)) << op->decl;
  }
  using Names = std::set<std::string>;
  EXPECT_EQ(with[op_trait::kAttends], (Names{"paged_attention", "paged_attention_rows", "latent_attention",
                                             "expanded_latent_attention", "segment_attention"}));
  EXPECT_EQ(with[op_trait::kExpands], (Names{"expanded_latent_attention"}));
  EXPECT_EQ(with[op_trait::kDivides], (Names{"latent_forms"}));
  EXPECT_EQ(with[op_trait::kCorrects], (Names{"gated_delta"}));
  EXPECT_EQ(states, (Names{"causal_conv", "causal_conv_biased", "gated_delta", "state_space"}));
}

// What the meaning of a fused op says about an operand, its declaration says too: otherwise a fusion would change how a
// parameter is stored, or what a cache is.
TEST_F(House, FusedOpsDeclareWhatTheirMeaningSays) {
  const nn::FusedOps fused = nn::fused_ops();
  for (const nn::FusedOp& op : fused.all())
    for (const nn::FusedExample& e : op.examples) {
      const OpSchema& schema = *ops_.find(op.name());
      const auto body = nn::trace_meaning(op.meaning, schema.operands.size(), e.symbols, e.in, e.attrs, ops_);
      ASSERT_TRUE(body.is_ok()) << body.status().message();
      for (size_t i = 0; i < e.in.size(); ++i) {
        const OperandSchema& declared = schema.operands[i];
        const Value& value = *body->find_input(std::to_string(i))->result();
        for (const Use& u : value.uses) {
          const OperandRole role = u.declared().role;
          if (role == OperandRole::Tensor || role == OperandRole::Rows) continue;
          // Integers that a pass may widen for kernels that take both sizes (convert_once).
          if (role == OperandRole::Index && declared.role == OperandRole::Tensor) continue;
          EXPECT_EQ(declared.role, role) << op.decl << ", " << declared.name << " in " << u.user->op->decl;
        }
        EXPECT_EQ(is_cache(value), declared.role == OperandRole::Cache) << op.decl << ", " << declared.name;
      }
    }
}

}  // namespace
}  // namespace reprise
