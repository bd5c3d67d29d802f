// `reprise bench compare`: what may be compared, and what a ratio means.
#include <gtest/gtest.h>

#include "run_binary.h"
#include "support/bench_report.h"

namespace reprise::apps::bench_compare_test {
namespace {

using testing_support::report;

// As a person would: one report with itself, another machine's, and what is no report.
TEST(BenchCompare, TheCommandRefusesAndCanBeTold) {
  const Folder folder;
  folder.write("a.json", report(40, 25).dump());
  folder.write("b.json", report(50, 20, 90).dump());
  folder.write("c.json", "{\"rows\": 1}");
  folder.write("d.json", "{");
  const Outcome same = run_binary("bench compare " + (folder / "a.json") + " " + (folder / "a.json"));
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_TRUE(holds(same.out, "decode_tok_s")) << same.out;
  EXPECT_TRUE(holds(same.out, "x 1.000")) << same.out;
  const std::string both = "bench compare " + (folder / "a.json") + " " + (folder / "b.json");
  const Outcome refused = run_binary(both);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.out, "");
  EXPECT_TRUE(holds(refused.err, "read_GBps_all: 60.0 GB/s before, 90.0 after")) << refused.err;
  EXPECT_TRUE(holds(refused.err, "--across-machines")) << refused.err;
  const OrderedJson told = json_of(run_binary(both + " --across-machines --json"));
  EXPECT_EQ(told["obstacles"].size(), 1u);
  EXPECT_DOUBLE_EQ(told["rows"][0]["figures"]["decode_tok_s"]["gain"], 1.25);
  for (const auto& [file, words] : {std::pair("c.json", "no \"rows\""), std::pair("d.json", "d.json")}) {
    const Outcome o = run_binary("bench compare " + (folder / "a.json") + " " + (folder / file));
    EXPECT_EQ(o.exit_code, 1) << file;
    EXPECT_TRUE(holds(o.err, words)) << o.err;
  }
}

}  // namespace
}  // namespace reprise::apps::bench_compare_test
