// Rewrites from text: the example of docs/add-a-fusion.md as it stands there, variables of all kinds, and errors.
#include "passes/pass_file.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/file.h"
#include "nn/functional.h"
#include "support.h"
#include "support/temporary_path.h"

namespace reprise::pass_file_test {
namespace {

// The first ```text block of the page.
std::string example_of_the_page() {
  auto page = read_file(std::string(REPRISE_SOURCE_DIR) + "/docs/add-a-fusion.md");
  EXPECT_TRUE(page.is_ok()) << page.status().message();
  const std::string fence = "```text\n";
  const size_t begin = page->find(fence) + fence.size();
  return page->substr(begin, page->find("```", begin) - begin);
}

struct PassFileTest : testing::Test {
  Platform platform = test::null_platform();
  std::string path = testing_support::temporary_path("reprise_test.pass");

  Result<PipelineReport> run(Graph& g, std::string_view text, std::vector<std::string> enable = {"all"}) {
    PipelineOptions options;
    options.pass_file = PassFile{path, std::string(text)};
    options.passes.enable = std::move(enable);
    return run_pipeline(g, options, platform);
  }
};

TEST_F(PassFileTest, TheExampleOfThePageWorks) {
  Graph g = test::trace_tiny({"LlamaForCausalLM", 3}, *platform.ops);
  auto report = run(g, example_of_the_page());
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  auto n = test::counts(report->passes);
  EXPECT_EQ(n["residual_linear"], 2 * 3);
  EXPECT_EQ(n["add_rms_norm"], 0);
  EXPECT_EQ(n["linear_add"], 0);
  int made = 0;
  for (const Node* node = g.first(); node; node = node->next)
    if (node->made_by == "residual_linear") {
      ++made;
      EXPECT_EQ(node->op->name, "linear_add");
      EXPECT_EQ(node->attrs.text("shard"), "row");
    }
  EXPECT_EQ(made, 2 * 3);
  EXPECT_EQ(print(test::copy_of(g, *platform.ops)), print(g));
}

TEST_F(PassFileTest, TheExampleGivesTheSameBits) {
  Platform cpu = test::cpu_platform();
  auto rewrites = parse_rewrites(example_of_the_page(), *cpu.ops);
  ASSERT_TRUE(rewrites.is_ok()) << rewrites.status().message();
  Tracer t("g", *cpu.ops);
  Tensor x = t.input("x", {DType::BF16, {t.symbol("T", 9), Dim(64)}});
  Tensor r = t.input("r", {DType::BF16, {t.symbol("T", 9), Dim(32)}});
  t.output("y", nn::add(r, nn::linear(x, t.param("w", {DType::BF16, {Dim(32), Dim(64)}}))));
  Graph g = std::move(*t.finish());
  Graph rewritten = test::copy_of(g, *cpu.ops);
  PassContext context(*cpu.ops, nn::fused_ops(), nullptr);
  context.begin("residual_linear", false, -1);
  ASSERT_TRUE(run_rewrite((*rewrites)[0], rewritten, context).is_ok());
  ASSERT_EQ(context.report().matched, 1);
  std::mt19937 random(3);
  const std::map<std::string, test::Bytes> bytes{{"x", test::random_bytes(DType::BF16, 9 * 64, random)},
                                                 {"r", test::random_bytes(DType::BF16, 9 * 32, random)},
                                                 {"w", test::random_bytes(DType::BF16, 32 * 64, random)}};
  LiveSizes live = g.bounds();
  auto a = test::run_graph(std::move(g), cpu, live, bytes);
  auto b = test::run_graph(std::move(rewritten), cpu, live, bytes);
  ASSERT_TRUE(a.is_ok()) << a.status().message();
  ASSERT_TRUE(b.is_ok()) << b.status().message();
  EXPECT_EQ(*a, *b);
}

// Numbers, sizes, several results, an operand order of its own.
constexpr const char* kNormed = R"(
rewrite "normed_halves" {
  variable $eps = 0.0123
  variable $half = 22
  search graph "s" {
    symbol T <= 16
    %0: f32[T, 44] = input(name="x")
    %1: f32[44] = input(name="w")
    %2: f32[T, 44] = rms_norm(%0, %1, eps=$eps)
    %3: f32[T, $half] = slice(%2, begin=0, size=$half)
    %4: f32[T, $half] = slice(%2, begin=$half, size=$half)
    return high=%4, low=%3
  }
  replace graph "r" {
    symbol T <= 16
    %0: f32[44] = input(name="w")
    %1: f32[T, 44] = input(name="x")
    %2: f32[T, 44] = rms_norm(%1, %0, eps=$eps)
    %3: f32[T, 44] = copy(%2)
    %4: f32[T, $half] = slice(%3, begin=0, size=$half)
    %5: f32[T, $half] = slice(%3, begin=$half, size=$half)
    return low=%4, high=%5
  }
}
)";

TEST_F(PassFileTest, VariablesStandForAttributesAndSizes) {
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::BF16, {t.symbol("T", 9), Dim(12)}});
  Tensor y = nn::rms_norm(x, t.param("w", {DType::BF16, {Dim(12)}}), 1e-3);
  t.output("y", nn::add(nn::slice(y, 0, 6), nn::slice(y, 6, 6)));
  Tensor z = nn::rms_norm(x, t.param("v", {DType::BF16, {Dim(12)}}), 1e-3);
  t.output("z", nn::add(nn::slice(z, 0, 6), nn::slice(z, 5, 6)));
  Graph g = std::move(*t.finish());
  auto report = run(g, kNormed, {"normed_halves"});
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  for (auto& p : report->passes)
    if (p.name == "normed_halves") {
      EXPECT_EQ(p.matched, 1);
      ASSERT_FALSE(p.refused.empty());
    }
  const Node* sum = g.outputs()[0].value->def;
  EXPECT_EQ(sum->in[0]->def->made_by, "normed_halves");
  EXPECT_EQ(sum->in[0]->def->attrs.integer("begin"), 0);
  EXPECT_EQ(sum->in[1]->def->attrs.integer("begin"), 6);
  EXPECT_EQ(sum->in[0]->def->in[0]->def->in[0]->def->attrs.number("eps"), 1e-3);
}

