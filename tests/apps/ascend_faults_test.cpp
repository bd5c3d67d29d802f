// Faults of an Ascend device under the program as a person runs it: status 1, and one line that says what happened.
#include "apps/serving.h"
#include "support/http_client.h"

namespace reprise::apps::ascend_faults_test {
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
  // Long enough that a busy machine is not taken for a device that hangs.
  const std::string quick = "ASCEND_SIM_HANG_MS=3000 ASCEND_SIM_DESTROY_MS=200 ";
  const Outcome fine = run_binary(command, quick);
  ASSERT_EQ(fine.exit_code, 0) << fine.err;
  const std::vector<Case> cases{{"no_kernels", {"561112", "no kernels for Ascend910B3"}},
                                {"wrong_chip", {"Ascend310P3", "Ascend910B or Ascend910_93"}},
                                {"no_permission", {"507899", "/dev/davinci"}},
                                {"free:4194304", {"4.0 of 65536 MB", "other processes"}},
                                {"malloc:6", {"207001", "out of device memory"}},
                                {"kernel:aclnnSwiGlu:60", {"507015", "aclnnSwiGlu", "start the engine anew"}},
                                {"event:8", {"50704", "the device is stuck"}},
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

// What runs all the same, but not as it should, is said at the start.
TEST(AscendFaultsOfTheProgram, DegradedModesAreNotices) {
  const std::string command =
      "generate --device ascend --ascend-runtime sim --dtype bfloat16 --prompt-ids 1,2,3 --max-new-tokens 6 "
      "--ignore-eos "
      "--max-running-requests 2 --cuda-graph-bs 1 2 --graph-prefill off --context-length 128 --max-total-tokens 256 "
      "--model-path " +
      model_folder("qwen3_tied");
  const Outcome fine = run_binary(command);
  ASSERT_EQ(fine.exit_code, 0) << fine.err;
  const std::vector<Case> cases{
      {"old_driver", {"notice: driver 24.1.RC2 is older than 25.0.RC1", "runs eagerly", "207000"}},
      {"free:8589934592", {"notice: 57344 of 65536 MB of the device's memory are taken already"}}};
  for (const Case& c : cases) {
    const Outcome o = run_binary(command, std::string("ASCEND_SIM_FAULT=") + c.fault);
    EXPECT_EQ(o.exit_code, 0) << c.fault << ": " << o.err;
    EXPECT_EQ(o.out, fine.out) << c.fault;
    for (const char* word : c.words) {
      EXPECT_NE(o.err.find(word), std::string::npos) << c.fault << ": " << o.err;
      EXPECT_EQ(fine.err.find(word), std::string::npos) << fine.err;
    }
  }
}

// Whoever waits for an answer gets one, and the process ends so that a supervisor starts another.
TEST(AscendFaultsOfTheServer, ALostDeviceEndsItWithStatusOne) {
  const Model model;
  const std::string flags =
      "--device ascend --ascend-runtime sim --dtype bfloat16 --graph-prefill off --chunked-prefill-size 16 "
      "--max-running-requests 2 --cuda-graph-bs 1 2 --context-length 256 --max-total-tokens 512";
  // Long enough that a busy machine is not taken for a device that hangs.
  const std::string quick = "ASCEND_SIM_HANG_MS=3000 ASCEND_SIM_DESTROY_MS=200 ";
  struct Loss : Case {
    const char* flags = "";
  };
  const std::vector<Loss> cases{
      {{"kernel:aclnnSwiGlu:200", {"507015", "aclnnSwiGlu"}}},
      {{"event:20", {"50704"}}},
      {{"kernel:aclnnSwiGlu:200", {"507015", "aclnnSwiGlu"}}, " --dp-size 2 --load-balance-method round_robin"}};
  for (const Loss& c : cases) {
    Server server(model, flags + c.flags, quick + "ASCEND_SIM_FAULT=" + c.fault);
    ASSERT_NE(server.port(), 0) << server.said();
    std::vector<std::unique_ptr<testing_support::HttpClient>> clients;
    for (int i = 0; i < 5; ++i) {  // two run, three wait
      clients.push_back(std::make_unique<testing_support::HttpClient>(server.port()));
      const std::string body = OrderedJson{
          {"prompt", fmt::format("{} abc", i)},
          {"max_tokens", 200},
          {"ignore_eos", true},
          {"stream", i == 1}}.dump();
      clients.back()->send(fmt::format(
          "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}", body.size(), body));
    }
    for (size_t i = 0; i < clients.size(); ++i) {
      const testing_support::HttpAnswer a = clients[i]->read();
      EXPECT_TRUE(a.complete) << c.fault << ", client " << i << ": " << server.said();
      EXPECT_TRUE(i == 1 || a.status == 503) << c.fault << ", client " << i << ": " << a.status << a.body;
      EXPECT_NE(a.body.find("the device is lost"), std::string::npos) << c.fault << ", client " << i << ": " << a.body;
      for (const char* word : c.words) EXPECT_NE(a.body.find(word), std::string::npos) << c.fault << ": " << a.body;
    }
    EXPECT_EQ(server.wait(), 1) << c.fault << ": " << server.said();
    const std::string said = server.said();
    const size_t last = said.rfind(" error   ");
    ASSERT_NE(last, std::string::npos) << c.fault << ": " << said;
    EXPECT_NE(said.find("has to be started again: the device is lost: ", last), std::string::npos)
        << c.fault << ": " << said;
    for (const char* word : c.words) EXPECT_NE(said.find(word, last), std::string::npos) << c.fault << ": " << said;
  }
}

}  // namespace
}  // namespace reprise::apps::ascend_faults_test
