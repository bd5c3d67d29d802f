// The table of settings: its rows, values from text, the spelling in messages, and the page that is made of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/file.h"
#include "settings/binding.h"
#include "settings/page.h"
#include "settings/values.h"

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

}  // namespace
}  // namespace reprise::settings::settings_test
