// `reprise tune` as a person runs it.
#include <gtest/gtest.h>

#include "run_binary.h"

namespace reprise::apps::tune_test {
namespace {

// The command as a person runs it, and the file that it writes.
TEST(Tune, TheFileHasTheSettings) {
  const Folder folder;
  const std::string model = std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/qwen3_tied";
  const Outcome o = run_binary(fmt::format(
      "tune --model-path {} --dtype float32 --context-length 256 --concurrency 2 --input-len 20 --output-len 3 "
      "--output {} --log-level error",
      model, folder / "server.json"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  for (const char* words : {"tried", "chosen", "threads", "max-total-tokens", "next: reprise serve --config"})
    EXPECT_TRUE(holds(o.out, words)) << words << "\n" << o.out;
  const std::string text = content_of(folder / "server.json");
  EXPECT_TRUE(holds(text, "// Written by `reprise tune`")) << text;
  const Json j = Json::parse(text, nullptr, false, true);
  ASSERT_TRUE(j.is_object()) << text;
  EXPECT_EQ(j["model-path"], model);
  EXPECT_EQ(j["max-running-requests"], 2);
  EXPECT_EQ(j["max-total-tokens"], 3 * 128);
  const Outcome none = run_binary("tune --request-log " + (folder / "nothing"));
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_TRUE(holds(none.err, "nothing")) << none.err;
  const Outcome ranks = run_binary("tune --tp-size 2");
  EXPECT_EQ(ranks.exit_code, 2);
  EXPECT_TRUE(holds(ranks.err, "allowed: --tp-size 1")) << ranks.err;
}

}  // namespace
}  // namespace reprise::apps::tune_test
