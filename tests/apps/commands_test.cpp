// The commands at work on tiny models.
#include "byte_tokenizer.h"
#include "run_binary.h"

namespace reprise::apps::commands_test {
namespace {

using Words = std::vector<std::string>;

const std::string kTiny = "--model-path " + model_folder("llama_mha_untied") + " ";

// A model of random weights whose tokens are single bytes, with a chat template.
class ByteModel {
 public:
  ByteModel() {
    std::filesystem::copy(model_folder("llama_mha_untied") + "/config.json", folder_ / "config.json");
    Json added = Json::array();
    for (const auto& [id, content] : {std::pair{256, "<|im_start|>"}, std::pair{257, "<|im_end|>"}})
      added.push_back({{"id", id},
                       {"content", content},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    folder_.write("tokenizer.json", byte_tokenizer(added).dump());
    folder_.write("tokenizer_config.json",
                  Json{{"chat_template",
                        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
                       {"eos_token", "<|im_end|>"}}
                      .dump());
  }
  std::string flags() const {
    return "--model-path " + folder_.path() +
           " --load-format dummy --override vocab_size=258 --override eos_token_id=257 --dtype float32 ";
  }
  const Folder& folder() const { return folder_; }

 private:
  Folder folder_;
};

TEST(Generate, JsonOfTheContract) {
  const OrderedJson j =
      json_of(run_binary("generate --json --prompt-ids 1,2,3 --max-new-tokens 5 --ignore-eos " + kTiny));
  EXPECT_EQ(keys_of(j), (Words{"model", "prompt_tokens", "output", "timing", "graph"}));
  EXPECT_EQ(keys_of(j["output"]), (Words{"text", "token_ids", "finish_reason"}));
  EXPECT_EQ(keys_of(j["timing"]),
            (Words{"load_s", "compile_s", "capture_s", "ttft_s", "prefill_tok_s", "decode_tok_s"}));
  EXPECT_EQ(keys_of(j["graph"]), (Words{"decode", "prefill", "memory_bytes"}));
  EXPECT_EQ(keys_of(j["graph"]["decode"]), (Words{"mode", "sizes", "replays", "fallbacks", "padded_rows"}));
  EXPECT_EQ(keys_of(j["graph"]["memory_bytes"]), (Words{"planned", "actual"}));
  EXPECT_EQ(j["prompt_tokens"], 3);
  EXPECT_TRUE(j["output"]["text"].is_null());
  EXPECT_EQ(j["output"]["token_ids"].size(), 5u);
  EXPECT_EQ(j["output"]["finish_reason"], "length");
  EXPECT_GT(j["timing"]["ttft_s"], 0);
  EXPECT_EQ(j["graph"]["decode"]["mode"], "whole");
  EXPECT_EQ(j["graph"]["decode"]["replays"], 4);
}

TEST(Generate, SettingsThatMustNotChangeTheTokensDoNot) {
  const std::string base = "generate --json --prompt-ids 5,6,7,8,9,10 --max-new-tokens 12 --ignore-eos " + kTiny;
  const auto tokens = [&](const std::string& flags) {
    return json_of(run_binary(base + flags))["output"]["token_ids"];
  };
  const OrderedJson expected = tokens("");
  for (const char* flags :
       {"--graph off", "--graph required", "--graph-decode piecewise --graph-prefill whole", "--threads 1",
        "--chunked-prefill-size 2 --max-running-requests 2", "--max-total-tokens 128"})
    EXPECT_EQ(tokens(flags), expected) << flags;
  const OrderedJson off = json_of(run_binary(base + "--graph off"));
  EXPECT_EQ(off["graph"]["decode"]["mode"], "off");
  EXPECT_EQ(off["graph"]["decode"]["replays"], 0);
}

// F17: the device is a flag and nothing else. This one computes nothing and does not say how much memory it has.
TEST(Generate, AnotherDeviceIsOneFlag) {
  const std::string base =
      "generate --json --prompt-ids 1,2 --max-new-tokens 3 --ignore-eos --temperature 0 --device null " + kTiny;
  const OrderedJson j = json_of(run_binary(base + "--max-total-tokens 1024"));
  EXPECT_EQ(j["output"]["token_ids"], (std::vector<int>{0, 0, 0}));
  const Outcome unknown = run_binary(base);
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.err.find("set --max-total-tokens"), std::string::npos) << unknown.err;
}

TEST(Generate, OtherSystemsFlagsWorkAndSayWhatIsInEffect) {
  const std::string base = "generate --json --prompt-ids 5,6,7,8 --max-new-tokens 6 --ignore-eos " + kTiny;
  const OrderedJson expected = json_of(run_binary(base))["output"]["token_ids"];
  const Outcome o = run_binary(
      base +
          "--attention-backend ascend --disable-radix-cache --cuda-graph-bs 1 2 4 --cuda-graph-max-bs 4 "
          "--enable-torch-compile --torch-compile-max-bs 2 --disable-piecewise-cuda-graph "
          "--compilation-config '{\"compiler\": \"piecewise\", \"splitting_ops\": [\"atb._npu_paged_attention\"]}'",
      "ASCEND_USE_FIA=1 STREAMS_PER_DEVICE=32");
  const OrderedJson j = json_of(o);
  EXPECT_EQ(j["output"]["token_ids"], expected);
  EXPECT_EQ(j["graph"]["decode"]["mode"], "piecewise");
  EXPECT_EQ(j["graph"]["decode"]["sizes"], (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(j["graph"]["prefill"]["mode"], "off");
  for (const char* words :
       {"--attention-backend ascend: each device has one attention; effective: cpu", "--graph-decode piecewise",
        "--graph-decode-sizes 1,2,4", "--graph-prefill off", "decode sizes above 2 run the unfused plan",
        "paged_attention here", "ASCEND_USE_FIA=1 is not needed", "STREAMS_PER_DEVICE=32 is not needed"})
    EXPECT_NE(o.err.find(words), std::string::npos) << words << "\n" << o.err;
}

TEST(PlanCache, TheSecondStartCompilesNothingAndShowsTheSame) {
  const Folder folder;
  const std::string at = "REPRISE_CACHE=" + folder.path();
  const std::string explain = "graph explain --json " + kTiny;
  const Outcome first = run_binary(explain, at), second = run_binary(explain, at);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.err.find("plan cache: 0 of "), std::string::npos) << first.err;
  EXPECT_NE(second.err.find("programs from " + (folder / "plans")), std::string::npos) << second.err;
  EXPECT_EQ(second.err.find("plan cache: 0 of "), std::string::npos) << second.err;
  EXPECT_EQ(first.out, second.out);
  // Damage costs a line of warning.
  size_t damaged = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder / "plans")) {
    std::filesystem::resize_file(file.path(), 100);
    ++damaged;
  }
  EXPECT_GE(damaged, 2u);
  const std::string generate = "generate -v --json --prompt-ids 5,6,7 --max-new-tokens 6 --ignore-eos " + kTiny;
  const Outcome repaired = run_binary(generate, at);
  EXPECT_NE(repaired.err.find("compiling instead"), std::string::npos) << repaired.err;
  const Outcome off = run_binary(generate + "--plan-cache off", at);
  EXPECT_EQ(off.err.find("plan cache"), std::string::npos) << off.err;
  EXPECT_EQ(json_of(repaired)["output"], json_of(off)["output"]);
  const Outcome named = run_binary(generate + "--plan-cache " + (folder / "elsewhere"), at);
  EXPECT_NE(named.err.find(folder / "elsewhere"), std::string::npos) << named.err;
  EXPECT_FALSE(std::filesystem::is_empty(folder / "elsewhere"));
}

TEST(GraphVerify, ModesAreItsOwnAndLimitsAreTheUsers) {
  const OrderedJson j =
      json_of(run_binary("graph verify --json --largest 5 --disable-cuda-graph --torch-compile-max-bs 2 "
                         "--enable-piecewise-cuda-graph --cuda-graph-bs 1 4 " +
                         kTiny));
  EXPECT_EQ(j["mismatches"], 0);
  EXPECT_GT(j["sizes_checked"], 0);
}

TEST(Generate, SeedsAndLogprobs) {
  const std::string base =
      "generate --json --prompt-ids 5,6,7 --max-new-tokens 20 --ignore-eos --temperature 2 --logprobs 3 " + kTiny;
  const OrderedJson a = json_of(run_binary(base + "--seed 1"))["output"];
  EXPECT_EQ(json_of(run_binary(base + "--seed 1"))["output"], a);
  EXPECT_NE(json_of(run_binary(base + "--seed 2"))["output"]["token_ids"], a["token_ids"]);
  ASSERT_EQ(a["logprobs"].size(), 20u);
  EXPECT_EQ(a["logprobs"][0]["top"].size(), 3u);
  EXPECT_EQ(a["logprobs"][0]["token"], a["token_ids"][0]);
  EXPECT_LT(a["logprobs"][0]["logprob"], 0);
}

TEST(Generate, NotesGoToStandardError) {
  const Outcome o =
      run_binary("generate --prompt-ids 1 --max-new-tokens 3 --ignore-eos --summary --trust-remote-code " + kTiny);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), ','), 2) << o.out;  // three ids and nothing else
  for (const char* word : {"tokens/s", "replays", "memory", "no code from a model"})
    EXPECT_NE(o.err.find(word), std::string::npos) << word << "\n" << o.err;
  EXPECT_EQ(o.err.find('\033'), std::string::npos) << "colours without a terminal";
  const Outcome quiet = run_binary("generate --prompt-ids 1 --max-new-tokens 3 --log-level error " + kTiny);
  EXPECT_EQ(quiet.err, "");
}

