// `reprise bench ops` and `bench startup`: the form of what they say. Times are never judged here.
#include "measurement/op_cases.h"
#include "run_binary.h"

namespace reprise::apps::bench_test {
namespace {

using Words = std::vector<std::string>;

TEST(BenchOneBatch, DrawsTokensWhereTheDeviceCan) {
  const std::string command = "bench one-batch --json --input-len 5 --output-len 4 --repeat 1 --batch-size 1,3 " +
                              std::string("--temperature 0.8 --threads 2 --model-path ") + model_folder("qwen3_tied");
  const OrderedJson report = json_of(run_binary(command));
  ASSERT_EQ(report["rows"].size(), 2u);
  for (const auto& row : report["rows"]) EXPECT_EQ(row["temperature"], 0.8);
  const Outcome refused = run_binary(command + " --device ascend --ascend-runtime sim");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("ascend has no kernel that draws tokens"), std::string::npos) << refused.err;
}

TEST(BenchOneBatch, SyntheticDraftsSayWhatTheyAre) {
  const std::string command =
      "bench one-batch --input-len 5 --output-len 24 --repeat 2 --batch-size 2 --threads 2 --model-path " +
      model_folder("qwen3_tied") + " --speculative-synthetic-acceptance ";
  const OrderedJson row = json_of(run_binary(command + "0.75 --speculative-adaptive off --json"))["rows"][0];
  EXPECT_EQ(row["synthetic_acceptance"], 0.75);
  EXPECT_NEAR(row["speed_up"].get<double>(),
              row["decode_tok_s"].get<double>() / row["plain_decode_tok_s"].get<double>(), 1e-9);
  int64_t sum = 0;
  for (const auto& count : row["accepted_per_position"]) sum += count.get<int64_t>();
  EXPECT_EQ(row["accepted_per_position"].size(), 7u);
  EXPECT_EQ(sum, row["accepted_tokens"]);
  EXPECT_GT(sum, 20);
  EXPECT_LT(sum, row["draft_tokens"]);
  EXPECT_NE(run_binary(command + "0.5").out.find("synthetic: drafts are the known answer"), std::string::npos);
  for (const auto& [line, part] :
       {std::pair(command + "0.5 --speculative-algorithm NEXTN", "allowed with it: NGRAM, SUFFIX, none"),
        {std::string("serve --speculative-synthetic-acceptance 0.5"), "--speculative-synthetic-acceptance"}}) {
    const Outcome refused = run_binary(line);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find(part), std::string::npos) << refused.err;
  }
}

TEST(BenchOps, EveryFusedOpHasRowsAndSaysTheSameAsItsParts) {
  // Differing bits end the command with an error. One odd number of rows among the usual ones.
  const OrderedJson j =
      json_of(run_binary("bench ops --json --model launch-bound --tokens 1,5 --repeat 1 --threads 2"));
  EXPECT_EQ(keys_of(j), (Words{"limits", "original_ratios", "not_here", "rows"}));
  EXPECT_EQ(j["original_ratios"]["split_qk_norm_rope"], 0.403);
  EXPECT_EQ(j["original_ratios"]["add_rms_norm_quant_static"], 0.655);
  EXPECT_GT(j["limits"]["launch_us"], 0);
  const nn::FusedOps fused = nn::fused_ops();
  for (const std::string& op : measurement::benchmarked_ops(fused))
    for (const char* dtype : {"bf16", "f16", "f32"}) {
      SCOPED_TRACE(op + " " + dtype);
      int rows = 0;
      for (const auto& r : j["rows"]) {
        if (r["op"] != op || r["dtype"] != dtype) continue;
        ++rows;
        EXPECT_TRUE(r["tokens"] == 1 || r["tokens"] == 5);
        EXPECT_FALSE(r["shape"].get<std::string>().empty());
        EXPECT_GT(r["fused_us"], 0);
        EXPECT_GT(r["limit_us"], 0);
        if (fused.find(op)) {
          EXPECT_GT(r["unfused_us"], 0);
          EXPECT_NEAR(r["ratio"].get<double>(), r["fused_us"].get<double>() / r["unfused_us"].get<double>(), 1e-9);
        } else {
          EXPECT_TRUE(r["unfused_us"].is_null() && r["ratio"].is_null());
        }
      }
      // Ops of accelerators alone have a reason instead.
      const nn::FusedOp* known = fused.find(op);
      if (op == "grouped_silu_mul_quant" || op == "add_rms_norm_quant_divided" || op == "linear_silu_mul" ||
          (known && known->split_caches)) {
        EXPECT_EQ(rows, 0);
        EXPECT_NE(j["not_here"].dump().find(op), std::string::npos) << j["not_here"];
      } else {
        EXPECT_GE(rows, 2);
      }
    }
}

TEST(BenchOps, TheTextNamesTheOriginal) {
  const Outcome o = run_binary(
      "bench ops --filter split_qk_norm_rope --dtype bfloat16 --tokens 3 --model A --repeat 1 --threads 1 --isa "
      "baseline");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  for (const char* word : {"split_qk_norm_rope bf16, SmolLM2-135M: 9/3 heads of 64", "0.403", "parts us",
                           "limits here: baseline, 1 thread, L1"})
    EXPECT_TRUE(holds(o.out, word)) << word << "\n" << o.out;
  EXPECT_FALSE(holds(o.out, "split_qk_norm_rope_kv")) << "a whole name is that op alone";
}

