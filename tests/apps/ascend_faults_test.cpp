// Faults of an Ascend device under the program as a person runs it: status 1, and one line that says what happened.
#include "run_binary.h"

namespace reprise::apps {
namespace {

struct Case {
  const char* fault;
  std::vector<const char*> words;
};

TEST(AscendFaultsOfTheProgram, EndWithStatusOneAndALine) {
  const std::string command =
      "generate --device ascend --ascend-runtime sim --dtype bfloat16 --prompt-ids 1,2,3 --max-new-tokens 40 "
      "--ignore-eos "
      "--graph-prefill off --chunked-prefill-size 16 --max-running-requests 2 --cuda-graph-bs 1 2 --context-length 128 "
      "--max-total-tokens 256 --model-path " +
      model_folder("qwen3_tied");
  const std::string quick = "ASCEND_SIM_HANG_MS=400 ASCEND_SIM_DESTROY_MS=200 ";
  const Outcome fine = run_binary(command, quick);
  ASSERT_EQ(fine.exit_code, 0) << fine.err;
  const std::vector<Case> cases{{"malloc:6", {"207001", "out of device memory"}},
                                {"kernel:aclnnSwiGlu:60", {"507015", "aclnnSwiGlu", "start the engine anew"}},
                                {"event:8", {"507046", "the device is stuck"}},
                                {"stream:1", {"207008", "no stream is free"}}};
  for (const Case& c : cases) {
    const Outcome o = run_binary(command, quick + "ASCEND_SIM_FAULT=" + c.fault);
    EXPECT_EQ(o.exit_code, 1) << c.fault << ": " << o.err;
    for (const char* word : c.words) EXPECT_NE(o.err.find(word), std::string::npos) << c.fault << ": " << o.err;
    const size_t last = o.err.rfind("error: ");
    ASSERT_NE(last, std::string::npos) << c.fault << ": " << o.err;
    EXPECT_EQ(o.err.find('\n', last), o.err.size() - 1) << c.fault << ": " << o.err;
  }
}

}  // namespace
}  // namespace reprise::apps
