// UTF-8 that is malformed: kept byte by byte, or repaired, and never both.
#include "text/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/split_mix.h"

namespace reprise::text::utf8_test {
namespace {

std::vector<CodePoint> points_of(std::string_view bytes) {
  std::vector<CodePoint> out;
  for (size_t at = 0; at < bytes.size(); at += out.back().size) out.push_back(point_or_byte_at(bytes, at));
  return out;
}

std::string written(const std::vector<CodePoint>& points) {
  std::string out;
  for (const CodePoint& p : points) append_utf8(p.value, &out);
  return out;
}

std::string repaired(std::string_view bytes, bool is_last = true) {
  std::string out;
  append_repaired_utf8(bytes, is_last, &out);
  return out;
}

TEST(Utf8, RepairsMaximalParts) {
  EXPECT_EQ(repaired("a\xC3"), "a\uFFFD");
  EXPECT_EQ(repaired("\xE2\x82z"), "\uFFFDz");
  EXPECT_EQ(repaired("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(repaired("\xF0\x9F\x99\x82"), "\U0001F642");
  EXPECT_EQ(repaired("a\xF0\x9F", false), "a");
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));
  EXPECT_TRUE(is_valid_utf8("\xED\x9F\xBF"));
}

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string bytes;
    append_utf8(c, &bytes);
    ASSERT_TRUE(is_valid_utf8(bytes)) << static_cast<uint32_t>(c);
    for (const CodePoint& p : {code_point_at(bytes, 0), point_or_byte_at(bytes, 0)}) {
      ASSERT_EQ(p.value, c);
      ASSERT_EQ(p.size, bytes.size());
    }
  }
}

// Overlong forms, surrogates, values above U+10FFFF, what ends too early, and what begins with a trailing byte.
TEST(Utf8, StrayBytesCountOneByOneAndAreKept) {
  for (const std::string_view bad : {"\xC0\x80", "\xE0\x80\x80", "\xF0\x8F\xBF\xBF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                     "\xC3", "\xE2\x82", "\xF0\x9F\x99", "\x80", "\xFF\xFE"}) {
    const std::string text = std::string("a") + std::string(bad) + "\u00E9";
    const auto points = points_of(text);
    ASSERT_EQ(points.size(), bad.size() + 2);
    for (size_t i = 1; i <= bad.size(); ++i) {
      EXPECT_TRUE(is_stray_byte(points[i].value));
      EXPECT_EQ(points[i].value, kStrayByte + static_cast<unsigned char>(bad[i - 1]));
      EXPECT_EQ(points[i].size, 1u);
    }
    EXPECT_EQ(points.back().value, U'\u00E9');
    EXPECT_EQ(written(points), text);
    EXPECT_FALSE(is_valid_utf8(text));
  }
}

// Of any bytes: kept text is what it was, repaired text is valid, and both agree with the check.
TEST(Utf8, AnyBytesAreKeptOrRepaired) {
  uint64_t state = 7;
  const auto random = [&state](uint64_t below) { return split_mix(state += kSplitMixStep) % below; };
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    constexpr std::string_view kLikely = "a\x80\xBF\xC2\xE0\xED\xF0\xF4\x90\x9F";
    for (uint64_t n = random(24); n > 0; --n) bytes += kLikely[random(kLikely.size())];
    const auto points = points_of(bytes);
    EXPECT_EQ(written(points), bytes);
    const bool stray = std::any_of(points.begin(), points.end(), [](auto& p) { return is_stray_byte(p.value); });
    EXPECT_EQ(is_valid_utf8(bytes), !stray);
    EXPECT_TRUE(is_valid_utf8(repaired(bytes)));
    EXPECT_EQ(repaired(bytes) == bytes, !stray);
  }
}

}  // namespace
}  // namespace reprise::text::utf8_test
