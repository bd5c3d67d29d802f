// A graph cut over ranks: who has which rows and heads, what is gathered, and that all ranks run the same collectives.
#include "passes/shard_over_ranks.h"

#include <gtest/gtest.h>

#include "compile/binding.h"
#include "compile/memory_plan.h"
#include "support.h"

namespace reprise::shard_over_ranks_test {
namespace {

struct Sharded {
  Graph graph;
  PipelineReport report;
};

Result<Sharded> shard(const Platform& platform, const test::TinyModel& model, RankShare share, bool fused = true) {
  Graph g = test::trace_tiny(model, *platform.ops);
  PipelineOptions options;
  options.greedy = true;
  options.ranks = share;
  if (!fused) options.passes.enable = {"none"};
  ASSIGN_OR_RETURN(PipelineReport report, run_pipeline(g, options, platform));
  RETURN_IF_ERROR(verify(g));
  return Sharded{std::move(g), std::move(report)};
}

// What the ranks exchange, in order: op and result, the same on all.
std::vector<std::string> collectives(const Graph& g) {
  std::vector<std::string> out;
  for (const Node* n = g.first(); n; n = n->next)
    if (n->op->has(op_trait::kCollective)) out.push_back(n->op->name + " " + describe(n->result()->type));
  return out;
}

Shape shape_of(const Graph& g, const std::string& param) {
  const Node* n = g.find_param(param);
  EXPECT_TRUE(n) << param;
  return n ? n->result()->type.shape : Shape();
}

TEST(ShardOverRanks, AllRanksRunTheSameCollectives) {
  const Platform platform = test::null_platform();
  for (const char* family : {"LlamaForCausalLM", "Qwen3ForCausalLM", "MixtralForCausalLM", "Qwen2MoeForCausalLM"})
    for (const int size : {2, 4})
      for (const bool fused : {true, false}) {
        std::vector<std::string> first;
        for (int rank = 0; rank < size; ++rank) {
          const auto s = shard(platform, {family, 2}, {rank, size}, fused);
          ASSERT_TRUE(s.is_ok()) << family << " " << size << ": " << s.status().message();
          if (rank == 0) first = collectives(s->graph);
          EXPECT_EQ(collectives(s->graph), first) << family << ", rank " << rank << " of " << size;
        }
        // The embedding, four a layer (attention, its projection, activation, its projection), the logits, the best of
        // each.
        if (std::string_view(family) == "LlamaForCausalLM") EXPECT_EQ(first.size(), 1u + 2 * 4 + 2);
      }
}

// Two groups of two heads of 64 over two ranks; every name says what of the tensor is here.
TEST(ShardOverRanks, RowsAreCutByHeadsAndColumns) {
  const Platform platform = test::null_platform();
  const auto s = shard(platform, {"LlamaForCausalLM", 1}, {1, 2}, false);
  ASSERT_TRUE(s.is_ok()) << s.status().message();
  const Graph& g = s->graph;
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(shape_of(g, layer + "self_attn.q_proj.weight[128+128/256]")[0].factor, 128);
  EXPECT_EQ(shape_of(g, layer + "self_attn.k_proj.weight[64+64/128]")[0].factor, 64);
  EXPECT_EQ(shape_of(g, layer + "self_attn.v_proj.weight[64+64/128]")[0].factor, 64);
  EXPECT_EQ(shape_of(g, layer + "self_attn.o_proj.weight[48+48/96]")[1].factor, 256);
  EXPECT_EQ(shape_of(g, layer + "mlp.gate_proj.weight[80+80/160]")[0].factor, 80);
  EXPECT_EQ(shape_of(g, layer + "mlp.down_proj.weight[48+48/96]")[1].factor, 160);
  // The table and the head are one parameter: the rank's rows of the vocabulary, in whole units but the last.
  EXPECT_EQ(shape_of(g, "model.embed_tokens.weight[128+135/263]")[0].factor, 135);
  EXPECT_EQ(g.find_input("kv.0")->result()->type.shape[2].factor, 1);
  const auto entry = std::find_if(s->report.derived.begin(), s->report.derived.end(), [&](const DerivedParam& p) {
    return p.name == layer + "self_attn.q_proj.weight[128+128/256]";
  });
  ASSERT_NE(entry, s->report.derived.end());
  ASSERT_EQ(entry->parts.size(), 1u);
  EXPECT_EQ(entry->parts[0].tensor, layer + "self_attn.q_proj.weight");
  EXPECT_EQ(entry->parts[0].from, 128);
  EXPECT_EQ(entry->parts[0].rows, 128);
  EXPECT_EQ(entry->parts[0].whole, 256);
}

// More ranks than groups: two ranks have the same head of the cache and one query head each.
TEST(ShardOverRanks, MoreRanksThanGroupsShareAGroup) {
  const Platform platform = test::null_platform();
  for (int rank = 0; rank < 4; ++rank) {
    const auto s = shard(platform, {"LlamaForCausalLM", 1}, {rank, 4}, false);
    ASSERT_TRUE(s.is_ok()) << s.status().message();
    const std::string attention = "model.layers.0.self_attn.";
    EXPECT_EQ(shape_of(s->graph, fmt::format("{}q_proj.weight[{}+64/256]", attention, 64 * rank))[0].factor, 64);
    EXPECT_EQ(shape_of(s->graph, fmt::format("{}k_proj.weight[{}+64/128]", attention, rank / 2 * 64))[0].factor, 64);
  }
}

// Every matrix of a stack is cut; all rows of all ranks together are the stack.
TEST(ShardOverRanks, StacksAreCutMatrixByMatrix) {
  const Platform platform = test::null_platform();
  int64_t rows = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const auto s = shard(platform, {"MixtralForCausalLM", 1}, {rank, 2}, false);
    ASSERT_TRUE(s.is_ok()) << s.status().message();
    for (const DerivedParam& p : s->report.derived) {
      if (p.name.find("down_proj") == std::string::npos && p.name.find(".w2.") == std::string::npos) continue;
      for (const ParamPart& part : p.parts) {
        EXPECT_EQ(part.whole, 96);
        EXPECT_EQ(part.from, 48 * rank);
        rows += part.rows;
      }
    }
  }
  EXPECT_EQ(rows % 96, 0);
  EXPECT_GT(rows, 0);
}

// No rank writes what another may still read, and the checker would see it.
TEST(ShardOverRanks, ExchangedBytesAreTakenOverOnlyBehindACollective) {
  const Platform platform = test::null_platform();
  const auto s = shard(platform, {"LlamaForCausalLM", 3}, {0, 2});
  ASSERT_TRUE(s.is_ok()) << s.status().message();
  MemoryPlan plan = plan_memory(s->graph, {});
  ASSERT_TRUE(check_plan(s->graph, plan).is_ok()) << check_plan(s->graph, plan).message();
  size_t all = 0;
  for (const PlannedStorage& p : plan.storages) all += p.exchanged ? p.bytes : 0;
  EXPECT_GT(plan.exchange_bytes, 0u);
  EXPECT_LT(plan.exchange_bytes, all);  // layers share them
  // Neighbours in the same bytes.
  for (PlannedStorage& p : plan.storages)
    if (p.exchanged) p.offset = 0;
  EXPECT_NE(check_plan(s->graph, plan).message().find("other ranks may still read"), std::string::npos);
}

TEST(ShardOverRanks, OneRankIsNotCut) {
  const Platform platform = test::null_platform();
  const auto s = shard(platform, {"LlamaForCausalLM", 1}, {0, 1});
  ASSERT_TRUE(s.is_ok());
  EXPECT_TRUE(collectives(s->graph).empty());
  for (const PassReport& p : s->report.passes) EXPECT_NE(p.name, "shard_over_ranks");
}

TEST(ShardOverRanks, AllowedNumbersOfRanks) {
  EXPECT_EQ(allowed_ranks(9, 3, 64), (std::vector<int64_t>{1, 2, 3, 6, 9}));
  EXPECT_EQ(allowed_ranks(16, 8, 64), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 16}));
  EXPECT_EQ(allowed_ranks(5, 5, 64), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(allowed_ranks(4, 1, 3), (std::vector<int64_t>{1, 2, 3}));
}

}  // namespace
}  // namespace reprise::shard_over_ranks_test
