// Settings of the environment, and which of several values is in effect.
#include "settings/precedence.h"

#include <gtest/gtest.h>

#include "settings/effects.h"
#include "settings/environment.h"

namespace reprise::settings::precedence_test {
namespace {

Result<std::vector<Variable>> read(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  return variables_of(environment.data());
}

TEST(Environment, VariablesNameSettings) {
  const auto all = read({"PATH=/bin", "REPRISE_SET_MAX_RUNNING_REQUESTS=32", "REPRISE_PORT=tcp://10.0.0.1:80",
                         "REPRISE_SET_DTYPE=", "REPRISE_SET_STOP=[\"a=\", \"b\"]", "REPRISE_SET_OVERRIDE=a=1"});
  ASSERT_TRUE(all.is_ok()) << all.status().message();
  ASSERT_EQ(all->size(), 3u);  // an empty one is not set
  EXPECT_EQ((*all)[0].row->key, "max_running_requests");
  EXPECT_EQ(*values_of((*all)[0]), std::vector<std::string>{"32"});
  EXPECT_EQ(*values_of((*all)[1]), (std::vector<std::string>{"a=", "b"}));
  EXPECT_EQ(*values_of((*all)[2]), std::vector<std::string>{"a=1"});
}

TEST(Environment, EverySettingHasOneVariable) {
  for (const Setting& s : table()) {
    const std::string text = variable_of(s.key) + "=1";
    const auto all = read({text.c_str()});
    ASSERT_TRUE(all.is_ok()) << text;
    EXPECT_EQ(all->front().row, &s) << text;
  }
}

TEST(Environment, WhatIsWrongIsNamed) {
  const auto problem = [](const char* text) {
    const auto all = read({text});
    return all ? values_of(all->front()).status().message() : all.status().message();
  };
  EXPECT_EQ(problem("REPRISE_SET_PORT=70000"), "REPRISE_SET_PORT: port: 70000 is out of range; allowed: 0 to 65535");
  EXPECT_EQ(problem("REPRISE_SET_ACCESS_LOG=yes"),
            "REPRISE_SET_ACCESS_LOG: access-log: \"yes\" is not known; allowed: true, false");
  EXPECT_EQ(problem("REPRISE_SET_PROT=1"),
            "REPRISE_SET_PROT is not a variable of a setting; close names: REPRISE_SET_PORT; all settings: reprise "
            "help settings");
  EXPECT_EQ(problem("REPRISE_SET_MAX_MODEL_LEN=1"),
            "REPRISE_SET_MAX_MODEL_LEN is not a variable of a setting; that of `context-length` is "
            "REPRISE_SET_CONTEXT_LENGTH");
  EXPECT_EQ(problem("REPRISE_SET_port=1"),
            "REPRISE_SET_port is not a variable of a setting; that of `port` is REPRISE_SET_PORT");
  EXPECT_NE(problem("REPRISE_SET_STOP=[a").find("allowed: one value, or a JSON list"), std::string::npos);
}

TEST(Precedence, TheHighestOriginIsInEffect) {
  EXPECT_TRUE(Origin::Default < Origin::Device && Origin::Device < Origin::Model && Origin::Model < Origin::File &&
              Origin::File < Origin::Environment && Origin::Environment < Origin::Flag && Origin::Flag < Origin::Api);
  Precedence p;
  EXPECT_EQ(p.in_effect("port"), nullptr);
  p.give("port", {Origin::Flag, {"3"}});
  p.give("port", {Origin::File, {"1"}, "f.json"});
  p.give("port", {Origin::Environment, {"2"}});
  p.give("host", {Origin::File, {"a"}, "f.json"});
  EXPECT_EQ(p.in_effect("port")->values, std::vector<std::string>{"3"});
  EXPECT_EQ(p.all_of("port").size(), 3u);
  EXPECT_EQ(p.keys(), (std::vector<std::string>{"host", "port"}));

  Precedence now = p;
  now.drop(Origin::File);
  EXPECT_TRUE(p.agrees(now, "port"));  // what a flag outranks is no change
  EXPECT_FALSE(p.agrees(now, "host"));
  EXPECT_EQ(now.keys(), std::vector<std::string>{"port"});
  p.take("host", now);
  EXPECT_EQ(p.in_effect("host"), nullptr);
  now.give("dtype", {Origin::File, {"half"}, "f.json"});
  p.take("dtype", now);
  EXPECT_EQ(p.in_effect("dtype")->values, std::vector<std::string>{"half"});
}

TEST(Effects, ShowValueOriginAndWhatWasOutranked) {
  Precedence p;
  p.give("port", {Origin::Flag, {"8000"}});
  p.give("port", {Origin::File, {"7000"}, "server.json"});
  p.give("api_key", {Origin::Environment, {"sk-secret"}});
  p.give("override", {Origin::Flag, {"a=1", "b=2"}});
  std::vector<Effect> all;
  int64_t most = 0;
  for (const auto& [key, initial] :
       std::vector<std::pair<const char*, std::vector<std::string>>>{{"port", {"30000"}},
                                                                     {"api_key", {}},
                                                                     {"override", {}},
                                                                     {"max_running_requests", values_in(&most)},
                                                                     {"context_length", {"0"}},
                                                                     {"node_rank", {}}})
    all.push_back(effect_of(*find(key), default_of(*find(key), initial), p));
  EXPECT_EQ(effects_as_text(all),
            "setting               value     origin       outranked\n"
            "port                  8000      flag         7000 (file server.json), 30000 (default)\n"
            "api-key               (hidden)  environment\n"
            "override              a=1 b=2   flag\n"
            "max-running-requests  -         device\n"
            "context-length        0         model\n");
  const OrderedJson json = effects_as_json(all);
  EXPECT_EQ(json["port"].dump(),
            R"({"value":"8000","origin":"flag","outranked":[{"value":"7000","origin":"file","place":"server.json"},)"
            R"({"value":"30000","origin":"default"}]})");
  EXPECT_EQ(json["api-key"]["value"], "(hidden)");
  EXPECT_EQ(json["override"]["value"], (OrderedJson{"a=1", "b=2"}));
  EXPECT_EQ(json["max-running-requests"].dump(), R"({"value":null,"origin":"device"})");
  EXPECT_EQ(json["context-length"].dump(), R"({"value":"0","origin":"model"})");
  EXPECT_EQ(json["node-rank"].dump(), R"({"value":null,"origin":"default"})");
}

}  // namespace
}  // namespace reprise::settings::precedence_test
