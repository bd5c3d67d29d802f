// Exit codes and messages of wrong command lines and of work that cannot be done.
#include "apps/serving.h"
#include "run_binary.h"

namespace reprise::apps::usage_test {
namespace {

const std::string kTiny = "generate --model-path " + model_folder("llama_mha_untied") + " ";

// One line, and nothing on standard output.
void expect_error(const Outcome& o, int code, const std::string& part) {
  EXPECT_EQ(o.exit_code, code) << o.err;
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(o.err.rfind("error: ", 0), 0u) << o.err;
  EXPECT_EQ(o.err.find('\n'), o.err.size() - 1) << o.err;
  EXPECT_TRUE(holds(o.err, part)) << o.err;
}

TEST(Usage, HelpIsOnStandardOutput) {
  for (const std::string command : {"", "generate ", "chat ", "bench ", "bench one-batch ", "bench ops ",
                                    "bench startup ", "pull ", "models ", "doctor "}) {
    const Outcome o = run_binary(command + "--help");
    EXPECT_EQ(o.exit_code, 0) << command;
    EXPECT_TRUE(holds(o.out, "Usage")) << o.out;
    EXPECT_EQ(o.err, "");
  }
  const Outcome nothing = run_binary("");
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_EQ(nothing.out, "");
  EXPECT_TRUE(holds(nothing.err, "generate"));
}

TEST(Usage, UnknownWordsNameTheNearOnes) {
  expect_error(run_binary("generatex"), 2,
               "allowed: generate, chat, embed, serve, bench, graph, eval, key, quantize, demo, tune, pull, models, "
               "doctor, version, completion, help");
  expect_error(run_binary("bench all"), 2, "one-batch");
  expect_error(run_binary(kTiny + "--prompt-ids 1 --temperatur 1"), 2, "--temperature");
  expect_error(run_binary(kTiny + "--prompt-ids 1 --max-new-token=3"), 2, "--max-new-tokens");
  expect_error(run_binary("doctor --jsn"), 2, "--json");
  expect_error(run_binary("--jsn"), 2, "--jsn");
  expect_error(run_binary(kTiny + "--prompt-ids 1 word"), 2, "\"word\"");
  for (const auto& [name, ours] : {std::pair{"llama3-json", "llama3_json"}, {"kimik2", "kimi_k2"}})
    expect_error(run_binary(fmt::format("serve --model-path nowhere --tool-call-parser {}", name)), 2,
                 fmt::format("\"{}\" is not known; close names: {}", name, ours));
}

TEST(Usage, AFlagHasOneValue) {
  expect_error(run_binary(kTiny + "--model-path other"), 2,
               "--model-path is given more than once, and takes one value");
  expect_error(run_binary(kTiny + "--prompt-ids 1 --seed"), 2, "--seed needs a value");
}

TEST(Usage, ValuesOutOfRangeNameTheAllowedOnes) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--temperature -1", "allowed: 0 or more"},
      {"--temperature nan", "allowed: 0 or more"},
      {"--temperature hot", "not a number"},
      {"--top-p 0", "allowed: above 0, up to 1"},
      {"--top-p 1.01", "allowed: above 0, up to 1"},
      {"--top-k -2", "allowed: -1 or more"},
      {"--top-k 1.5", "not a whole number"},
      {"--min-p 2", "allowed: 0 to 1"},
      {"--repetition-penalty 0", "allowed: above 0"},
      {"--presence-penalty 3", "allowed: -2 to 2"},
      {"--frequency-penalty -3", "allowed: -2 to 2"},
      {"--max-new-tokens 0", "allowed: 1 or more"},
      {"--max-new-tokens 99999999999999999999", "out of range"},
      {"--logprobs -1", "allowed: 0 to"},
      {"--stop ''", "allowed: one character or more"},
      {"--dtype int4", "allowed: auto, float32, float16, half, bfloat16"},
      {"--kv-cache-dtype fp8", "allowed: auto"},
      {"--device tpu", "allowed: auto, cpu"},
      {"--load-format pickle", "allowed: auto, safetensors, gguf, dummy"},
      {"--quantization awq", "allowed: auto, none, w8a8_int8, modelslim, compressed-tensors, gguf"},
      {"--isa sse9", "allowed here: auto, baseline"},
      {"--graph sometimes", "allowed: auto, off, required"},
      {"--graph off --graph-decode whole", "contradict"},
      {"--graph-decode-sizes 1,x", "--graph-decode-sizes"},
      {"--graph-decode-sizes 4096", "--graph-decode-sizes"},
      {"--disable-cuda-graph --enable-piecewise-npu-graph-decode", "contradict"},
      {"--graph off --enable-piecewise-cuda-graph", "contradict"},
      {"--graph-warmups 101", "allowed: 0 to 100"},
      {"--graph-streams 3", "allowed: 1, 2, auto"},
      {"--graph-warmups some", "--graph-warmups"},
      {"--torch-compile-max-bs 0", "allowed: 1 to"},
      {"--cuda-graph-bs 1 two", "--cuda-graph-bs"},
      {"--compilation-config '{\"compiler\": \"triton\"}'", "allowed: eager, npugraph, piecewise, npugraph_ex"},
      {"--attention-backend cudnn", "allowed: ascend"},
      {"--schedule-policy shortest", "allowed: fcfs"},
      {"--page-size 64", "allowed: 128"},
      {"--device npu --page-size 64", "allowed: 128"},
      {"--ascend-runtime simulator", "allowed: system, sim"},
      {"--tp-size 65", "allowed: 1 to 64"},
      {"--tp 0", "allowed: 1"},
      {"--dp 2", "replicas answer requests of `serve` alone; allowed here: 1"},
      {"--mem-fraction-static 1.5", "allowed: above 0, up to 1"},
      {"--chunked-prefill-size 0", "allowed: 1 to"},
      {"--override rope_theta", "key=value"},
      {"--log-level loud", "allowed: debug"},
      {"--prompt hello", "exactly one of"},
      {"--system hello", "--apply-chat-template"},
      {"--min-new-tokens 500", "--max-new-tokens"},
  };
  for (const auto& [flags, part] : cases) {
    SCOPED_TRACE(flags);
    expect_error(run_binary(kTiny + "--prompt-ids 1 " + flags), 2, part);
  }
  expect_error(run_binary("generate --prompt hello"), 2, "--model-path is missing");
  expect_error(run_binary(kTiny), 2, "exactly one of");
  expect_error(run_binary(kTiny + "--prompt-ids 1,,2"), 2, "--prompt-ids");
  expect_error(run_binary("bench one-batch --batch-size 1,0"), 2, "allowed: 1 to 4096");
  expect_error(run_binary("pull gpt9"), 2, "allowed: smollm2");
}

