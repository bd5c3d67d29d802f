// Launch lines of SGLang, as its pages write them (the model's path apart): each is understood, or refused in one line
// for what truly cannot be done. `serve --check` reads them and starts nothing.
#include "run_binary.h"
#include "settings/launcher_settings.h"
#include "settings/setting.h"

namespace reprise::apps::launch_lines_test {
namespace {

Outcome check(const std::string& line, const std::string& before = "") {
  return run_binary("serve --check --model-path " + model_folder("llama_mha_untied") + " " + line, before);
}

struct Line {
  const char* from;
  const char* text;
  const char* environment = "";
};

// One device, one process; with "--tp-size 2" two.
const Line kGood[] = {
    {"docs/platforms/ascend quick start", "--attention-backend ascend"},
    {"docs/advanced_features/server_arguments", "--device cuda --tp-size 4 --port 30111 --mem-fraction-static 0.8"},
    {"#9399, test_ascend_graph_tp1_bf16", "--trust-remote-code --mem-fraction-static 0.8 --attention-backend ascend"},
    {"#8328, test_ascend_tp2_fia_bf16, one rank",
     "--trust-remote-code --disable-cuda-graph --mem-fraction-static 0.8 --attention-backend ascend --tp-size 1 "
     "--disable-radix-cache",
     "ASCEND_USE_FIA=true"},
    {"#8328, test_ascend_tp2_fia_bf16",
     "--trust-remote-code --disable-cuda-graph --mem-fraction-static 0.8 --attention-backend ascend --tp-size 2 "
     "--disable-radix-cache",
     "ASCEND_USE_FIA=true"},
    {"#9399, test_ascend_graph_tp2_bf16",
     "--trust-remote-code --mem-fraction-static 0.8 --attention-backend ascend --tp-size 2"},
    {"#8328, test_ascend_mla_fia_w8a8int8",
     "--trust-remote-code --disable-cuda-graph --mem-fraction-static 0.8 --attention-backend ascend --quantization "
     "modelslim --tp-size 2 --disable-radix-cache",
     "ASCEND_USE_FIA=true"},
    {"#9399, test_ascend_graph_mla_w8a8int8",
     "--trust-remote-code --mem-fraction-static 0.8 --attention-backend ascend --quantization w8a8_int8 --tp-size 4"},
    {"#9355, one rank",
     "--tp 1 --trust-remote-code --quantization w8a8_int8 --device npu --attention-backend ascend --cuda-graph-bs 1 2 "
     "4 "
     "6 8 16 24 32 40 48 56 64 72 80 88 96 104 112 120 128 136 --disable-radix-cache --chunked-prefill-size 32768 "
     "--mem-fraction-static 0.8",
     "STREAMS_PER_DEVICE=32"},
    {"#12287, comment", "--enable-piecewise-cuda-graph --piecewise-cuda-graph-tokens [32,64,128,256,512,1024,4096]"},
    {"#12287, test of the prefill",
     "--trust-remote-code --mem-fraction-static 0.8 --attention-backend ascend --cuda-graph-bs 128 "
     "--enable-piecewise-cuda-graph --piecewise-cuda-graph-tokens 128 256 384 512 1024 2048 3968"},
    {"#15332, pieces",
     "--trust-remote-code --attention-backend ascend --mem-fraction-static 0.7 --enable-piecewise-npu-graph-decode "
     "--cuda-graph-bs 128 --compilation-config '{\"splitting_ops\": [\"atb._npu_paged_attention\"]}'"},
    {"#15332, compiled",
     "--trust-remote-code --attention-backend ascend --mem-fraction-static 0.7 --enable-torch-compile "
     "--watchdog-timeout 30000"},
    {"#15332, largest batch", "--enable-piecewise-npu-graph-decode --cuda-graph-max-bs 64"},
    {"#13410, test_npu_compile_graph_tp1_bf16",
     "--trust-remote-code --mem-fraction-static 0.6 --attention-backend ascend --disable-radix-cache "
     "--enable-torch-compile --watchdog-timeout 30000",
     "ASCEND_USE_FIA=1"},
    {"Ascend/sglang#169",
     "--trust-remote-code --attention-backend ascend --device npu --mem-fraction-static 0.7 --disable-cuda-graph "
     "--disable-radix-cache --port 8889 --base-gpu-id 10 --enable-piecewise-cuda-graph --piecewise-cuda-graph-tokens "
     "64"},
    {"#16526, one rank",
     "--trust-remote-code --device npu --random-seed 1234 --attention-backend ascend --disable-radix-cache "
     "--mem-fraction-static 0.8 --chunked-prefill-size 20000 --tp-size 1 --dp-size 1 --nnodes 1 --node-rank 0 "
     "--base-gpu-id 0 --gpu-id-step 1 --host 0.0.0.0 --enable-piecewise-cuda-graph --port 8080"},
    {"Ascend/sglang#136, one rank",
     "--attention-backend ascend --device npu --tp-size 1 --nnodes 1 --node-rank 0 --base-gpu-id 4 "
     "--chunked-prefill-size -1 --max-prefill-tokens 30000 --trust-remote-code --max-total-tokens 80000 --host "
     "127.0.0.1 --port 31125 --mem-fraction-static 0.9 --max-running-requests 256 --enable-multimodal --quantization "
     "modelslim --mm-attention-backend ascend_attn --dtype bfloat16 --mamba-ssm-dtype bfloat16 --cuda-graph-bs 4 8 12 "
     "16 20 28 32 36 40 44 48 52 56 60 --mamba-scheduler-strategy extra_buffer"},
    {"#3853, one rank",
     "--device npu --grammar-backend outlines --attention-backend torch_native --tensor-parallel-size 1 --port 40000 "
     "--host 0.0.0.0 --trust-remote-code"},
    {"docs/platforms/ascend_npu_qwen3_examples, one rank",
     "--device npu --attention-backend ascend --trust-remote-code --tp-size 1 --port 30111 --mem-fraction-static 0.8 "
     "--watchdog-timeout 9000",
     "STREAMS_PER_DEVICE=32"},
    {"test_npu_low_priority_first",
     "--max-running-requests 1 --max-queued-requests 3 --enable-priority-scheduling "
     "--schedule-low-priority-values-first --disable-cuda-graph --attention-backend ascend"},
    {"measurements of a server",
     "--tp 1 --pp-size 1 --dtype bfloat16 --kv-cache-dtype auto --page-size 128 --schedule-policy fcfs "
     "--chunked-prefill-size 4096 --max-prefill-tokens 4096 --max-running-requests 64 --context-length 512 "
     "--mem-fraction-static 0.8 --disable-radix-cache --disable-overlap-schedule --host 127.0.0.1"},
    {"server arguments by phase",
     "--cuda-graph-bs-decode 1 2 4 --cuda-graph-backend-prefill tc_piecewise --cuda-graph-backend-decode full "
     "--cuda-graph-bs-prefill 64 128"},
    {"docs/basic_usage/deepseek_v3, drafts of the checkpoint's layer",
     "--speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 "
     "--speculative-num-draft-tokens 2"},
    {"the same with requests and experts shared out",
     "--tp-size 4 --dp-size 4 --enable-dp-attention --ep-size 4 --speculative-algorithm NEXTN "
     "--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2"},
    {"server arguments by phase, off", "--disable-decode-cuda-graph --disable-prefill-cuda-graph"},
    {"server arguments, the harmless ones",
     "--data-parallel-size 1 --enable-mixed-chunk --skip-server-warmup --warmups v1 --sampling-backend pytorch "
     "--grammar-backend xgrammar --stream-interval 4 --log-requests --log-requests-level 2 --decode-log-interval 10 "
     "--dist-init-addr 127.0.0.1:5000 --ep-size 1 --tokenizer-mode auto --json-model-override-args '{\"rope_theta\": "
     "10000.0, \"num_hidden_layers\": 2}' --load-watch-interval 0.1 --soft-watchdog-timeout 300 "
     "--prefill-max-requests 4 --radix-eviction-policy lru --schedule-conservativeness 0.3 --sampling-defaults openai "
     "--enable-cache-report --log-level-http warning --moe-a2a-backend deepep --deepep-mode auto "
     "--enable-dp-attention"},
};

TEST(LaunchLines, EachIsUnderstood) {
  for (const Line& line : kGood) {
    SCOPED_TRACE(line.from);
    const Outcome o = check(line.text, line.environment);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_TRUE(holds(o.err, "nothing was started (--check)")) << o.err;
    EXPECT_EQ(o.out, "");
  }
}

TEST(LaunchLines, WhatCannotBeDoneIsOneClearLine) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--tensor-parallel-size 65", "--tp-size 65 is out of range; allowed: 1 to 64"},
      {"--data-parallel-size 65", "--dp-size 65 is out of range; allowed: 1 to 64"},
      {"--dp-size 16 --tp-size 8", "--dp-size 16 with --tp-size 8: 128 processes; allowed: 64 in all"},
      {"--dp-size 2 --load-balance-method best",
       "--load-balance-method: \"best\" is not known; allowed: auto, round_robin, "},
      {"--nnodes 2 --node-rank 1", "--nnodes 2 with --tp-size 1: a host has at least one rank; allowed: 1 to 1"},
      {"--ep-size 32", "--ep-size 32 with --tp-size 1: ranks are shared out evenly over the parts; allowed: 1"},
      {"--ep-size 3 --tp-size 4",
       "--ep-size 3 with --tp-size 4: ranks are shared out evenly over the parts; allowed: 1, 2, 4"},
      {"--enable-expert-parallel --ep-size 2 --tp-size 4", "which means 4 (--tp-size); leave one of them out"},
      {"--ep-num-redundant-experts 2", "--ep-num-redundant-experts: 2 is out of range; allowed: 0"},
      {"--enable-eplb", "experts are not moved between ranks yet"},
      {"--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 "
       "--speculative-num-draft-tokens 4",
       "--speculative-draft-model-path is missing"},
      {"--speculative-algorithm STANDALONE", "--speculative-draft-model-path is missing"},
      {"--disaggregation-mode prefill", "allowed: null"},
      {"--lora a.gguf", "adapters as GGUF files are not read; --lora-modules NAME=FOLDER takes those that PEFT saves"},
      {"--lora-paths a=b a=c", "--lora-modules: two adapters are called \"a\""},
      {"--max-loras 1 --lora-modules a=b c=d", "--lora-modules names 2 adapters; --max-loras 1 holds fewer"},
      {"--enable-lora --dp-size 2", "--max-loras 4: LoRA adapters are loaded into one replica yet"},
      {"--enable-hierarchical-cache", "device's memory alone"},
      {"--chunked-prefill-size 0", "allowed: 1 to 1048576, or -1"},
      {"--chunked-prefill-size -2", "allowed: -1 to"},
      {"--schedule-policy priority", "--enable-priority-scheduling"},
      {"--schedule-policy routing-key", "allowed: fcfs, lpm, random, dfs-weight, lof"},
      {"--enable-priority-scheduling --schedule-policy lpm", "allowed: fcfs, lof"},
      {"--tool-call-parser inkling", "allowed: auto, none, hermes, qwen, qwen25, llama3, llama3_json, "},
      {"--reasoning-parser inkling", "allowed: auto, none, qwen3, qwen3-thinking, deepseek-r1, deepseek_r1, "},
      {"--chat-template qwen2-vl", "allowed: a Jinja file, chatml, llama-2"},
      {"--chat-template /proc/self/nothing.json", "allowed: a Jinja file, chatml, llama-2"},
      {"--json-model-override-args '[1]'", "a JSON object is expected"},
      {"--json-model-override-args '{'", "--json-model-override-args"},
      {"--radix-eviction-policy lfu", "allowed: lru"},
      {"--cuda-graph-backend-prefill full", "allowed: breakable, tc_piecewise, disabled"},
      {"--no-such-flag", "--no-such-flag is not a flag of \"serve\""},
  };
  for (const auto& [line, part] : cases) {
    SCOPED_TRACE(line);
    const Outcome o = check(line);
    EXPECT_EQ(o.exit_code, 2) << o.err;
    EXPECT_EQ(o.err.find('\n'), o.err.size() - 1) << o.err;
    EXPECT_TRUE(holds(o.err, part)) << o.err;
  }
}

