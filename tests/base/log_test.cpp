// The three forms of a log line.
#include "base/log_form.h"

#include <gtest/gtest.h>

namespace reprise::log::log_test {
namespace {

constexpr double kTime = 1795384776.1239;  // `date -u -d @1795384776`: 2026-11-22 21:59:36

TEST(LogLine, PlainOnesAreForAPerson) {
  EXPECT_EQ(line(Form::Plain, Level::Info, kTime, "loaded", {}), "loaded\n");
  EXPECT_EQ(line(Form::Plain, Level::Warning, kTime, "slow", {{"n", 3}}), "warning: slow n=3\n");
}

TEST(LogLine, TimedOnesHaveTimeAndLevel) {
  EXPECT_EQ(line(Form::Timed, Level::Error, kTime, "lost", {}), "2026-11-22T21:59:36.123Z error   lost\n");
  EXPECT_EQ(line(Form::Timed, Level::Info, 0, "", {{"path", "/v1/x"}, {"why", "two words"}, {"none", ""}, {"x", 1.5}}),
            "1970-01-01T00:00:00.000Z info     path=/v1/x why=\"two words\" none=\"\" x=1.5\n");
  EXPECT_EQ(line(Form::Timed, Level::Info, 0, "a table:\n  b", {{"x", 1}}),
            "1970-01-01T00:00:00.000Z info    a table:\n1970-01-01T00:00:00.000Z info      b x=1\n");
}

// A path that a client sends may hold anything.
TEST(LogLine, ValuesCannotBreakOutOfTheirLine) {
  const OrderedJson fields = {{"path", "/a\nb\"c\xff=\x1b[0m"}};
  for (const Form form : {Form::Plain, Form::Timed, Form::Json}) {
    const std::string text = line(form, Level::Info, kTime, "request", fields);
    EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
    EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  }
}

TEST(LogLine, JsonHoldsTheSame) {
  const OrderedJson j =
      OrderedJson::parse(line(Form::Json, Level::Warning, kTime, "a\nb", {{"status", 200}, {"path", "/\xff"}}));
  EXPECT_EQ(j["ts"], "2026-11-22T21:59:36.123Z");
  EXPECT_EQ(j["level"], "warning");
  EXPECT_EQ(j["msg"], "a\nb");
  EXPECT_EQ(j["status"], 200);
  EXPECT_EQ(j["path"], "/\xef\xbf\xbd");
}

}  // namespace
}  // namespace reprise::log::log_test