TEST_F(PassFileTest, ErrorsNameLineAndColumn) {
  const std::string good = kNormed;
  auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  struct Case {
    std::string text, expected;
  };
  const Case cases[] = {
      {"", "line 1, column 1: expected rewrite"},
      {with("rewrite", "rewriet"), "line 2, column 1: expected rewrite"},
      {with("= 0.0123", "= x"), "line 3, column 19: expected a number"},
      {with("$half = 22", "$eps = 22"), "variable $eps is declared twice"},
      {with("$half = 22", "$half = 0.0123"), "need different examples"},
      {with("eps=$eps", "eps=$epsilon"), "line 9, column 51: variable $epsilon is not declared"},
      {with("eps=$eps", "eps=$half"), "another type"},
      {with("f32[T, $half] = slice(%2, begin=0", "f32[T, 21] = slice(%2, begin=0"),
       "line 11, column 5: slice: result 0 is written as"},
      {with("rms_norm(%1, %0", "rms_nrom(%1, %0"), "line 18, column 30: op \"rms_nrom\" is not known"},
      {with("return low=%4, high=%5", "return low=%4"), "both graphs must return high, low"},
      {with("f32[44] = input(name=\"w\")\n    %1: f32[T", "f32[44] = input(name=\"u\")\n    %1: f32[T"),
       "input \"u\" is not one of"},
      {with("%1: f32[44] = input", "%1: f32[44] = param"), "not as param"},
      {good + good, "a second rewrite is named"},
  };
  for (const Case& c : cases) {
    auto r = parse_rewrites(c.text, *platform.ops);
    ASSERT_FALSE(r.is_ok()) << c.text;
    EXPECT_NE(r.status().message().find(c.expected), std::string::npos)
        << r.status().message() << "\nwanted: " << c.expected;
  }
  for (size_t n = 0; n + 2 < good.size(); n += 3)
    EXPECT_FALSE(parse_rewrites(std::string_view(good).substr(0, n), *platform.ops).is_ok()) << n;
}

TEST_F(PassFileTest, AFileThatIsMissingOrTakesANameIsAnError) {
  const auto missing = PassFile::read(path + ".missing");
  ASSERT_FALSE(missing.is_ok());
  EXPECT_NE(missing.status().message().find(path + ".missing"), std::string::npos) << missing.status().message();
  ASSERT_TRUE(write_file_atomically(path, "# none\n").is_ok());
  const auto there = PassFile::read(path);
  std::remove(path.c_str());
  ASSERT_TRUE(there.is_ok()) << there.status().message();
  EXPECT_EQ(there->text, "# none\n");
  EXPECT_EQ(there->path, path);
  Graph g = test::trace_tiny({"LlamaForCausalLM", 1}, *platform.ops);
  std::string text = example_of_the_page();
  text.replace(text.find("\"residual_linear\""), 17, "\"add_rms_norm\"");
  auto taken = run(g, text);
  ASSERT_FALSE(taken.is_ok());
  EXPECT_NE(taken.status().message().find("named add_rms_norm already"), std::string::npos) << taken.status().message();
}

}  // namespace
}  // namespace reprise::pass_file_test