// Nothing is silent: each flag that changes nothing is named with what is in effect.
TEST(LaunchLines, EachHarmlessFlagIsANotice) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--skip-server-warmup", "--skip-server-warmup: "},
      {"--stream-interval 8", "--stream-interval 8: every token is sent as it comes; effective: 1"},
      {"--log-requests", "--log-requests: --access-log"},
      {"--enable-metrics", "--enable-metrics: /metrics is always there"},
      {"--trust-remote-code", "no code from a model is ever run"},
      {"--moe-a2a-backend auto", "auto: ranks exchange the results of all rows of their experts; effective: none"},
      {"--enable-priority-scheduling", "preempts running ones beyond a difference of 10"},
      {"--priority-scheduling-preemption-threshold 5", "no effect without --enable-priority-scheduling"},
      {"--schedule-policy lpm --disable-radix-cache", "effective: fcfs"},
      {"--disable-decode-cuda-graph", "--graph-decode off"},
      {"--cuda-graph-backend-decode tc_piecewise",
       "--cuda-graph-backend-decode tc_piecewise: --graph-decode piecewise"},
  };
  for (const auto& [line, part] : cases) {
    const Outcome o = check(line);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_TRUE(holds(o.err, "notice: ") && holds(o.err, part)) << line << "\n" << o.err;
  }
}

