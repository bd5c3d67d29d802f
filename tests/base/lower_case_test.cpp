#include "base/lower_case.h"

#include <gtest/gtest.h>

namespace reprise::lower_case_test {
namespace {

TEST(LowerCase, ChangesTheLettersOfAsciiAlone) {
  EXPECT_EQ(lower_case("Content-Type: @AZ[`az{ 09"), "content-type: @az[`az{ 09");
  EXPECT_EQ(lower_case("\u00C4\u0130"), "\u00C4\u0130");
  EXPECT_EQ(lower_case(""), "");
  EXPECT_EQ(lower_case('Q'), 'q');
}

}  // namespace
}  // namespace reprise::lower_case_test