TEST(Generate, TextAndStopStrings) {
  const ByteModel model;
  const std::string base = "generate --json --max-new-tokens 40 --ignore-eos --prompt 'hello world' " + model.flags();
  const OrderedJson j = json_of(run_binary(base));
  EXPECT_EQ(j["prompt_tokens"], 11);
  const std::string text = j["output"]["text"];
  ASSERT_GT(text.size(), 20u);
  // A stop string of several tokens from the middle of that text. It may stand earlier by chance.
  size_t at = text.size() / 2;
  while (at < text.size() && (text[at] & 0xc0) == 0x80) ++at;
  size_t end = at + 4;
  while (end < text.size() && (text[end] & 0xc0) == 0x80) ++end;
  const std::string stop = text.substr(at, end - at);
  const Folder folder;
  folder.write("stop", stop);
  const OrderedJson stopped = json_of(run_binary(base + "--stop \"$(cat " + (folder / "stop") + ")\""));
  if (stop.find('\n') == std::string::npos && stop.find('\0') == std::string::npos) {
    EXPECT_EQ(stopped["output"]["text"], text.substr(0, text.find(stop)));
    EXPECT_EQ(stopped["output"]["finish_reason"], "stop");
  }
  // Streamed text is the same text.
  const Outcome plain = run_binary("generate --max-new-tokens 40 --ignore-eos --prompt 'hello world' " + model.flags());
  EXPECT_EQ(plain.out, text + "\n");
}

