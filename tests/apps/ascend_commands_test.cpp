// Commands on --device ascend over the simulator: what a person sees without a card.
#include <algorithm>

#include "run_binary.h"

namespace reprise::apps::ascend_commands_test {
namespace {

const std::string kSim = " --device ascend --ascend-runtime sim ";

TEST(AscendDoctor, SaysVersionsAndTestsTheDevice) {
  const OrderedJson j = json_of(run_binary("doctor --json --threads 1" + kSim, "ASCEND_SIM_SOC=Ascend910B2"));
  ASSERT_TRUE(j.contains("self_test")) << j;
  EXPECT_EQ(j["device"]["isa"], "Ascend910B2");
  std::string notes;
  for (const auto& n : j["device"]["notes"]) notes += n.get<std::string>() + "\n";
  for (const char* part :
       {"CANN: 9.1.0\n", "driver: 25.0.RC1\n", "HCCL: 9.1.0; several ranks need it", "collectives not there: none\n",
        "functions not there: none\n", "operators not there: none\n"})
    EXPECT_TRUE(holds(notes, part)) << part << "\n" << notes;
  ASSERT_GE(j["self_test"]["checks"].size(), 11u);
  for (const auto& c : j["self_test"]["checks"]) EXPECT_EQ(c["result"], "pass") << c;
  const double eager = j["self_test"]["times_us"]["a launch by itself"],
               replayed = j["self_test"]["times_us"]["a launch in a graph"];
  EXPECT_GT(replayed, 0);
  EXPECT_GT(eager, replayed) << "the model's launches cost the host more than a graph's tasks the device";
}

// CANN 8.1 has fewer operators, and each line says what that means.
TEST(AscendDoctor, AnOldRuntimeIsNamedPieceByPiece) {
  const Outcome o = run_binary("doctor --threads 1" + kSim, "ASCEND_SIM_CANN=8.1");
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  for (const char* part : {"CANN: 8.1.RC1", "self-test", "pass  memory", "a launch in a graph"})
    EXPECT_TRUE(holds(o.out, part)) << part << "\n" << o.out;
  EXPECT_FALSE(holds(o.out, "FAIL")) << o.out;
}

// A refusal is known before anything is answered, and the log has its words and what runs instead.
TEST(AscendGenerate, WhatAnOldCannRefusesIsToldAtTheStart) {
  const std::string run =
      "generate --prompt-ids 5,6,7,8 --max-new-tokens 8 --ignore-eos --max-total-tokens 128 "
      "--max-running-requests 2 --dtype float16 --model-path " +
      model_folder("llama_mha_untied") + kSim;
  const Outcome now = run_binary(run), old = run_binary(run, "ASCEND_SIM_CANN=8.5");
  EXPECT_EQ(now.exit_code, 0) << now.err;
  EXPECT_EQ(old.exit_code, 0) << old.err;
  EXPECT_EQ(now.out, old.out);
  EXPECT_FALSE(holds(now.err, "runs instead of")) << now.err;
  EXPECT_TRUE(holds(old.err,
                    "notice: ascend.paged_attention_rows.prompts_one_by_one runs instead of "
                    "ascend.paged_attention_rows: "))
      << old.err;
  EXPECT_TRUE(holds(old.err, "attention-joined-")) << old.err;
}

// The operators of November 2025 let at most 64 heads share one of keys, in the fused operator and in the pair before
// it alike (the check stands in the tilings of the pair). It is asked before anything is served, in the vendor's words.
TEST(AscendGenerate, HeadsThatShareOneOfKeys) {
  const auto run = [](int heads, const char* cann) {
    return run_binary(
        fmt::format("generate --prompt-ids 5,6,7 --max-new-tokens 4 --ignore-eos --max-total-tokens 128 "
                    "--max-running-requests 1 --graph off --dtype bfloat16 --load-format dummy "
                    "--override num_attention_heads={} --override num_key_value_heads=1 --override head_dim=16 "
                    "--model-path {}{}",
                    heads, model_folder("llama_mha_untied"), kSim),
        fmt::format("ASCEND_SIM_CANN={}", cann));
  };
  EXPECT_EQ(run(64, "8.5").exit_code, 0) << run(64, "8.5").err;
  EXPECT_EQ(run(65, "9.1").exit_code, 0) << run(65, "9.1").err;
  const Outcome refused = run(65, "8.5");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.out, "");
  for (const char* part : {"attention-ratio", "At most 64 query heads share a key head", "65 heads over 1",
                           "ascend.paged_attention_rows.pair"})
    EXPECT_TRUE(holds(refused.err, part)) << part << "\n" << refused.err;
}

// A named runtime of Ascend's asks for that device; elsewhere REPRISE_DEVICE says what auto means.
TEST(DeviceAuto, FollowsTheRuntimeAndTheEnvironment) {
  const std::string run =
      "generate --prompt-ids 5,6 --max-new-tokens 2 --ignore-eos --max-total-tokens 128 "
      "--max-running-requests 2 --model-path " +
      model_folder("llama_mha_untied");
  EXPECT_TRUE(holds(run_binary(run).err, "llama_mha_untied: cpu,")) << run_binary(run).err;
  const Outcome simulated = run_binary(run + " --ascend-runtime sim");
  EXPECT_TRUE(holds(simulated.err, "llama_mha_untied: ascend, bf16")) << simulated.err;
  const Outcome wrong = run_binary(run, "REPRISE_DEVICE=tpu");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(holds(wrong.err, "REPRISE_DEVICE")) << wrong.err;
  EXPECT_TRUE(holds(wrong.err, "cpu")) << wrong.err;
}

TEST(AscendDoctor, AFailureIsALineAndTheExitCode) {
  const Outcome o = run_binary("doctor --threads 1" + kSim, "ASCEND_SIM_FAULT=kernel:aclnnAdd:1");
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_TRUE(holds(o.out, "FAIL  computation")) << o.out;
  EXPECT_TRUE(holds(o.out, "507015")) << o.out;
  EXPECT_TRUE(holds(o.err, "the self-test failed: computation")) << o.err;
}

TEST(AscendDoctor, WhatNeedsResultsIsSkippedWhereNothingIsComputed) {
  const Outcome o = run_binary("doctor --threads 1" + kSim, "ASCEND_SIM_COMPUTE=0");
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_TRUE(holds(o.out, "skip  computation")) << o.out;
}

// Modelled time, so it is the same in every run; parts are several launches, and cost more than one.
TEST(AscendBenchOps, FusedOpsBesideTheirPartsInModelledTime) {
  const std::string command = "bench ops --json --model Qwen3-0.6B --dtype bfloat16 --tokens 1,16 --filter ";
  int rows = 0;
  for (const char* op : {"add_rms_norm", "add_rms_norm_quant_dynamic", "silu_mul", "silu_mul_quant"}) {
    const OrderedJson j = json_of(run_binary(command + op + kSim));
    EXPECT_EQ(j["time"], "modelled time, not measured on a device");
    EXPECT_FALSE(j["clock_note"].empty());
    for (const auto& r : j["rows"]) {
      ++rows;
      EXPECT_EQ(r["op"], op);
      EXPECT_GT(r["fused_us"], 2) << "a replay is timed to its end, and no kernel starts in less";
      EXPECT_LT(r["ratio"], 1) << r;
      EXPECT_LT(r["eager_ratio"], 1) << r;
      EXPECT_GT(r["eager_fused_us"], r["fused_us"]) << "a launch costs the host more than the device";
      EXPECT_FALSE(r.contains("limit_us")) << "nothing of this machine says anything about that one";
    }
    OrderedJson skipped = json_of(run_binary(command + op + kSim, "ASCEND_SIM_COMPUTE=0"))["rows"];
    ASSERT_EQ(skipped.size(), j["rows"].size());
    for (size_t i = 0; i < skipped.size(); ++i)
      for (const char* key : {"fused_us", "unfused_us", "eager_fused_us", "eager_unfused_us"})
        EXPECT_NEAR(skipped[i][key].get<double>(), j["rows"][i][key].get<double>(), 1e-6)
            << "whether it computes or not";
  }
  EXPECT_EQ(rows, 4 * 2);
  const Outcome none = run_binary(command + "split_qk_norm_rope" + kSim);
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_TRUE(holds(none.err, "nothing could be measured")) << none.err;
}

TEST(AscendDrafts, HaveCapturesOfTheirOwn) {
  const OrderedJson j = json_of(
      run_binary(fmt::format("graph explain --json --log-level error --dtype bfloat16 --max-running-requests 8 "
                             "--graph-prefill-sizes 16 --speculative-algorithm NGRAM --speculative-num-draft-tokens 4 "
                             "--speculative-max-rows 16 --model-path {}{}",
                             model_folder("qwen3_untied"), kSim)));
  EXPECT_EQ(j["sizes"]["verify"], OrderedJson({2, 4, 6, 8, 10, 12, 14, 16}));  // 8 times 2 rows, 4 times 4
  ASSERT_EQ(j["queues"]["phases"].size(), 3u);
  EXPECT_EQ(j["queues"]["phases"][2]["phase"], "verify");
  EXPECT_EQ(j["queues"]["phases"][2]["held"], 8 * j["queues"]["phases"][0]["queues_of_a_size"].get<int>());
  const OrderedJson& last = j["decisions"].back();
  EXPECT_EQ(last["shape"], "verify, 2 to 16 rows");
  EXPECT_EQ(last["mode"], "whole");
  EXPECT_TRUE(holds(last["reason"], "batches up to 8 times 2, 4 rows; activations ")) << last;
}

struct Queues {
  int layers;
  const char* stack;
  int decode, prefill;  // of one size
  size_t decode_kept, prefill_kept;
};

class AscendQueues : public testing::TestWithParam<Queues> {};

TEST_P(AscendQueues, AreCountedBeforeTheyAreTaken) {
  const Queues& q = GetParam();
  const Outcome o = run_binary(
      fmt::format("graph explain --json --log-level error --load-format dummy --dtype bfloat16 --graph-warmups 0 "
                  "--max-running-requests 256 --chunked-prefill-size 4096 --max-total-tokens 8192 "
                  "--override num_hidden_layers={} --override head_dim=128 --model-path {}{}",
                  q.layers, model_folder("qwen3_untied"), kSim),
      fmt::format("ASCEND_SIM_COMPUTE=0 ASCEND_SIM_RACES=0 ASCEND_SIM_STACK={}", q.stack));
  const OrderedJson j = json_of(o);
  EXPECT_FALSE(holds(o.out + o.err, "207008") || holds(o.out + o.err, "207005"));
  ASSERT_TRUE(j.contains("queues")) << j;
  const OrderedJson& table = j["queues"];
  ASSERT_EQ(table["phases"].size(), 2u);
  const OrderedJson &decode = table["phases"][0], &prefill = table["phases"][1];
  EXPECT_EQ(table["held_for_life"], std::string(q.stack) == "old");
  EXPECT_EQ(table["used"].get<int>(), decode["held"].get<int>() + prefill["held"].get<int>());
  EXPECT_LE(table["used"], table["total"]);
  EXPECT_EQ(decode["queues_of_a_size"], q.decode);
  EXPECT_EQ(prefill["queues_of_a_size"], q.prefill);
  EXPECT_EQ(decode["kept"].size(), q.decode_kept);
  EXPECT_EQ(prefill["kept"].size(), q.prefill_kept);
  EXPECT_EQ(prefill["kept"].front(), 4) << "the smallest gains most";
  EXPECT_EQ(prefill["kept"].back(), 4096);
  EXPECT_EQ(prefill["left_out"].size(), 58 - q.prefill_kept);
  for (const auto& d : prefill["left_out"])
    EXPECT_TRUE(holds(d["reason"], fmt::format("room for {} of 58 sizes", q.prefill_kept))) << d;
}

INSTANTIATE_TEST_SUITE_P(Layers, AscendQueues,
                         testing::Values(Queues{36, "old", 1, 36, 36, 49}, Queues{61, "old", 2, 61, 36, 28},
                                         Queues{94, "old", 2, 94, 36, 18}, Queues{36, "new", 1, 36, 36, 58}),
                         [](const auto& info) { return fmt::format("{}_{}", info.param.layers, info.param.stack); });

}  // namespace
}  // namespace reprise::apps::ascend_commands_test
