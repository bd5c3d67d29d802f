// Watches the table of rules: a test that the table names must have made its rule refuse something, and every test that
// the table names for this program must be one of it. Included by one source file of each program of tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ascend/rules.h"

namespace sim_test {

// Each rule whose test, "PROGRAM.SUITE.NAME", is one of the program.
template <typename F>
void for_rules_of(const std::string& program, F&& f) {
  for (size_t i = 0; i < static_cast<size_t>(ascend_sim::Rule::Count); ++i) {
    const ascend_sim::RuleText& rule = ascend_sim::text_of(static_cast<ascend_sim::Rule>(i));
    const std::string test = rule.test;
    if (test.rfind(program + ".", 0) == 0) f(rule, test.substr(program.size() + 1));
  }
}

class RuleWatch : public ::testing::EmptyTestEventListener {
 public:
  explicit RuleWatch(std::string program) : program_(std::move(program)) {}

  void OnTestStart(const ::testing::TestInfo& test) override {
    each(test, [&](const ascend_sim::RuleText& rule) { before_[rule.id] = times_refused(rule.rule); });
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    each(test, [&](const ascend_sim::RuleText& rule) {
      EXPECT_GT(times_refused(rule.rule), before_[rule.id]) << "this test never made rule " << rule.id << " refuse";
    });
  }

 private:
  template <typename F>
  void each(const ::testing::TestInfo& test, F&& f) {
    const std::string name = std::string(test.test_suite_name()) + "." + test.name();
    for_rules_of(program_, [&](const ascend_sim::RuleText& rule, const std::string& of) {
      if (of == name) f(rule);
    });
  }

  std::string program_;
  std::map<std::string, uint64_t> before_;
};

// For a static variable: watching begins before main().
inline bool watch_rules(const std::string& program) {
  ::testing::UnitTest::GetInstance()->listeners().Append(new RuleWatch(program));
  return true;
}

inline void expect_rules_name_tests(const std::string& program) {
  std::map<std::string, bool> all;
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < tests.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *tests.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j)
      all[std::string(suite.name()) + "." + suite.GetTestInfo(j)->name()] = true;
  }
  for_rules_of(program, [&](const ascend_sim::RuleText& rule, const std::string& test) {
    EXPECT_TRUE(all.count(test)) << "rule " << rule.id << " names " << rule.test << ", which is no test";
  });
}

}  // namespace sim_test
