// A graph cut over ranks: who has which rows and heads, what is gathered, and that all ranks run the same collectives.
#include "passes/shard_over_ranks.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "compile/binding.h"
#include "compile/memory_plan.h"
#include "support.h"

namespace reprise::shard_over_ranks_test {
namespace {

struct Sharded {
  Graph graph;
  PipelineReport report;
};

Result<Sharded> shard(const Platform& platform, const test::TinyModel& model, RankShare share, bool fused = true,
                      std::shared_ptr<const checkpoint::QuantPlan> plan = nullptr) {
  Graph g = test::trace_tiny(model, *platform.ops);
  PipelineOptions options;
  options.greedy = true;
  options.ranks = share;
  options.quantisation = std::move(plan);
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
  for (const char* family :
       {"LlamaForCausalLM", "Qwen3ForCausalLM", "MixtralForCausalLM", "Qwen2MoeForCausalLM", "GptOssForCausalLM"})
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

int64_t count(const Graph& g, std::string_view op) {
  int64_t n = 0;
  for (const Node* node = g.first(); node; node = node->next) n += node->op->name == op;
  return n;
}

bool says(const Sharded& s, std::string_view words) {
  for (const PassReport& p : s.report.passes)
    for (const PassRemark& r : p.applied)
      if (r.reason.find(words) != std::string::npos) return true;
  return false;
}

// Rows go as they are, or as the int8 numbers and scales that experts read: one call in place of a pair of gathers, and
// the rows of the other products stay where they are. Rows in one scale for all tokens are not sent.
TEST(ShardOverRanks, RowsAreSentAsExpertsReadThem) {
  using checkpoint::LinearScheme;
  using checkpoint::LinearStorage;
  const Platform platform = test::null_platform();
  const auto plan = [](LinearScheme scheme, LinearStorage storage) {
    auto p = std::make_shared<checkpoint::QuantPlan>();
    p->format = checkpoint::Quantization::W8A8Int8;
    p->others = {scheme, storage, 0.5f, 3};
    return p;
  };
  test::TinyModel model{"MixtralForCausalLM", 2};
  model.token_shares = 2;
  for (int rank = 0; rank < 2; ++rank) {
    RankShare share{rank, 2, 2};
    share.sent_tokens = models::kSharedTokens;
    const auto floats = shard(platform, model, share);
    ASSERT_TRUE(floats.is_ok()) << floats.status().message();
    EXPECT_EQ(count(floats->graph, "dispatch_over_ranks"), 2);
    EXPECT_EQ(count(floats->graph, "combine_dispatched"), 2);
    EXPECT_FALSE(says(*floats, "int8 rows are sent"));
    const auto int8 = shard(platform, model, share, false, plan(LinearScheme::W8A8Dynamic, LinearStorage::Floats));
    ASSERT_TRUE(int8.is_ok()) << int8.status().message();
    EXPECT_EQ(count(int8->graph, "dispatch_quantised"), 2);
    EXPECT_EQ(count(int8->graph, "combine_dispatched"), 2);
    EXPECT_EQ(count(int8->graph, "dispatch_over_ranks"), 0);
    EXPECT_EQ(count(int8->graph, "index_select"), 1) << "that of the rows with logits";
    EXPECT_TRUE(says(*int8, "int8 rows are sent to the ranks of their experts; 3 of 6 are here"));
    const auto one = shard(platform, model, share, false, plan(LinearScheme::W8A8Static, LinearStorage::ModelSlim));
    ASSERT_TRUE(one.is_ok()) << one.status().message();
    EXPECT_EQ(count(one->graph, "dispatch_quantised") + count(one->graph, "dispatch_over_ranks"), 0);
    EXPECT_TRUE(says(*one, "they are not sent to the ranks of their experts: rows are int8 in a scale that all"));
  }
}

// What leads to the output, by op and the columns of its result.
std::set<std::pair<std::string, int64_t>> ops_behind(const Graph& g, const std::string& output) {
  std::set<std::pair<std::string, int64_t>> out;
  std::set<const Node*> seen;
  std::vector<const Node*> next;
  for (const GraphOutput& o : g.outputs())
    if (o.name == output) next.push_back(o.value->def);
  EXPECT_FALSE(next.empty()) << output;
  while (!next.empty()) {
    const Node* n = next.back();
    next.pop_back();
    if (!seen.insert(n).second) continue;
    const Shape& shape = n->result()->type.shape;
    out.emplace(n->op->name, shape.rank() > 1 ? shape[1].factor : 0);
    for (const Value* v : n->in) next.push_back(v->def);
  }
  return out;
}

// Tokens are drawn from own columns: the gathered logits are an output of their own. Where the vocabulary has too few
// blocks for that, it is `sample` that draws, from gathered logits.
TEST(ShardOverRanks, TokensAreDrawnWithoutGatheredLogits) {
  const Platform platform = test::null_platform();
  for (const bool tied : {true, false})
    for (const int size : {2, 4}) {
      std::vector<std::string> first;
      int64_t rows = 0;
      for (int rank = 0; rank < size; ++rank) {
        test::TinyModel model{"LlamaForCausalLM", 1};
        model.tied = tied;
        model.vocabulary = 2100;
        model.sampling = true;
        const auto s = shard(platform, model, {rank, size});
        ASSERT_TRUE(s.is_ok()) << s.status().message();
        if (rank == 0) first = collectives(s->graph);
        EXPECT_EQ(collectives(s->graph), first) << "rank " << rank << " of " << size;
        const auto drawn = ops_behind(s->graph, "sampled"), logits = ops_behind(s->graph, "logits");
        EXPECT_FALSE(drawn.contains({"all_gather", 2100}));
        EXPECT_TRUE(drawn.contains({"gather_undecided", 2100}));
        EXPECT_TRUE(drawn.contains({"all_gather", size}));
        EXPECT_TRUE(drawn.contains({"all_gather", 9}));  // blocks of 256
        EXPECT_TRUE(logits.contains({"all_gather", 2100}));
        EXPECT_FALSE(ops_behind(s->graph, "sampled.merged").contains({"gather_undecided", 2100}));
        // Whole blocks, but for the last one.
        const int64_t begin = 9 * rank / size * 256, end = std::min<int64_t>(2100, 9 * (rank + 1) / size * 256);
        const std::string part = fmt::format("model.embed_tokens.weight[{}+{}/2100]", begin, end - begin);
        EXPECT_EQ(shape_of(s->graph, part)[0].factor, end - begin);
        rows += end - begin;
      }
      EXPECT_EQ(rows, 2100);
    }
  test::TinyModel small{"LlamaForCausalLM", 1};
  small.sampling = true;
  const auto s = shard(platform, small, {1, 2});
  ASSERT_TRUE(s.is_ok()) << s.status().message();
  EXPECT_TRUE(ops_behind(s->graph, "sampled").contains({"all_gather", 263}));
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

std::string text_of_experts(const Graph& g) {
  std::istringstream lines(print(g));
  std::string out, line;
  bool inside = false;
  while (std::getline(lines, line)) {
    inside = inside || line.find("moe_route(") != std::string::npos;
    if (inside) out += line.substr(2, line.rfind(" from ") - 2) + "\n";  // without the pass that made it
    if (line.find("moe_combine(") != std::string::npos) break;
  }
  return out;
}

// Two ranks with three experts each: rows of other ranks come once, in front of the sum over a token's choices. Four
// ranks with half of the columns of three experts: once more in front of the last product.
TEST(ShardOverRanks, WholeExpertsAreSharedOut) {
  const Platform platform = test::null_platform();
  const auto two = shard(platform, {"MixtralForCausalLM", 1}, {1, 2, 2}, false);
  ASSERT_TRUE(two.is_ok()) << two.status().message();
  EXPECT_EQ(text_of_experts(two->graph),
            R"(%40: i32[2*T], %41: i32[T, 2], %42: i32[7] = moe_route(%39, first=0, count=6)
%43: bf16[2*T, 96] = index_select(%35, %40)
%44: i32[4] = own_groups(%42, first=3, count=3)
%45: bf16[3, 160, 96] = param(name="model.layers.0.mlp.experts.{0..5}.gate_proj.weight[3+3/6]")
%46: bf16[2*T, 160] = grouped_linear(%43, %44, %45, shard="column")
%47: bf16[3, 160, 96] = param(name="model.layers.0.mlp.experts.{0..5}.up_proj.weight[3+3/6]")
%48: bf16[2*T, 160] = grouped_linear(%43, %44, %47, shard="column")
%49: bf16[2*T, 160] = silu(%46)
%50: bf16[2*T, 160] = mul(%49, %48)
%51: bf16[3, 96, 160] = param(name="model.layers.0.mlp.experts.{0..5}.down_proj.weight[3+3/6]")
%52: bf16[2*T, 96] = grouped_linear(%50, %44, %51, shard="row")
%53: bf16[2*T, 96] = gather_groups(%52, %44, first=0, of=96)
%54: bf16[T, 96] = moe_combine(%53, %38, %41)
)");
  const auto four = shard(platform, {"MixtralForCausalLM", 1}, {3, 4, 2}, false);
  ASSERT_TRUE(four.is_ok()) << four.status().message();
  EXPECT_EQ(text_of_experts(four->graph),
            R"(%40: i32[2*T], %41: i32[T, 2], %42: i32[7] = moe_route(%39, first=0, count=6)
%43: bf16[2*T, 96] = index_select(%35, %40)
%44: i32[4] = own_groups(%42, first=3, count=3)
%45: bf16[3, 80, 96] = param(name="model.layers.0.mlp.experts.{0..5}.gate_proj.weight[3+3/6][80+80/160]")
%46: bf16[2*T, 80] = grouped_linear(%43, %44, %45, shard="column")
%47: bf16[3, 80, 96] = param(name="model.layers.0.mlp.experts.{0..5}.up_proj.weight[3+3/6][80+80/160]")
%48: bf16[2*T, 80] = grouped_linear(%43, %44, %47, shard="column")
%49: bf16[2*T, 80] = silu(%46)
%50: bf16[2*T, 80] = mul(%49, %48)
%51: bf16[2*T, 160] = gather_groups(%50, %44, first=80, of=160)
%52: bf16[3, 48, 160] = param(name="model.layers.0.mlp.experts.{0..5}.down_proj.weight[3+3/6][48+48/96]")
%53: bf16[2*T, 48] = grouped_linear(%51, %44, %52, shard="row")
%54: bf16[2*T, 96] = gather_groups(%53, %44, first=48, of=96)
%55: bf16[T, 96] = moe_combine(%54, %38, %41)
)");
}

// Whatever is shared out, all ranks meet in the same order; the parts of a stack that are elsewhere are named.
TEST(ShardOverRanks, RanksWithOtherExpertsRunTheSameCollectives) {
  const Platform platform = test::null_platform();
  for (const char* family : {"MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"})
    for (const int experts : {2, 4})
      for (const bool fused : {true, false}) {
        std::vector<std::string> first;
        for (int rank = 0; rank < 4; ++rank) {
          const auto s = shard(platform, {family, 2}, {rank, 4, experts}, fused);
          ASSERT_TRUE(s.is_ok()) << family << ": " << s.status().message();
          if (rank == 0) first = collectives(s->graph);
          EXPECT_EQ(collectives(s->graph), first) << family << ", rank " << rank << ", experts over " << experts;
          const MemoryPlan plan = plan_memory(s->graph, {});
          EXPECT_TRUE(check_plan(s->graph, plan).is_ok()) << check_plan(s->graph, plan).message();
          std::set<std::string> here, elsewhere;
          for (const DerivedParam& p : s->report.derived)
            for (const ParamPart& part : p.parts)
              if (part.tensor.find("experts.") != std::string::npos)
                (p.elsewhere ? elsewhere : here).insert(part.tensor);
          EXPECT_EQ(here.size() + elsewhere.size(), 2u * 3 * 6) << family;
        }
      }
}

// A model with states, of the tests' data; its projections have what belongs to a head of keys side by side.
Result<Sharded> shard_states(const Platform& platform, RankShare share) {
  const std::string path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/qwen3_next";
  ASSIGN_OR_RETURN(auto fields, checkpoint::read_model_config(path, {}, models::families(true)));
  ASSIGN_OR_RETURN(const models::ModelSpec* spec, models::find_model(fields.architecture));
  models::TraceOptions trace;
  trace.max_tokens = 40;
  trace.max_sequences = 4;
  trace.max_pages = 2;
  trace.pool_pages = 6;
  trace.most_drafts = 3;
  ASSIGN_OR_RETURN(Graph g, models::trace_model(*spec, {fields, {}, {}}, trace, *platform.ops));
  PipelineOptions options;
  options.ranks = share;
  options.passes.enable = {"none"};
  ASSIGN_OR_RETURN(PipelineReport report, run_pipeline(g, options, platform));
  RETURN_IF_ERROR(verify(g));
  return Sharded{std::move(g), std::move(report)};
}

// How many ranks read each row of a tensor.
std::vector<int> readers(const std::vector<Sharded>& ranks, const std::string& tensor, size_t rows) {
  std::vector<int> out(rows);
  for (const Sharded& s : ranks)
    for (const DerivedParam& p : s.report.derived)
      for (const ParamPart& part : p.parts)
        if (part.tensor == tensor && !p.elsewhere)
          for (int64_t r = 0; r < part.rows; ++r) ++out.at(static_cast<size_t>(part.first + part.from + r));
  return out;
}

// Two heads of keys of 12 with three heads of values of 20 each: a group of rows has a query, a key, the values and
// their gates. Four ranks read each query and key twice, and everything else once.
TEST(ShardOverRanks, StatesAreCutByHeads) {
  const Platform platform = test::null_platform();
  for (const int size : {2, 4, 6}) {
    std::vector<Sharded> ranks;
    int64_t heads = 0, columns = 0;
    for (int rank = 0; rank < size; ++rank) {
      auto s = shard_states(platform, {rank, size});
      ASSERT_TRUE(s.is_ok()) << size << ": " << s.status().message();
      EXPECT_EQ(collectives(s->graph), rank == 0 ? collectives(s->graph) : collectives(ranks[0].graph)) << rank;
      heads += s->graph.find_input("delta.0")->result()->type.shape[1].factor;
      columns += s->graph.find_input("conv.0")->result()->type.shape[2].factor;
      ranks.push_back(std::move(*s));
    }
    const int sharing = size / 2;  // ranks with the same head of keys
    EXPECT_EQ(heads, 6) << size;
    EXPECT_EQ(columns, sharing * 2 * 2 * 12 + 6 * 20) << size;
    const std::string layer = "model.layers.0.linear_attn.";
    std::vector<int> projected, convolved;
    for (int group = 0; group < 2; ++group) {
      projected.insert(projected.end(), 2 * 12, sharing);
      projected.insert(projected.end(), 2 * 3 * 20, 1);
    }
    convolved.insert(convolved.end(), 2 * 2 * 12, sharing);
    convolved.insert(convolved.end(), 6 * 20, 1);
    EXPECT_EQ(readers(ranks, layer + "in_proj_qkvz.weight", 2 * 144), projected) << size;
    EXPECT_EQ(readers(ranks, layer + "conv1d.weight", 168), convolved) << size;
    EXPECT_EQ(readers(ranks, layer + "in_proj_ba.weight", 12), std::vector<int>(12, 1)) << size;
    EXPECT_EQ(readers(ranks, layer + "A_log", 6), std::vector<int>(6, 1)) << size;
    EXPECT_EQ(readers(ranks, layer + "out_proj.weight", 44), std::vector<int>(44, 1)) << size;
  }
}

// Biases of experts and sinks of heads lie where their columns and heads do: what is exchanged is what a family without
// them exchanges.
TEST(ShardOverRanks, BiasesOfExpertsAndSinksAreCutAsWhatTheyMeet) {
  const Platform platform = test::null_platform();
  const std::string layer = "model.layers.0.", experts = layer + "mlp.experts.{0..5}.";
  for (const RankShare share : {RankShare{1, 2}, RankShare{3, 4}, RankShare{1, 2, 2}, RankShare{3, 4, 2}}) {
    const auto with = shard(platform, {"GptOssForCausalLM", 1}, share, false);
    const auto without = shard(platform, {"MixtralForCausalLM", 1}, share, false);
    ASSERT_TRUE(with.is_ok()) << with.status().message();
    ASSERT_TRUE(without.is_ok()) << without.status().message();
    EXPECT_EQ(collectives(with->graph), collectives(without->graph)) << share.rank << " of " << share.size;
    const int64_t heads = 4 / share.size;
    const std::string sinks = fmt::format("{}self_attn.sinks[{}+{}/4]", layer, share.rank * heads, heads);
    EXPECT_EQ(shape_of(with->graph, sinks)[0].factor, heads);
  }
  const auto cut = shard(platform, {"GptOssForCausalLM", 1}, {1, 2}, false);
  ASSERT_TRUE(cut.is_ok());
  const auto expect_sizes = [&](const Graph& g, const std::string& name, int64_t groups, int64_t columns) {
    const Shape shape = shape_of(g, experts + name);
    ASSERT_EQ(shape.rank(), 2) << name;
    EXPECT_EQ(shape[0].factor, groups) << name;
    EXPECT_EQ(shape[1].factor, columns) << name;
  };
  expect_sizes(cut->graph, "gate_proj.bias:[80+80/160]", 6, 80);
  expect_sizes(cut->graph, "down_proj.bias:[48+48/96]", 6, 48);
  const auto shared = shard(platform, {"GptOssForCausalLM", 1}, {3, 4, 2}, false);
  ASSERT_TRUE(shared.is_ok());
  expect_sizes(shared->graph, "up_proj.bias[3+3/6]:[80+80/160]", 3, 80);
  expect_sizes(shared->graph, "down_proj.bias[3+3/6]:[48+48/96]", 3, 48);
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

TEST(RankCut, NamesSayWhichPieces) {
  const std::vector<Cut> pieces{{0, 8, 48}, {24, 8, 48}};
  EXPECT_EQ(count_of(pieces), 16);
  std::string name = "b" + name_of(pieces);
  EXPECT_EQ(name, "b[0+8,24+8/48]");
  EXPECT_EQ(take_pieces(name), pieces);
  EXPECT_EQ(name, "b");
  for (const std::string whole :
       {"b", "b[]", "b[0+8]", "b[0+8,/48]", "b[0+8/48", "b[0-8/48]", "b[0+8/]", "b[x+8/48]"}) {
    name = whole;
    EXPECT_TRUE(take_pieces(name).empty()) << whole;
    EXPECT_EQ(name, whole);
  }
}

// Attention's projection and the MLP's second one are cut by columns; their sums are added, in the order of ranks.
TEST(ShardOverRanks, SumsAreAddedWhereTheFormSaysSo) {
  const Platform platform = test::null_platform();
  std::vector<std::string> first;
  int64_t columns = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto s = shard(platform, {"LlamaForCausalLM", 2}, {rank, 4, 1, 1, true});
    ASSERT_TRUE(s.is_ok()) << s.status().message();
    const auto all = collectives(s->graph);
    if (rank == 0) first = all;
    EXPECT_EQ(all, first) << rank;
    EXPECT_EQ(all.size(), 1u + 2 * 2 + 2);  // the embedding, two a layer, the logits, the best of each
    int64_t sums = 0;
    for (const Node* n = s->graph.first(); n; n = n->next) {
      if (n->op->name == "sum_parts") ++sums;
      if (!n->is_param()) continue;
      const std::string& name = n->attrs.text("name");
      if (name.starts_with("model.layers.0.mlp.down_proj.weight:[")) columns += n->result()->type.shape[1].factor;
    }
    EXPECT_EQ(sums, 4);
  }
  const Graph whole = test::trace_tiny({"LlamaForCausalLM", 2}, *platform.ops);
  EXPECT_EQ(columns, shape_of(whole, "model.layers.0.mlp.down_proj.weight")[1].factor);
}

}  // namespace
}  // namespace reprise::shard_over_ranks_test