TEST(BenchOps, WrongValuesNameTheAllowedOnes) {
  const Outcome filter = run_binary("bench ops --filter rms_nrom");
  EXPECT_EQ(filter.exit_code, 2);
  for (const char* op : {"split_qk_norm_rope_kv", "lm_head_argmax", "linear_add", "paged_attention"})
    EXPECT_TRUE(holds(filter.err, op)) << filter.err;
  for (const auto& [flags, part] : std::vector<std::pair<std::string, std::string>>{
           {"--dtype int8", "allowed: all, bfloat16"},
           {"--tokens 1,0", "allowed: 1 to 4096"},
           {"--model C", "allowed: all, SmolLM2-135M, Qwen3-0.6B, launch-bound"},
           {"--model C", "gpt-oss-20b"},
           {"--model C", "Granite-3.3-2B, A, B, L, M, T"},
           {"--isa sse9", "auto, baseline"},
           {"--repeat 0", "allowed: 1 to"}}) {
    const Outcome o = run_binary("bench ops " + flags);
    EXPECT_EQ(o.exit_code, 2) << flags;
    EXPECT_TRUE(holds(o.err, part)) << o.err;
  }
}

// The ops of a library that nobody here built in: on their examples, and where a model holds them.
TEST(BenchOps, AnExtensionIsMeasuredOnItsExamplesOrInAModel) {
  const std::string library = std::string(" --extension ") + REPRISE_EXTENSIONS + "slice_mul.so";
  const std::string quick = "bench ops --json --repeat 1 --threads 2 --tokens 1,5" + library;
  const OrderedJson examples = json_of(run_binary(quick));
  ASSERT_EQ(examples["rows"].size(), 2u) << examples;
  EXPECT_EQ(examples["rows"][1]["model"], "example");
  EXPECT_EQ(examples["rows"][1]["shape"], "[5,22] [5,68]");
  EXPECT_GT(examples["rows"][1]["ratio"], 0);
  EXPECT_TRUE(holds(examples["not_here"].dump(), "slice_mul is written for f32")) << examples["not_here"];
  const OrderedJson in_model =
      json_of(run_binary(quick + " --model-path " + std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/qwen3_tied"));
  ASSERT_EQ(in_model["rows"].size(), 2u) << in_model;
  EXPECT_EQ(in_model["rows"][1]["model"], "qwen3_tied");
  EXPECT_EQ(in_model["rows"][1]["shape"], "[5,95] [5,190]");
  EXPECT_TRUE(holds(in_model["not_here"].dump(), "slice_mul bf16 in ")) << in_model["not_here"];
  for (const auto& [flags, part] : std::vector<std::pair<std::string, std::string>>{
           {"--model-path somewhere", "--model-path needs --extension"},
           {"--filter rms_norm" + library, "fits no op; allowed: a part of one of slice_mul"},
           {"--extension none.so", "none.so"}}) {
    const Outcome o = run_binary("bench ops " + flags);
    EXPECT_NE(o.exit_code, 0) << flags;
    EXPECT_TRUE(holds(o.err, part)) << o.err;
  }
}

TEST(BenchStartup, ColdAndWarm) {
  const Folder folder;
  const OrderedJson j =
      json_of(run_binary("bench startup --json --repeat 2 --threads 2 --model-path " + model_folder("qwen3_tied"),
                         "REPRISE_CACHE=" + folder.path()));
  EXPECT_EQ(keys_of(j), (Words{"model", "weights_in_page_cache_before", "evicted", "rows"}));
  ASSERT_EQ(j["rows"].size(), 2u);
  EXPECT_EQ(j["rows"][0]["start"], "cold");
  EXPECT_EQ(j["rows"][1]["start"], "warm");
  for (const auto& r : j["rows"]) {
    EXPECT_EQ(keys_of(r), (Words{"start", "total_s", "load_s", "compile_s", "capture_s", "ttft_s",
                                 "weights_in_page_cache", "runs"}));
    EXPECT_EQ(r["runs"], 2);
    for (const char* key : {"load_s", "compile_s", "capture_s", "ttft_s"}) EXPECT_GT(r[key], 0) << key;
    EXPECT_GE(r["total_s"].get<double>(), r["load_s"].get<double>() + r["compile_s"].get<double>());
    EXPECT_GT(r["weights_in_page_cache"], 0) << "they were read a moment ago";
    EXPECT_LE(r["weights_in_page_cache"], 1);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "its caches were left behind";
}

TEST(BenchStartup, SaysWhyAStartFailed) {
  const Folder folder;
  const std::string cache = "REPRISE_CACHE=" + folder.path();
  EXPECT_TRUE(holds(run_binary("bench startup", cache).err, "reprise pull smollm2")) << "the default model";
  const Outcome missing = run_binary("bench startup --model-path /no/such/model", cache);
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_TRUE(holds(missing.err, "generate ended with 1")) << missing.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const Outcome unwritable =
      run_binary("bench startup --model-path " + model_folder("qwen3_tied"), "REPRISE_CACHE=/proc/none");
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_TRUE(holds(unwritable.err, "REPRISE_CACHE")) << unwritable.err;
}

}  // namespace
}  // namespace reprise::apps::bench_test
