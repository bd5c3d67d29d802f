// Caches of keys and values become two where the device has kernels on those alone, and only there.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support.h"

namespace reprise::split_kv_caches_test {
namespace {

const std::set<std::string> kOnJoined{"kv_write", "paged_attention", "split_qk_norm_rope_kv"};

// The null platform without kernels for these ops.
Platform without(const std::set<std::string>& ops) {
  Platform p = test::null_platform();
  KernelRegistry all;
  null::register_null(all, *p.ops);
  p.kernels = std::make_unique<KernelRegistry>();
  for (auto& e : all.entries())
    if (!ops.contains(e->op)) p.kernels->add(*e);
  return p;
}

Result<PipelineReport> run(Graph& g, const Platform& p, bool fused = true) {
  PipelineOptions options;
  if (!fused) options.passes.enable = {"none"};
  return run_pipeline(g, options, p);
}

PassReport report_of(const PipelineReport& all) {
  for (const PassReport& p : all.passes)
    if (p.name == "split_kv_caches") return p;
  ADD_FAILURE() << "no report of split_kv_caches";
  return {};
}

std::vector<const Node*> calls(const Graph& g, std::string_view op) {
  std::vector<const Node*> out;
  for (const Node* n = g.first(); n; n = n->next)
    if (n->op->name == op) out.push_back(n);
  return out;
}

TEST(SplitKvCaches, KeysAndValuesGetCachesOfTheirOwn) {
  const Platform platform = without(kOnJoined);
  for (const char* family : {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
    for (bool fused : {true, false}) {
      Graph g = test::trace_tiny({family, 3}, *platform.ops);
      const auto joined = calls(g, "paged_attention");
      ASSERT_EQ(joined.size(), 3u);
      std::vector<Attrs> attrs;
      for (const Node* n : joined) attrs.push_back(n->attrs);
      auto report = run(g, platform, fused);
      ASSERT_TRUE(report.is_ok()) << family << ": " << report.status().message();
      EXPECT_EQ(report_of(*report).matched, 3);
      EXPECT_TRUE(calls(g, "kv_write").empty());
      EXPECT_TRUE(calls(g, "paged_attention").empty());
      ASSERT_EQ(calls(g, "row_write").size(), 6u);
      const auto attention = calls(g, "paged_attention_rows");
      ASSERT_EQ(attention.size(), 3u);
      std::vector<std::string> caches;
      for (const Node* n : calls(g, "input"))
        if (n->attrs.text("name").starts_with("kv.")) caches.push_back(n->attrs.text("name"));
      EXPECT_EQ(caches, (std::vector<std::string>{"kv.0.keys", "kv.0.values", "kv.1.keys", "kv.1.values", "kv.2.keys",
                                                  "kv.2.values"}));
      for (size_t l = 0; l < 3; ++l) {
        const Node* a = attention[l];
        EXPECT_EQ(a->attrs.number("scale"), attrs[l].number("scale"));
        EXPECT_EQ(a->attrs.integer("window"), attrs[l].integer("window"));
        EXPECT_TRUE(a->op->has(op_trait::kSplitPoint));
        // Each side reads what was written into its own cache, keys from the rotated ones.
        for (size_t side : {1, 2}) {
          const Node* write = a->in[side]->def;
          ASSERT_EQ(write->op->name, "row_write");
          const Node* cache = write->in[0]->def;
          EXPECT_EQ(cache->attrs.text("name"), fmt::format("kv.{}.{}", l, side == 1 ? "keys" : "values"));
          EXPECT_EQ(describe(cache->result()->type),
                    describe(TensorType{DType::BF16, {cache->result()->type.shape[0], Dim(128), Dim(2 * 64)}}));
          EXPECT_EQ(cache->result()->type.shape[0].symbol, models::kPoolPages);
          const Value* rows = write->in[1]->def->in[0];  // behind flatten
          EXPECT_EQ(write->in[1]->def->op->name, "flatten");
          if (fused) {
            EXPECT_EQ(rows->def->op->name, "split_qk_norm_rope");
            EXPECT_EQ(rows->result, side);
          } else {
            EXPECT_EQ(rows->def->op->name, side == 1 ? "rope" : "heads");
          }
          EXPECT_EQ(write->in[2]->def->attrs.text("name"), "slots");
        }
      }
      const Status sound = verify(g);
      EXPECT_TRUE(sound.is_ok()) << sound.message();
      EXPECT_EQ(print(test::copy_of(g, *platform.ops)), print(g));
      auto selection = select_kernels(g, platform);
      EXPECT_TRUE(selection.is_ok()) << selection.status().message();
    }
}

// Sinks go along, in the type of the query: the loader makes the parameter so.
TEST(SplitKvCaches, SinksGetTheTypeOfTheQuery) {
  const Platform platform = without(kOnJoined);
  Graph g = test::trace_tiny({"GptOssForCausalLM", 3}, *platform.ops);
  auto report = run(g, platform);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  const auto attention = calls(g, "paged_attention_rows");
  ASSERT_EQ(attention.size(), 3u);
  for (size_t l = 0; l < 3; ++l) {
    ASSERT_EQ(attention[l]->in.size(), 7u);
    const Value* sinks = attention[l]->in[6];
    EXPECT_EQ(describe(sinks->type), describe(TensorType{DType::BF16, {Dim(4)}}));
    EXPECT_EQ(sinks->def->attrs.text("name"), fmt::format("model.layers.{}.self_attn.sinks", l));
  }
  EXPECT_EQ(attention[0]->attrs.integer("window"), 128);
  EXPECT_EQ(attention[1]->attrs.integer("window"), 0);
  const Status sound = verify(g);
  EXPECT_TRUE(sound.is_ok()) << sound.message();
  EXPECT_EQ(print(test::copy_of(g, *platform.ops)), print(g));
}

// A fused op that writes into a joined cache is taken apart first.
TEST(SplitKvCaches, FusedWritesAreSplitToo) {
  const Platform all = test::null_platform();
  std::set<std::string> parts_only = kOnJoined;
  parts_only.insert("split_qk_norm_rope_rows");
  const Platform bare = without(parts_only);
  Graph g = test::trace_tiny({"Qwen3ForCausalLM", 2}, *all.ops);
  ASSERT_TRUE(run(g, all).is_ok());
  ASSERT_EQ(calls(g, "split_qk_norm_rope_kv").size(), 2u);
  Graph again = test::copy_of(g, *bare.ops);
  auto report = run(again, bare);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_EQ(calls(again, "row_write").size(), 4u);
  EXPECT_EQ(calls(again, "paged_attention_rows").size(), 2u);
  EXPECT_TRUE(calls(again, "kv_write").empty());
  const PassReport split = report_of(*report);
  ASSERT_EQ(split.applied.size(), 2u);
  EXPECT_NE(split.applied[0].reason.find("kv.0 becomes two: no null kernel for"), std::string::npos)
      << split.applied[0].reason;
}

TEST(SplitKvCaches, JoinedKernelsAreLeftAlone) {
  const Platform all = test::null_platform();
  Graph joined = test::trace_tiny({"LlamaForCausalLM", 2}, *all.ops);
  auto untouched = run(joined, all);
  ASSERT_TRUE(untouched.is_ok()) << untouched.status().message();
  EXPECT_EQ(report_of(*untouched).tried, 2);
  EXPECT_EQ(report_of(*untouched).matched, 0);
  EXPECT_EQ(calls(joined, "paged_attention").size(), 2u);
}

// The reason that counts comes first: why attention cannot run, not that the device has no joined caches.
TEST(SplitKvCaches, NoKernelsOnEitherFormIsAnError) {
  std::set<std::string> none = kOnJoined;
  none.insert("paged_attention_rows");
  const Platform neither = without(none);
  Graph g = test::trace_tiny({"LlamaForCausalLM", 1}, *neither.ops);
  auto report = run(g, neither);
  ASSERT_FALSE(report.is_ok());
  EXPECT_EQ(report.status().code(), Code::Unsupported);
  const std::string& why = report.status().message();
  const size_t two = why.find("kv.0: no null kernel for paged_attention_rows(");
  const size_t one = why.find("no null kernel for kv_write(");
  ASSERT_NE(two, std::string::npos) << why;
  ASSERT_NE(one, std::string::npos) << why;
  EXPECT_LT(two, one) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
}

TEST(SplitKvCaches, CachesOfAnotherTypeAreAnError) {
  const Platform platform = without(kOnJoined);
  for (const DType cache : {DType::I8, DType::F16}) {
    Graph g = test::trace_tiny({"LlamaForCausalLM", 1}, *platform.ops, DType::BF16, cache);
    auto report = run(g, platform);
    ASSERT_FALSE(report.is_ok());
    const std::string expected = fmt::format(
        "kv.0: a KV cache of {}: this device keeps keys and values in caches of their own, in the model's "
        "dtype; `kv_cache_dtype` auto asks for bf16",
        dtype_name(cache));
    EXPECT_NE(report.status().message().find(expected), std::string::npos) << report.status().message();
  }
}

TEST(SplitKvCaches, AKernelOnJoinedCachesAloneIsAnError) {
  const Platform platform = without({"kv_write", "paged_attention"});
  Graph g = test::trace_tiny({"LlamaForCausalLM", 1}, *platform.ops);
  auto report = run(g, platform);
  ASSERT_FALSE(report.is_ok());
  EXPECT_NE(report.status().message().find("(split_qk_norm_rope_kv) works on keys and values in one cache"),
            std::string::npos)
      << report.status().message();
}

TEST(SplitKvCaches, AttentionOverRowsChecksItsShapes) {
  OpRegistry ops;
  register_core_ops(ops);
  const OpSchema& op = *ops.find("paged_attention_rows");
  const TensorType q{DType::BF16, {Dim(7), Dim(8), Dim(64)}}, cache{DType::BF16, {Dim(5), Dim(128), Dim(2 * 64)}};
  const TensorType table{DType::I32, {Dim(3), Dim(2)}}, lens{DType::I32, {Dim(3)}}, starts{DType::I32, {Dim(4)}};
  const Attrs attrs{{"scale", 0.125}, {"window", int64_t{0}}, {"chunk", int64_t{0}}};
  auto infer = [&](std::vector<TensorType> in) { return op.infer(OpCall{&op, in, {}, &attrs, {}}); };
  auto good = infer({q, cache, cache, table, lens, starts});
  ASSERT_TRUE(good.is_ok()) << good.status().message();
  EXPECT_TRUE(same_type((*good)[0], q));
  const TensorType sinks{DType::BF16, {Dim(8)}}, few{DType::BF16, {Dim(7)}}, wide{DType::F32, {Dim(8)}};
  auto sunk = infer({q, cache, cache, table, lens, starts, sinks});
  EXPECT_TRUE(sunk.is_ok()) << sunk.status().message();
  TensorType narrow = cache, pages = cache, floats = cache, small = cache;
  narrow.shape[2] = Dim(3 * 64);  // 8 heads over 3
  pages.shape[1] = Dim(64);
  floats.dtype = DType::F32;
  small.shape[2] = Dim(96);  // not a number of heads
  const std::vector<std::pair<std::vector<TensorType>, const char*>> bad{
      {{q, narrow, narrow, table, lens, starts}, "8 query heads are not a multiple of 3"},
      {{q, small, small, table, lens, starts}, "head size 64 does not divide the width 96"},
      {{q, pages, pages, table, lens, starts}, "number of tokens of a page"},
      {{q, cache, narrow, table, lens, starts}, "width of the keys"},
      {{q, cache, floats, table, lens, starts}, "paged_attention_rows"},
      {{q, cache, cache, table, starts, starts}, "number of sequences"},
      {{q, cache, cache, table, lens, starts, few}, "number of query heads"},
      {{q, cache, cache, table, lens, starts, wide}, "paged_attention_rows"},
  };
  for (auto& [in, message] : bad) {
    auto types = infer(in);
    ASSERT_FALSE(types.is_ok()) << message;
    EXPECT_NE(types.status().message().find(message), std::string::npos) << types.status().message();
  }
}

// What works on two caches at once is looked for behind the split, and replaces both writes.
TEST(SplitKvCaches, HeadsAreWrittenToBothCachesAtOnce) {
  Platform platform = without({"kv_write", "paged_attention", "split_qk_norm_rope_kv", "split_qk_norm_rope"});
  for (const char* family : {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"}) {
    Graph g = test::trace_tiny({family, 3}, *platform.ops);
    auto report = run(g, platform);
    ASSERT_TRUE(report.is_ok()) << family << ": " << report.status().message();
    ASSERT_EQ(calls(g, "split_qk_norm_rope_rows").size(), 3u) << family << print(g);
    for (const char* part : {"row_write", "slice", "rope", "kv_write"})
      EXPECT_TRUE(calls(g, part).empty()) << family << " " << part << print(g);
    // The second cache is the second result: attention reads both behind the write.
    for (const Node* n : calls(g, "paged_attention_rows")) {
      const Node* write = n->in[0]->def;
      ASSERT_EQ(write->op->name, "split_qk_norm_rope_rows");
      for (size_t i : {0, 1}) EXPECT_EQ(n->in[i + 1], write->result(i));
    }
    EXPECT_EQ(print(test::copy_of(g, *platform.ops)), print(g));
  }
}

// The name of a cache before its write may not be read behind it, whichever of the two it is.
TEST(SplitKvCaches, BothCachesAreWrittenInPlace) {
  const Platform platform = without(kOnJoined);
  const auto text = [](const char* read) {
    return fmt::format(R"(graph "g" {{
  symbol T <= 8
  symbol P <= 4
  %0: bf16[P, 128, 64] = input(name="keys")
  %1: bf16[P, 128, 64] = input(name="values")
  %2: bf16[T, 256] = input(name="qkv")
  %3: f32[T, 64] = input(name="table")
  %4: i32[T] = input(name="slots")
  %5: bf16[P, 128, 64], %6: bf16[P, 128, 64], %7: bf16[T, 2, 64] =
    split_qk_norm_rope_rows(%0, %1, %2, %3, %4, heads=2, kv_heads=1)
  %8: bf16[P, 128, 64] = copy({})
  return keys=%5, values=%6, q=%7, copied=%8
}})",
                       read);
  };
  auto good = parse_graph(text("%6"), *platform.ops);
  EXPECT_TRUE(good.is_ok()) << good.status().message();
  auto stale = parse_graph(text("%1"), *platform.ops);
  ASSERT_FALSE(stale.is_ok());
  EXPECT_NE(stale.status().message().find("%6 has overwritten"), std::string::npos) << stale.status().message();
}

}  // namespace
}  // namespace reprise::split_kv_caches_test
