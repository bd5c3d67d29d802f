// Angles and slots are converted once a step for kernels that want them so, and only for those.
#include <gtest/gtest.h>

#include "support.h"

namespace reprise::convert_once_test {
namespace {

// A device whose rotations take the table in the model's dtype, or `planes` of it, and that can convert it.
Platform converting(bool planes) {
  Platform p = test::null_platform();
  KernelRegistry all;
  null::register_null(all, *p.ops);
  p.kernels = std::make_unique<KernelRegistry>();
  for (const auto& e : all.entries()) {
    KernelEntry entry = *e;
    if (entry.op == "rope" || entry.op.starts_with("split_qk_norm_rope"))
      entry.accepts = [planes](const OpCall& c) {
        for (size_t i = 1; i < c.in.size(); ++i)
          if (c.op->operands[i].name == "table" && !same_dim(c.in[i].shape[0], c.in[0].shape[0]) && !planes &&
              c.in[i].shape[0].factor == 2)
            return error(Code::Unsupported, "no planes");
        return Status::ok();
      };
    p.kernels->add(std::move(entry));
  }
  for (const char* op : {"rope_angles", "index_i64"}) {
    KernelEntry entry = *all.entries().front();
    entry.name = std::string("null.") + op;
    entry.op = op;
    p.kernels->add(std::move(entry));
  }
  return p;
}

int count(const Graph& g, std::string_view op) {
  int n = 0;
  for (const Node* node = g.first(); node; node = node->next) n += node->op->name == op;
  return n;
}

// Every rotation reads one conversion of one table.
void expect_shared(const Graph& g, int64_t rows_of_a_token, DType dtype) {
  ASSERT_EQ(count(g, "rope_angles"), 1) << print(g);
  for (const Node* n = g.first(); n; n = n->next)
    for (const Value* v : n->in) {
      if (v->def->op->name == "rope_table") EXPECT_EQ(n->op->name, "rope_angles") << print(g);
      if (v->def->op->name != "rope_angles") continue;
      EXPECT_EQ(v->type.dtype, dtype);
      EXPECT_EQ(v->type.shape[0].factor, rows_of_a_token);
    }
}

TEST(ConvertOnce, EveryLayerReadsOneConversion) {
  for (const bool planes : {false, true})
    for (const bool fused : {false, true}) {
      const Platform platform = converting(planes);
      Graph g = test::trace_tiny({"Qwen3ForCausalLM", 3}, *platform.ops);
      PipelineOptions options;
      if (!fused) options.passes.enable = {"convert_once"};
      auto report = run_pipeline(g, options, platform);
      ASSERT_TRUE(report.is_ok()) << report.status().message();
      expect_shared(g, planes ? 2 : 1, DType::BF16);
      EXPECT_EQ(print(test::copy_of(g, *platform.ops)), print(g));
    }
}

TEST(ConvertOnce, NothingIsDoneWithoutNeed) {
  const Platform plain = test::null_platform(), converts = converting(false);
  Graph g = test::trace_tiny({"Qwen3ForCausalLM", 2}, *plain.ops);
  ASSERT_TRUE(run_pipeline(g, {}, plain).is_ok());
  EXPECT_EQ(count(g, "rope_angles"), 0) << "a device without such kernels";
  Graph wide = test::trace_tiny({"Qwen3ForCausalLM", 2}, *converts.ops, DType::F32);
  ASSERT_TRUE(run_pipeline(wide, {}, converts).is_ok());
  EXPECT_EQ(count(wide, "rope_angles"), 0) << "a model whose numbers are those of the table";
}

}  // namespace
}  // namespace reprise::convert_once_test
