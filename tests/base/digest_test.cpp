#include "base/digest.h"

#include <gtest/gtest.h>

namespace reprise::digest_test {
namespace {

// The values of `xxh128sum` 0.8.1.
TEST(Digest, IsTheOneOfXxh128sum) {
  EXPECT_EQ(digest_of("").text(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest_of("abc").text(), "06b05ab6733a618578af5f94892f3950");
}

TEST(Digest, HexadecimalKeepsLeadingZeros) { EXPECT_EQ(hexadecimal(std::array<uint8_t, 3>{0, 10, 255}), "000aff"); }

}  // namespace
}  // namespace reprise::digest_test
