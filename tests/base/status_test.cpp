#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace reprise::status_test {
namespace {

TEST(Status, DefaultIsOk) {
  Status s;
  EXPECT_TRUE(s.is_ok());
  EXPECT_TRUE(static_cast<bool>(s));
  EXPECT_EQ(s.code(), Code::Ok);
  EXPECT_EQ(s.message(), "");
}

TEST(Status, CarriesCodeAndFormattedMessage) {
  const Status s = error(Code::NotFound, "no file {} of {}", 3, "four");
  EXPECT_FALSE(s.is_ok());
  EXPECT_EQ(s.code(), Code::NotFound);
  EXPECT_EQ(s.message(), "no file 3 of four");
  EXPECT_EQ(invalid("x").code(), Code::Invalid);
}

TEST(Status, AtPutsThePlaceInFront) {
  EXPECT_EQ(invalid("bad size").at("config.json").message(), "config.json: bad size");
  EXPECT_EQ(invalid("bad size").at("a").at("b").message(), "b: a: bad size");
  EXPECT_TRUE(Status::ok().at("anywhere").is_ok());
  EXPECT_EQ(Status::ok().at("anywhere").message(), "");
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::vector<std::string> names;
  for (int c = 0; c <= static_cast<int>(Code::Internal); ++c) names.emplace_back(code_name(static_cast<Code>(c)));
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_NE(names[i], "unknown");
    for (size_t j = 0; j < i; ++j) EXPECT_NE(names[i], names[j]);
  }
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<int> good = 7;
  ASSERT_TRUE(good.is_ok());
  EXPECT_EQ(*good, 7);
  EXPECT_TRUE(good.status().is_ok());
  Result<int> bad = invalid("no number");
  EXPECT_FALSE(bad.is_ok());
  EXPECT_EQ(bad.status().message(), "no number");
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> r = std::make_unique<int>(5);
  std::unique_ptr<int> p = std::move(r).value();
  EXPECT_EQ(*p, 5);
}

Result<int> parse_digit(char c) {
  if (c < '0' || c > '9') return invalid("'{}' is not a digit", c);
  return c - '0';
}

Status sum_digits(std::string_view text, int& out) {
  for (char c : text) {
    ASSIGN_OR_RETURN(const int digit, parse_digit(c));
    out += digit;
  }
  return Status::ok();
}

Result<std::string> describe(std::string_view text) {
  int sum = 0;
  RETURN_IF_ERROR(sum_digits(text, sum).at(text));
  return fmt::format("sum {}", sum);
}

TEST(Result, MacrosReturnTheFirstError) {
  EXPECT_EQ(*describe("123"), "sum 6");
  const auto bad = describe("1x3");
  ASSERT_FALSE(bad.is_ok());
  EXPECT_EQ(bad.status().code(), Code::Invalid);
  EXPECT_EQ(bad.status().message(), "1x3: 'x' is not a digit");
}

using CheckDeathTest = testing::Test;

TEST(CheckDeathTest, NamesTheExpressionAndTheMessage) {
  const int rows = 3;
  EXPECT_DEATH(CHECK(rows == 4, "got {} rows", rows), "bug in Reprise: rows == 4 does not hold: got 3 rows");
  CHECK(rows == 3);
}

TEST(CheckDeathTest, ReadingAMissingValueStops) {
  Result<int> bad = invalid("no number");
  EXPECT_DEATH(static_cast<void>(bad.value()), "no number");
  EXPECT_DEATH(Result<int>{Status::ok()}, "Ok status");
}

}  // namespace
}  // namespace reprise::status_test