TEST(Usage, MisspeltEnvironmentValuesAreErrors) {
  expect_error(run_binary(kTiny + "--prompt-ids 1", "ASCEND_USE_FIA=yes"), 2, "allowed: 0, 1, true, false");
  expect_error(run_binary(kTiny + "--prompt-ids 1", "STREAMS_PER_DEVICE=many"), 2, "STREAMS_PER_DEVICE");
}

TEST(Usage, WorkThatCannotBeDoneExitsWithOne) {
  const std::string quiet = " --log-level error";
  expect_error(run_binary(kTiny + "--prompt-ids 1 --split-ops attention" + quiet), 1, "paged_attention");
  const Folder folder;
  expect_error(run_binary("generate --model-path /no/such/model --prompt-ids 1" + quiet), 1, "/no/such/model");
  expect_error(run_binary("generate --model-path smollm2 --prompt hi" + quiet, "REPRISE_CACHE=" + folder.path()), 1,
               "reprise pull smollm2");
  expect_error(run_binary(kTiny + "--prompt hello" + quiet), 1, "no tokenizer");
  expect_error(run_binary(kTiny + "--prompt-ids 1,2,999999" + quiet), 1, "999999");
  expect_error(run_binary(kTiny + "--prompt-ids 1,2,3,4 --context-length 4" + quiet), 1, "context");
  expect_error(run_binary(kTiny + "--prompt-ids 1 --device ascend" + quiet, "ASCEND_HOME_PATH=/no/such"), 1,
               "--ascend-runtime sim");
  expect_error(run_binary(kTiny + "--prompt-ids 1 --extension /no/such.so" + quiet), 1, "extension /no/such.so: not a");
  expect_error(run_binary(kTiny + "--prompt-ids 1 --override hiden_size=4" + quiet), 1, "hidden_size");
  folder.write("prompts.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  expect_error(run_binary(kTiny + "--prompts-file " + (folder / "prompts.jsonl") + quiet), 1, "prompts.jsonl:2");
  expect_error(run_binary(kTiny + "--prompts-file " + (folder / "none.jsonl") + quiet), 1, "none.jsonl");
}

// What a model and this build do not have in common is one line that names it.
TEST(Usage, ModelsThatDoNotFitAreOneLine) {
  const Model model;
  const std::string quiet = "generate --prompt hi --max-new-tokens 1 --log-level error " + model.flags();
  OrderedJson config = OrderedJson::parse(content_of(model.folder / "config.json"));
  config["head_dim"] = 320;
  model.folder.write("config.json", config.dump());
  expect_error(run_binary(quiet), 1,
               "head_dim 320: cpu has no attention kernels for heads of this size; it has for 32");
  expect_error(run_binary(quiet + " --dtype bfloat16"), 1, "head_dim 320");
  config.erase("head_dim");
  config["vocab_size"] = 200;  // of the tokenizer's 256 bytes
  config["eos_token_id"] = 1;
  model.folder.write("config.json", config.dump());
  expect_error(run_binary(quiet), 1, "the tokenizer has 256 tokens, but the model's vocab_size is 200");
}

TEST(Pull, SaysWhatIsMissing) {
  const Folder folder;
  const Outcome home = run_binary("pull smollm2", "env -u HOME -u REPRISE_CACHE");
  EXPECT_EQ(home.exit_code, 1);
  EXPECT_TRUE(holds(home.err, "REPRISE_CACHE")) << home.err;
  const Outcome no_python = run_binary("pull smollm2", "env PATH=/nowhere REPRISE_CACHE=" + folder.path());
  EXPECT_EQ(no_python.exit_code, 1);
  EXPECT_TRUE(holds(no_python.err, "python3-pip")) << no_python.err;
  const Outcome unwritable = run_binary("pull smollm2", "REPRISE_CACHE=/proc/none");
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_TRUE(holds(unwritable.err, "REPRISE_CACHE")) << unwritable.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder / "smollm2")) << "something was left behind";
}

TEST(Pull, WhatIsThereIsNotFetchedAgain) {
  const Folder folder;
  std::filesystem::create_directories(folder / "smollm2");
  const std::string file = folder / "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  folder.write("smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "");
  std::filesystem::resize_file(file, 98362432);
  const Outcome o = run_binary("pull smollm2", "env PATH=/nowhere REPRISE_CACHE=" + folder.path());
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(holds(o.err, file)) << o.err;
}

}  // namespace
}  // namespace reprise::apps::usage_test