TEST(Generate, ReadsTheRanksOfTiktoken) {
  const std::string data = std::string(REPRISE_SOURCE_DIR) + "/tests/data/tokenizer/tiktoken/";
  const Folder folder;
  std::filesystem::copy(model_folder("llama_mha_untied") + "/config.json", folder / "config.json");
  std::filesystem::copy(data + "tiktoken.model", folder / "tiktoken.model");
  const Json text = parse_json(content_of(data + "special.json"), "special").value()["texts"][0];
  const std::string command = fmt::format(
      "generate --json --load-format dummy --override vocab_size=1456 --max-new-tokens 2 --ignore-eos "
      "--prompt '{}' --model-path {}",
      text["text"].get<std::string>(), folder.path());
  const Outcome alone = run_binary(command);
  EXPECT_EQ(alone.exit_code, 1);
  EXPECT_NE(alone.err.find("tiktoken.model: needs a tokenizer_config.json beside it"), std::string::npos) << alone.err;
  std::filesystem::copy(data + "tokenizer_config.json", folder / "tokenizer_config.json");
  const OrderedJson made = json_of(run_binary(command));
  EXPECT_EQ(made["prompt_tokens"], text["ids"].size());
  EXPECT_EQ(made["output"]["token_ids"].size(), 2u);
}

