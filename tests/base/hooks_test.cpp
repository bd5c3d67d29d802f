// Hooks: what a thread has of log and progress goes there, and not to standard error.
#include "base/hooks.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "base/progress.h"

namespace reprise::hooks_test {
namespace {

TEST(Hooks, LinesAndProgressGoThereAlone) {
  Hooks hooks;
  hooks.least = log::Level::Notice;
  std::vector<std::string> lines;
  std::vector<uint64_t> done;
  hooks.log = [&](log::Level level, std::string_view text) { lines.push_back(fmt::format("{} {}", int(level), text)); };
  hooks.progress = [&](const std::string& stage, uint64_t n, uint64_t total) {
    EXPECT_EQ(stage, "working");
    EXPECT_EQ(total, 3u);
    done.push_back(n);
    return n < 2;
  };
  testing::internal::CaptureStderr();
  {
    const HookScope scope(&hooks);
    log::info("below the level");
    log::warning("seen");
    log::show("a graph, which nobody asked to see at this level");
    Progress p("working", 3);
    p.advance(1);
    EXPECT_FALSE(p.given_up());
    p.advance(1);
    EXPECT_TRUE(p.given_up());
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(lines, std::vector<std::string>{"3 seen"});
  EXPECT_EQ(done, (std::vector<uint64_t>{1, 2}));
  testing::internal::CaptureStderr();
  log::warning("outside");
  log::show("as it stands\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: outside\nas it stands\n");
}

TEST(Hooks, ThreadsInheritThem) {
  Hooks hooks;
  std::vector<std::string> names;
  hooks.thread = [&](const char* name) { names.emplace_back(name); };
  Hooks *inside = nullptr, *outside = &hooks;
  {
    const HookScope scope(&hooks);
    start_thread("worker", [&] { inside = current_hooks(); }).join();
  }
  start_thread("worker", [&] { outside = current_hooks(); }).join();
  EXPECT_EQ(inside, &hooks);
  EXPECT_EQ(outside, nullptr);
  EXPECT_EQ(names, std::vector<std::string>{"worker"});
}

// A program without a terminal reads the reason in its own log.
TEST(HooksDeathTest, ABrokenInvariantIsToldBeforeTheEnd) {
  EXPECT_DEATH(
      {
        Hooks hooks;
        hooks.log = [](log::Level, std::string_view text) {
          std::fprintf(stderr, "log: %.*s\n", static_cast<int>(text.size()), text.data());
        };
        const HookScope scope(&hooks);
        CHECK(1 + 1 == 3, "numbers");
      },
      "^log: .*1 \\+ 1 == 3 does not hold: numbers");
}

}  // namespace
}  // namespace reprise::hooks_test
