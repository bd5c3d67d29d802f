#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace reprise::text::stop_strings_test {
namespace {

TEST(StopStrings, TextThatMayBeginOneIsHeldBack) {
  StopStrings s({"END", "\n\n"});
  EXPECT_EQ(s.push("abc"), "abc");
  EXPECT_EQ(s.push("dE"), "d");
  EXPECT_EQ(s.push("N"), "");
  EXPECT_EQ(s.push("x\n"), "ENx");
  EXPECT_FALSE(s.hit());
  EXPECT_EQ(s.push("\nmore"), "");
  EXPECT_TRUE(s.hit());
  EXPECT_EQ(s.push("more"), "");
  EXPECT_EQ(s.finish(), "");
}

TEST(StopStrings, WhatIsHeldComesOutAtTheEnd) {
  StopStrings s({"aab"});
  EXPECT_EQ(s.push("xaa"), "x");
  EXPECT_EQ(s.push("a"), "a");  // "aa" may still begin it
  EXPECT_EQ(s.finish(), "aa");
  StopStrings none({});
  EXPECT_EQ(none.push("anything"), "anything");
}

TEST(StopStrings, TheFirstOneInTheTextWins) {
  StopStrings s({"world", "o w"});
  EXPECT_EQ(s.push("hello world"), "hell");
  EXPECT_TRUE(s.hit());
}

// However the text is cut into pieces, the outcome is that of the whole text.
TEST(StopStrings, PiecesDoNotMatter) {
  std::mt19937 random(1);
  const std::vector<std::string> stops{"aba", "bb", "cabc"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += static_cast<char>('a' + random() % 4);
    size_t first = text.size();
    for (const auto& stop : stops) first = std::min(first, text.find(stop));
    StopStrings s(stops);
    std::string out;
    for (size_t i = 0; i < text.size() && !s.hit();) {
      const size_t n = 1 + random() % 4;
      out += s.push(text.substr(i, n));
      i += n;
    }
    EXPECT_EQ(s.hit(), first < text.size()) << text;
    out += s.finish();
    // A longer stop string that overlaps the first end may let less text out, never more.
    EXPECT_EQ(out, text.substr(0, first)) << text;
  }
}

}  // namespace
}  // namespace reprise::text::stop_strings_test