TEST(Generate, BatchOfAFileEqualsOneByOne) {
  const ByteModel model;
  model.folder().write(
      "prompts.jsonl",
      "{\"prompt\": \"one\"}\n\n{\"question\": \"and another?\", \"answer\": 4}\n{\"prompt\": \"3\"}\n");
  const std::string flags = "--json --max-new-tokens 10 --ignore-eos --apply-chat-template " + model.flags();
  const OrderedJson batch =
      json_of(run_binary("generate --prompts-file " + (model.folder() / "prompts.jsonl") + " " + flags));
  EXPECT_EQ(keys_of(batch), (Words{"model", "results", "timing", "graph"}));
  ASSERT_EQ(batch["results"].size(), 3u);
  const Words prompts{"one", "and another?", "3"};
  for (size_t i = 0; i < prompts.size(); ++i) {
    const OrderedJson one = json_of(run_binary("generate --prompt '" + prompts[i] + "' " + flags));
    EXPECT_EQ(batch["results"][i]["output"], one["output"]);
    EXPECT_EQ(batch["results"][i]["prompt_tokens"], one["prompt_tokens"]);
  }
  const Outcome text = run_binary("generate --prompts-file " + (model.folder() / "prompts.jsonl") +
                                  " --max-new-tokens 3 " + model.flags());
  EXPECT_NE(text.out.find("--- 2\n"), std::string::npos) << text.out;
}

TEST(Generate, ChatTemplates) {
  const ByteModel model;
  const std::string base = "generate --json --max-new-tokens 1 --prompt hi --apply-chat-template " + model.flags();
  // Each special token is one token: "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n".
  EXPECT_EQ(json_of(run_binary(base))["prompt_tokens"], 1 + 5 + 2 + 1 + 1 + 1 + 10);
  EXPECT_EQ(json_of(run_binary(base + "--system ok"))["prompt_tokens"], 1 + 5 + 2 + 1 + 1 + 1 + 10 + 1 + 7 + 2 + 1 + 1);
  model.folder().write("other.jinja", "{{ messages[0].content }}!");
  EXPECT_EQ(json_of(run_binary(base + "--chat-template " + (model.folder() / "other.jinja")))["prompt_tokens"], 3);
  model.folder().write("broken.jinja", "{% for %}");
  const Outcome broken = run_binary(base + "--chat-template " + (model.folder() / "broken.jinja"));
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_NE(broken.err.find("broken.jinja"), std::string::npos) << broken.err;
}

TEST(Chat, AConversationThroughAPipe) {
  const ByteModel model;
  const std::string flags = "chat --max-new-tokens 6 --ignore-eos --log-level error " + model.flags();
  const Outcome o = run_binary(flags, "printf 'first\\n\\nsecond\\n/reset\\nfirst\\n/exit\\nnever\\n' |");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  const Outcome once = run_binary(flags, "printf 'first\\n' |");
  EXPECT_EQ(o.out.rfind(once.out, 0), 0u);
  EXPECT_TRUE(o.out.ends_with(once.out)) << "/reset must forget the conversation";
  EXPECT_GT(o.out.size(), 2 * once.out.size());
  const Outcome full = run_binary(flags + "--context-length 32", "printf 'far too long for that\\n' |");
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_NE(full.err.find("context"), std::string::npos) << full.err;
}