TEST(LaunchLines, TheParsersOfSGLangsPagesAreTaken) {
  for (const char* name : {"deepseekv3", "mistral", "qwen", "qwen25", "qwen3_coder", "llama3", "pythonic", "hermes",
                           "glm45", "kimi_k2", "minimax-m2", "cohere_command4", "hunyuan"})
    EXPECT_EQ(check(fmt::format("--tool-call-parser {}", name)).exit_code, 0) << name;
  for (const char* name : {"deepseek-r1", "deepseek-v3", "qwen3", "qwen3-thinking", "kimi", "minimax"})
    EXPECT_EQ(check(fmt::format("--reasoning-parser {}", name)).exit_code, 0) << name;
  for (const char* name : {"chatml", "llama-2"})
    EXPECT_EQ(check(fmt::format("--chat-template {}", name)).exit_code, 0) << name;
}

TEST(LaunchLines, TheDocumentationNamesEveryFlag) {
  const std::string page = content_of(std::string(REPRISE_SOURCE_DIR) + "/docs/configuration.md");
  for (const settings::Setting& s : settings::table()) {
    std::istringstream names(settings::flag_names(s));
    for (std::string name; std::getline(names, name, ',');)
      if (name[0] == '-') EXPECT_TRUE(holds(page, "`" + name + "`")) << name;
  }
}

}  // namespace
}  // namespace reprise::apps::launch_lines_test
