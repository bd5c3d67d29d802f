// The table of settings: its rows, values from text, the spelling in messages, and the page that is made of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "settings/binding.h"
#include "settings/config_file.h"
#include "settings/page.h"
#include "settings/values.h"
#include "support/temporary_path.h"

namespace reprise::settings::settings_test {
namespace {

TEST(Settings, EveryKeyAndFlagIsOne) {
  std::set<std::string_view> keys;
  for (const Setting& s : table()) {
    EXPECT_TRUE(keys.insert(s.key).second) << s.key;
    EXPECT_EQ(find(s.key), &s);
    EXPECT_FALSE(s.help.empty()) << s.key;
    EXPECT_EQ(s.key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789"), s.key.npos) << s.key;
    EXPECT_EQ(s.kind == Kind::Choice, !s.choices.empty()) << s.key;
    if (!s.initial.empty()) EXPECT_TRUE(check(s, s.initial).is_ok()) << s.key;
  }
  EXPECT_EQ(find("no_such_setting"), nullptr);
}

TEST(Settings, ValuesGoWhereTheyAreBound) {
  int64_t context = 7;
  std::string dtype;
  std::optional<double> temperature = 1;
  std::vector<std::string> overrides;
  bool eos = true;
  const std::vector<Binding> all{{"context_length", &context},
                                 {"dtype", &dtype},
                                 {"temperature", &temperature},
                                 {"override", &overrides},
                                 {"ignore_eos", &eos}};
  reset(all);
  EXPECT_EQ(context, 0);
  EXPECT_EQ(dtype, "auto");
  EXPECT_EQ(temperature, std::nullopt);
  EXPECT_FALSE(eos);
  const auto values = values_of_json(
      R"({"context_length": 64, "dtype": "float32", "temperature": 0.5,
          "override": ["a=1", "b=2"], "ignore_eos": true})");
  ASSERT_TRUE(values.is_ok()) << values.status().message();
  for (const auto& [key, value] : *values) EXPECT_TRUE(set(all, key, value).is_ok()) << key;
  EXPECT_EQ(context, 64);
  EXPECT_EQ(dtype, "float32");
  EXPECT_EQ(temperature, 0.5);
  EXPECT_EQ(overrides, (std::vector<std::string>{"a=1", "b=2"}));
  EXPECT_TRUE(eos);

  EXPECT_EQ(set(all, "context_length", "-1").message(), "`context_length`: -1 is out of range; allowed: 0 to 16777216");
  EXPECT_EQ(set(all, "dtype", "float23").message().find("`dtype`: \"float23\" is not known; close names: "), 0u);
  EXPECT_EQ(set(all, "ignore_eos", "yes").message(), "`ignore_eos`: \"yes\" is not known; allowed: true, false");
  EXPECT_EQ(set(all, "temprature", "1").message(), "\"temprature\" is not a setting here; close names: temperature");
  EXPECT_EQ(context, 64);
  EXPECT_EQ(dtype, "float32");
  EXPECT_FALSE(values_of_json("[1]").is_ok());
}

TEST(Settings, MessagesAreSpelledAsFlags) {
  EXPECT_EQ(as_flags("lower `chunked_prefill_size` (64) or `dtype`"), "lower --chunked-prefill-size (64) or --dtype");
  EXPECT_EQ(as_flags("the field `priority` and `dtype`"), "the field `priority` and --dtype");
  EXPECT_EQ(as_flags("`none` of`dtype`these`"), "`none` of--dtypethese`");
  EXPECT_EQ(as_flags("nothing"), "nothing");
  EXPECT_EQ(named_in("lower `chunked_prefill_size` or `x` or `dtype`"),
            (std::vector<std::string>{"chunked_prefill_size", "dtype"}));
}

// A new or changed row changes the page: `./dev golden --accept GoldenPage` writes it.
TEST(GoldenPage, IsMadeOfTheTable) {
  const std::string path = std::string(REPRISE_SOURCE_DIR) + "/docs/configuration.md";
  const auto page = read_file(path);
  ASSERT_TRUE(page.is_ok()) << page.status().message();
  const auto made = with_lists(*page);
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  if (std::getenv("REPRISE_ACCEPT_GOLDEN")) ASSERT_TRUE(write_file_atomically(path, *made).is_ok());
  if (!std::getenv("REPRISE_ACCEPT_GOLDEN")) EXPECT_EQ(*made, *page);
  // Each group stands in it once.
  for (const Setting& s : table()) {
    const std::string flag = "- `" + flag_of(s.key) + "`";
    const size_t at = made->find(flag);
    EXPECT_NE(at, std::string::npos) << s.key;
    EXPECT_EQ(made->find(flag + ":", at + 1), std::string::npos) << s.key;
  }
}

// The page, and what a reader of JSON other than ours makes of it, are held together in tests/apps/packaging_test.py.
TEST(Settings, AFileIsJsonWithComments) {
  std::vector<std::string> includes;
  const auto values = parse_config(
      "// the model\n{\"model-path\": \"a//b\", // not a comment in a text\n \"override\": [\"a=1\", \"b=\\\"//2\"],\n"
      " \"cuda_graph_bs\": [1, 8], \"include\": [\"more.json\"], \"ignore-eos\": true, \"top-p\": 0.5}",
      "server.json", includes);
  ASSERT_TRUE(values.is_ok()) << values.status().message();
  const std::vector<FileValue> expected{{"model_path", {"a//b"}, ""},
                                        {"override", {"a=1", "b=\"//2"}, ""},
                                        {"cuda_graph_bs", {"1", "8"}, ""},
                                        {"ignore_eos", {"true"}, ""},
                                        {"top_p", {"0.5"}, ""}};
  EXPECT_EQ(*values, expected);
  EXPECT_EQ(includes, std::vector<std::string>{"more.json"});

  const auto problem = [&](std::string_view text) { return parse_config(text, "f.json", includes).status().message(); };
  EXPECT_EQ(problem("[]"), "f.json: an object is expected, like {\"context-length\": 4096}");
  EXPECT_EQ(problem(R"({"context-lenght": 1})"),
            "f.json: \"context-lenght\" is not a setting; close names: context-length");
  EXPECT_EQ(problem(R"({"context-length": -1})"), "f.json: context-length: -1 is out of range; allowed: 0 to 16777216");
  EXPECT_EQ(problem(R"({"context-length": [1, 2]})"), "f.json: context-length: it takes one value, not a list");
  EXPECT_EQ(problem(R"({"context-length": null})"), "f.json: context-length: null is no value; leave the setting out");
  EXPECT_EQ(problem(R"({"dtype": "auto", "dtype": "half"})"), "f.json: \"dtype\" is given twice");
  EXPECT_EQ(problem(R"({"top-p": 1, "top_p": 1})"), "f.json: \"top_p\" is given twice");
  EXPECT_EQ(problem("--- \nmodel: a"), "f.json: this is YAML; settings are JSON with // comments");
  EXPECT_EQ(problem(R"({"include": "a"})"), "f.json: include: a list of files is expected, like [\"more.json\"]");
  EXPECT_EQ(problem("{\n// one\n\"a\" 1}").find("f.json: not valid JSON: parse error at line 3, column 5"), 0u);
}

TEST(Settings, FilesIncludeFiles) {
  const std::filesystem::path folder = testing_support::temporary_path("settings_files");
  std::filesystem::create_directories(folder / "more");
  const auto write = [&](const char* name, const char* text) {
    EXPECT_TRUE(write_file_atomically((folder / name).string(), text).is_ok());
  };
  write("server.json", R"({"include": ["more/b.json"], "top-p": 0.5})");
  write("more/b.json", R"({"include": ["c.json"], "top-p": 0.25, "dtype": "half"})");
  write("more/c.json", R"({"min-p": 0.125, "dtype": "float32"})");
  const auto values = read_config((folder / "server.json").string());
  ASSERT_TRUE(values.is_ok()) << values.status().message();
  EXPECT_EQ(*values,
            (std::vector<FileValue>{{"min_p", {"0.125"}, ""}, {"dtype", {"half"}, ""}, {"top_p", {"0.5"}, ""}}));
  write("more/c.json", R"({"min-p": 0.5, "seed": 1})");
  const auto now = read_config((folder / "server.json").string());
  ASSERT_TRUE(now.is_ok());
  EXPECT_EQ(now->front().values, std::vector<std::string>{"0.5"});
  write("more/c.json", R"({"include": ["../server.json"]})");
  EXPECT_NE(read_config((folder / "server.json").string()).status().message().find("includes itself"),
            std::string::npos);
  EXPECT_FALSE(read_config((folder / "none.json").string()).is_ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace reprise::settings::settings_test