TEST(Doctor, JsonOfTheContract) {
  const OrderedJson j = json_of(run_binary("doctor --json"));
  EXPECT_EQ(keys_of(j), (Words{"cpu", "isa", "order", "threads", "read_GBps_1", "read_GBps_all", "fp32_gflops",
                               "bf16_gflops", "int8_gops", "barrier_ns", "devices", "warnings"}));
  EXPECT_FALSE(j["order"].get<std::string>().empty());
  EXPECT_GT(j["read_GBps_all"], 0);
  EXPECT_GT(j["fp32_gflops"], 0);
  EXPECT_EQ(j["isa"][0], "baseline");
  EXPECT_EQ(j["devices"][0], "cpu");
}

TEST(Doctor, SaysWhatAnotherDeviceSaysOfItself) {
  const OrderedJson j = json_of(run_binary("doctor --json --threads 1 --device null"));
  ASSERT_TRUE(j.contains("device")) << j;
  EXPECT_EQ(j["device"]["kind"], "null");
  EXPECT_EQ(j["device"]["name"], "null");
  EXPECT_EQ(j["device"]["patches"], true);
  EXPECT_EQ(j["device"]["notes"], OrderedJson::array());
  EXPECT_EQ(j["device"]["modelled_time"], OrderedJson::array());
  const Outcome text = run_binary("doctor --threads 1 --device null --ascend-runtime sim");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* word : {"null: null", "memory read, all", "seen by the host", "no effect on --device null"})
    EXPECT_NE(text.out.find(word), std::string::npos) << word << "\n" << text.out;
}

TEST(Doctor, ADeviceThatCannotBeOpenedIsOneClearLine) {
  const Outcome o = run_binary("doctor --device npu --ascend-runtime system");
  if (o.exit_code == 0) GTEST_SKIP() << "this machine has an NPU";
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_EQ(o.out, "");
  EXPECT_NE(o.err.find("ascend"), std::string::npos) << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
}

TEST(BenchOneBatch, JsonOfTheContract) {
  const Folder folder;
  std::filesystem::copy(model_folder("llama_mha_untied") + "/config.json", folder / "config.json");
  const OrderedJson j =
      json_of(run_binary("bench one-batch --load-format dummy --batch-size 1,3 --input-len 9 --output-len 4 --repeat 2 "
                         "--chunked-prefill-size 8 --json --model-path " +
                         folder.path()));
  EXPECT_EQ(keys_of(j), (Words{"limits", "rows"}));
  for (const char* key : {"read_GBps_all", "before", "after"}) EXPECT_TRUE(j["limits"].contains(key)) << key;
  ASSERT_EQ(j["rows"].size(), 2u);
  for (const auto& row : j["rows"]) {
    EXPECT_EQ(keys_of(row), (Words{"batch_size", "input_len", "output_len", "graph", "passes", "prefill_tok_s",
                                   "decode_tok_s", "step_ms_p50", "step_ms_p99", "host_us", "gap_us", "weight_bytes",
                                   "kv_bytes", "achieved_GBps", "achieved_GFLOPs", "pct_bandwidth", "pct_peak"}));
    EXPECT_GT(row["decode_tok_s"], 0);
    EXPECT_GT(row["weight_bytes"], 0);
    EXPECT_LE(row["step_ms_p50"], row["step_ms_p99"]);
  }
  EXPECT_EQ(j["rows"][1]["kv_bytes"], 3 * j["rows"][0]["kv_bytes"].get<int64_t>());
}

}  // namespace
}  // namespace reprise::apps::commands_test
