// Two reports compared: what may be compared, and what a ratio means.
#include "measurement/comparison.h"

#include <gtest/gtest.h>

#include "support/bench_report.h"

namespace reprise::measurement::comparison_test {
namespace {

using testing_support::report;

TEST(BenchCompare, ARatioAboveOneIsBetterWhateverTheFigure) {
  const auto c = compare_reports(report(40, 25), report(50, 20));
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_TRUE(c->obstacles.empty());
  ASSERT_EQ(c->rows.size(), 1u);
  ASSERT_EQ(c->rows[0].figures.size(), 2u);
  EXPECT_DOUBLE_EQ(c->rows[0].figures[0].gain(), 1.25);  // tokens a second went up
  EXPECT_DOUBLE_EQ(c->rows[0].figures[1].gain(), 1.25);  // milliseconds went down
  EXPECT_EQ(c->rows[0].what, "batch_size 1, input_len 8, output_len 4, graph whole");
}

TEST(BenchCompare, WhatDiffersBetweenTheMachinesIsSaid) {
  const auto obstacle = [](const OrderedJson& a, const OrderedJson& b) {
    const auto c = compare_reports(a, b);
    EXPECT_TRUE(c.is_ok()) << c.status().message();
    return c.is_ok() && c->obstacles.size() == 1 ? c->obstacles[0] : std::string("not one obstacle");
  };
  const OrderedJson base = report(40, 25);
  OrderedJson other = base;
  other["limits"]["cpu"] = "another one";
  EXPECT_EQ(obstacle(base, other), "cpu: a processor before, another one after");
  other = base;
  other["limits"]["threads"] = 4;
  EXPECT_EQ(obstacle(base, other), "threads: 2 before, 4 after");
  EXPECT_EQ(obstacle(base, report(40, 25, 70)), "read_GBps_all: 60.0 GB/s before, 70.0 after; at most 10 % apart");
  EXPECT_EQ(obstacle(report(40, 25, 70), base), "read_GBps_all: 70.0 GB/s before, 60.0 after; at most 10 % apart");
  EXPECT_TRUE(compare_reports(base, report(40, 25, 65))->obstacles.empty());
  other = base;
  other["limits"]["warnings"] = {"other programs kept 1.0 processors busy"};
  EXPECT_EQ(obstacle(base, other), "after: other programs kept 1.0 processors busy");
  other = base;
  other.erase("limits");
  EXPECT_EQ(obstacle(base, other), "after: it does not say which machine it is of");
}

TEST(BenchCompare, RowsOfOneReportAloneAreNamed) {
  OrderedJson a = report(40, 25), b = report(50, 20);
  OrderedJson more = b["rows"][0];
  more["batch_size"] = 16;
  b["rows"].push_back(more);
  const auto c = compare_reports(a, b);
  ASSERT_TRUE(c.is_ok());
  EXPECT_EQ(c->rows.size(), 1u);
  EXPECT_EQ(c->only_after, std::vector<std::string>{"batch_size 16, input_len 8, output_len 4, graph whole"});
  a["rows"][0]["input_len"] = 9;
  EXPECT_FALSE(compare_reports(a, b).is_ok()) << "nothing in common";
}

}  // namespace
}  // namespace reprise::measurement::comparison_test
