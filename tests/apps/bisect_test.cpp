// `./dev bisect` finds a wrong rewrite that was put among right ones.
#include "run_binary.h"
#include "wrong_rewrite.h"

namespace reprise::apps::bisect_test {
namespace {

// Swaps the operands of additions, which changes nothing.
constexpr const char* kHarmless = R"(
rewrite "harmless" {
  search graph "a" {
    symbol T <= 16
    %0: f32[T, 44] = input(name="x")
    %1: f32[T, 44] = input(name="y")
    %2: f32[T, 44] = add(%0, %1)
    return sum=%2
  }
  replace graph "b" {
    symbol T <= 16
    %0: f32[T, 44] = input(name="x")
    %1: f32[T, 44] = input(name="y")
    %2: f32[T, 44] = add(%1, %0)
    return sum=%2
  }
}
)";

TEST(Bisect, NamesExactlyTheWrongRewrite) {
  const Folder folder;
  folder.write("two.pass", kHarmless + wrong_rewrite("f32"));
  const std::string model =
      "--model-path " + model_folder("llama_mha_untied") + " --pass-file " + (folder / "two.pass");
  // How many changes come before the first wrong one.
  int64_t before = 0;
  bool found = false;
  const OrderedJson explained = json_of(run_binary("graph explain --json --log-level error " + model));
  for (const auto& pass : explained["passes"]) {
    found = found || pass["name"] == "wrong";
    if (!found && pass["name"] != "greedy_head") before += pass["matched"].get<int64_t>();  // required: not counted
    if (pass["name"] == "harmless" || pass["name"] == "wrong") {
      EXPECT_GE(pass["matched"], 2) << pass;
    }
  }
  ASSERT_TRUE(found);
  ASSERT_GT(before, 4);

  const std::string generate = fmt::format(
      "{} generate --prompt-ids 5,6,7,8 --max-new-tokens 16 --ignore-eos --temperature 0 --max-total-tokens 128 {}",
      REPRISE_BINARY, model);
  folder.write("command.sh", fmt::format("test \"$({})\" = \"$({} --passes none 2>/dev/null)\"\n", generate, generate));
  const int status = std::system(
      fmt::format("cd {} && ./dev bisect -- sh {} >{} 2>&1", REPRISE_SOURCE_DIR, folder / "command.sh", folder / "out")
          .c_str());
  const std::string out = content_of(folder / "out");
  EXPECT_EQ(WEXITSTATUS(status), 0) << out;
  EXPECT_NE(out.find(fmt::format("the first change that makes it fail is number {} (", before + 1)), std::string::npos)
      << out;
  EXPECT_NE(out.find("the last change is pass wrong at %"), std::string::npos) << out;
  EXPECT_EQ(out.find("pass harmless"), std::string::npos) << out;
  // The change itself, and nothing else.
  EXPECT_NE(out.find("@@ layer 0: 1 removed, 1 added"), std::string::npos) << out;
  EXPECT_NE(out.find(" = mul(%"), std::string::npos) << out;
  EXPECT_EQ(out.find("@@ layer 1"), std::string::npos) << out;
}

TEST(Bisect, TheVariableMustBeANumber) {
  const std::string flags = "graph dump --log-level error --model-path " + model_folder("llama_mha_untied");
  const Outcome bad = run_binary(flags, "REPRISE_PASS_BISECT_LIMIT=many");
  EXPECT_NE(bad.exit_code, 0);
  EXPECT_NE(bad.err.find("REPRISE_PASS_BISECT_LIMIT \"many\""), std::string::npos) << bad.err;
  EXPECT_EQ(run_binary(flags, "REPRISE_PASS_BISECT_LIMIT=0").out, run_binary(flags + " --pass-bisect-limit 0").out);
  EXPECT_EQ(run_binary(flags + " --pass-bisect-limit 3", "REPRISE_PASS_BISECT_LIMIT=0").out,
            run_binary(flags + " --pass-bisect-limit 3").out)
      << "a flag counts more";
}

}  // namespace
}  // namespace reprise::apps::bisect_test
