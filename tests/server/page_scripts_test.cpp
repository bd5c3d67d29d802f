// The scripts of the pages, under node: tests/server/page/*_test.js. In CI a missing node is a failure.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "support/smollm2.h"

namespace reprise::server::page_scripts_test {
namespace {

// What a command of the shell writes, and its exit status.
std::pair<std::string, int> output_of(const std::string& command) {
  std::string out;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return {out, -1};
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  return {out, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

class PageScripts : public testing::TestWithParam<const char*> {};

TEST_P(PageScripts, Work) {
  if (output_of("node --version").second != 0) {
    if (testing_support::in_ci()) FAIL() << "node is not installed";
    GTEST_SKIP() << "node is not installed (the package nodejs)";
  }
  const auto [out, status] =
      output_of(std::string("node '") + REPRISE_SOURCE_DIR + "/tests/server/page/" + GetParam() + "_test.js'");
  EXPECT_EQ(status, 0) << out;
}

INSTANTIATE_TEST_SUITE_P(All, PageScripts, testing::Values("chat", "markdown", "openapi", "pages"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace reprise::server::page_scripts_test
