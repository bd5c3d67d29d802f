#include "passes/pass_manager.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "nn/functional.h"
#include "support.h"
#include "support/temporary_path.h"

namespace reprise::pass_manager_test {
namespace {

struct PassManagerTest : testing::Test {
  Platform platform = test::null_platform();
  nn::FusedOps fused = nn::fused_ops();
  PassContext context{*platform.ops, fused, &platform};
  PassManager manager;
  std::vector<std::string> ran;

  Graph graph() {
    Tracer t("g", *platform.ops);
    Tensor x = t.input("x", {DType::F32, {t.symbol("T", 8), Dim(12)}});
    t.output("y", nn::silu(x));
    return std::move(*t.finish());
  }
  Pass pass(std::string name, bool required = false) {
    return {name, required, [this, name](Graph&, PassContext&) {
              ran.push_back(name);
              return Status::ok();
            }};
  }
  Result<std::vector<PassReport>> run(const PassOptions& options) {
    Graph g = graph();
    return manager.run(g, context, options);
  }
  void expect_error(const PassOptions& options, std::string_view text) {
    auto r = run(options);
    ASSERT_FALSE(r.is_ok());
    EXPECT_NE(r.status().message().find(text), std::string::npos) << r.status().message();
  }
};

TEST_F(PassManagerTest, RunsInOrderAndHonoursTheSwitches) {
  for (const char* name : {"first", "second", "third"}) ASSERT_TRUE(manager.add(pass(name)).is_ok());
  ASSERT_TRUE(manager.add(pass("needed", true)).is_ok());
  using List = std::vector<std::string>;
  auto ran_with = [&](PassOptions o) {
    ran.clear();
    EXPECT_TRUE(run(o).is_ok());
    return ran;
  };
  EXPECT_EQ(ran_with({}), (List{"first", "second", "third", "needed"}));
  EXPECT_EQ(ran_with({.disable = {"second"}}), (List{"first", "third", "needed"}));
  EXPECT_EQ(ran_with({.enable = {"none"}}), (List{"needed"}));
  EXPECT_EQ(ran_with({.enable = {"third", "first"}}), (List{"first", "third", "needed"}));
  EXPECT_EQ(ran_with({.enable = {"third", "first"}, .disable = {"third"}}), (List{"first", "needed"}));
}

TEST_F(PassManagerTest, OptionsThatMakeNoSenseAreErrors) {
  ASSERT_TRUE(manager.add(pass("first")).is_ok());
  ASSERT_TRUE(manager.add(pass("needed", true)).is_ok());
  expect_error({.enable = {"frist"}}, "`passes`: pass \"frist\" is not known; known: all, none, first, needed");
  expect_error({.disable = {"all"}}, "`disable_pass`: pass \"all\" is not known; known: first, needed");
  expect_error({.print_after = {"x"}}, "`print_after`");
  expect_error({.disable = {"needed"}}, "needed is required");
  expect_error({.enable = {"all", "first"}}, "stand alone");
  EXPECT_FALSE(manager.add(pass("first")).is_ok());
  EXPECT_FALSE(manager.add(pass("all")).is_ok());
  EXPECT_EQ(split_names(" a, b,,c "), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(PassManagerTest, FormerNamesAreErrorsThatGiveTodays) {
  for (const char* name : {"lm_head_argmax_blocks", "first"}) ASSERT_TRUE(manager.add(pass(name)).is_ok());
  const std::string told = "pass \"lm_head_argmax_packed\" is now named \"lm_head_argmax_blocks\"";
  expect_error({.enable = {"first", "lm_head_argmax_packed"}}, "`passes`: " + told);
  expect_error({.disable = {"lm_head_argmax_packed"}}, "`disable_pass`: " + told);
  expect_error({.print_after = {"lm_head_argmax_packed"}}, "`print_after`: " + told);
  // An op that no pass is named after, today or before.
  expect_error({.disable = {"linear_packed"}},
               "pass \"linear_packed\" is not known; known: lm_head_argmax_blocks, first");
  expect_error({.disable = {"linear"}}, "pass \"linear\" is not known; known: lm_head_argmax_blocks, first");
}

TEST_F(PassManagerTest, AnErrorStopsTheRunAndNamesThePass) {
  ASSERT_TRUE(manager.add(Pass{"broken", false, [](Graph&, PassContext&) { return invalid("no luck"); }}).is_ok());
  ASSERT_TRUE(manager.add(pass("after")).is_ok());
  expect_error({}, "pass broken: no luck");
  EXPECT_TRUE(ran.empty());
}

TEST_F(PassManagerTest, TheVerifierNamesThePassThatBrokeTheGraph) {
  ASSERT_TRUE(manager
                  .add(Pass{"vandal", false,
                            [](Graph& g, PassContext&) {
                              g.last()->out[0]->type.dtype = DType::BF16;
                              return Status::ok();
                            }})
                  .is_ok());
  expect_error({}, "after pass vandal: graph: node %1 = silu");
  EXPECT_TRUE(run({.verify_each = false}).is_ok());
}

TEST_F(PassManagerTest, PrintsAndDumps) {
  ASSERT_TRUE(manager.add(pass("first")).is_ok());
  ASSERT_TRUE(manager.add(pass("second")).is_ok());
  PassOptions o;
  std::string printed;
  o.print = [&](std::string_view text) { printed += text; };
  o.print_after = {"second"};
  o.dump_dir = testing_support::temporary_path("reprise_pass_dumps");
  std::filesystem::remove_all(o.dump_dir);
  Graph g = graph();
  ASSERT_TRUE(manager.run(g, context, o).is_ok());
  EXPECT_EQ(printed, "# after second\n" + print(g));
  for (const char* name : {"01-first.before.txt", "01-first.after.txt", "02-second.before.txt", "02-second.after.txt"})
    EXPECT_EQ(*read_file(o.dump_dir + "/" + name), print(g)) << name;
  std::filesystem::remove_all(o.dump_dir);
  o.dump_dir = "/proc/none";
  EXPECT_FALSE(manager.run(g, context, o).is_ok());
}

TEST_F(PassManagerTest, TheLimitCountsOverAllOptionalPasses) {
  auto greedy = [](Graph& g, PassContext& c) {
    for (int i = 0; i < 3; ++i)
      if (!c.may_apply(*g.last())) break;
    return Status::ok();
  };
  ASSERT_TRUE(manager.add(Pass{"a", false, greedy}).is_ok());
  ASSERT_TRUE(manager.add(Pass{"b", true, greedy}).is_ok());
  ASSERT_TRUE(manager.add(Pass{"c", false, greedy}).is_ok());
  testing::internal::CaptureStderr();
  auto r = run({.bisect_limit = 4});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "notice: pass-bisect-limit 4: in graph \"g\" the last change is pass c at %1 (silu)\n");
  ASSERT_TRUE(r.is_ok());
  EXPECT_EQ((*r)[0].matched, 3);
  EXPECT_EQ((*r)[1].matched, 3);
  EXPECT_EQ((*r)[2].matched, 1);
  EXPECT_EQ((*r)[2].refused.at(0).reason, "the bisect limit is reached");
  testing::internal::CaptureStderr();
  ASSERT_TRUE(run({.bisect_limit = 7}).is_ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "there are only 6 changes";
}

TEST_F(PassManagerTest, KeepsTheGraphOfEachPassThatChangedIt) {
  ASSERT_TRUE(manager.add(pass("idle")).is_ok());
  ASSERT_TRUE(manager
                  .add(Pass{"doubles", false,
                            [](Graph& g, PassContext&) {
                              Value* x = g.first()->result();
                              return g.add(*g.last()->op, {x}, {}, "doubles").status();
                            }})
                  .is_ok());
  auto r = run({.keep_graphs = true});
  ASSERT_TRUE(r.is_ok());
  EXPECT_EQ((*r)[0].graph, "");
  EXPECT_NE((*r)[1].graph.find("from \"doubles\""), std::string::npos);
  EXPECT_EQ((*run({}))[1].graph, "");
}

TEST_F(PassManagerTest, RemarksAreCappedAndCounted) {
  ASSERT_TRUE(manager
                  .add(Pass{"chatty", false,
                            [](Graph& g, PassContext& c) {
                              for (int i = 0; i < 100; ++i) c.refuse(*g.last(), "no");
                              return Status::ok();
                            }})
                  .is_ok());
  auto r = run({});
  ASSERT_TRUE(r.is_ok());
  EXPECT_EQ((*r)[0].refusals, 100);
  EXPECT_EQ((*r)[0].refused.size(), PassContext::kMaxRemarks);
}

}  // namespace
}  // namespace reprise::pass_manager_test
