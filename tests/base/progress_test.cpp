// Progress where standard error is no terminal: lines with what is done, the total and an estimate, and none for work
// that is short.
#include "base/progress.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/log.h"

namespace reprise::progress_test {
namespace {

using std::chrono::milliseconds;

TEST(Progress, ALineSaysWhatIsDoneAndWhatIsLeft) {
  EXPECT_EQ(Progress::line("capturing", 3, 12, 3, "size 64"), "capturing: 3 of 12 (25 %), about 9 s left: size 64");
  EXPECT_EQ(Progress::line("verifying", 1'000'000, 8'000'000, 60, ""), "verifying: 12 %, about 7 min left");
  EXPECT_EQ(Progress::line("capturing", 0, 12, 3, "size 64"), "capturing: 0 of 12 (0 %): size 64");
  EXPECT_EQ(Progress::line("capturing", 12, 12, 3, "size 1"), "capturing: 12 of 12 (100 %): size 1");
  EXPECT_EQ(Progress::line("nothing", 0, 0, 0, ""), "nothing: 0 of 0 (100 %)");
}

TEST(Progress, LinesComeEveryFewSecondsToAPipe) {
  testing::internal::CaptureStderr();
  {
    Progress p("working", 10, true, milliseconds(40));
    p.advance(1, "first");  // too early
    for (int i = 0; i < 2; ++i) {
      std::this_thread::sleep_for(milliseconds(60));
      p.advance(2, "later");
      p.advance(0, "at once");
    }
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("working: 3 of 10 (30 %), about ")) << text;
  EXPECT_NE(text.find("\nworking: 5 of 10 (50 %), about "), std::string::npos) << text;
  EXPECT_EQ(text.find("at once"), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(": later\n")) << text;
}

TEST(Progress, ShortOrUnwantedWorkPrintsNothing) {
  testing::internal::CaptureStderr();
  {
    Progress fast("fast", 3);
    for (int i = 0; i < 3; ++i) fast.advance(1);
    Progress off("off", 3, false, milliseconds(0));
    for (int i = 0; i < 3; ++i) off.advance(1);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// "--log-level error" leaves standard error empty unless something fails, however long it takes.
TEST(Progress, QuietLogsHaveNoProgress) {
  const log::Level before = log::level();
  log::set_level(log::Level::Error);
  testing::internal::CaptureStderr();
  {
    Progress p("working", 10, true, milliseconds(1));
    std::this_thread::sleep_for(milliseconds(5));
    p.advance(5);
  }
  log::set_level(before);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace reprise::progress_test
