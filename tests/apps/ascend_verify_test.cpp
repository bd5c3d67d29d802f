// `graph verify` and --verify-replay over the simulator, whose fused operators round less often than their parts: sound
// models pass in bf16 and fp16, dense and routed, and every planted fault is found all the same. And what a person sees
// who gives no dtype and no sizes.
#include "run_binary.h"
#include "wrong_rewrite.h"

namespace reprise::apps::ascend_verify_test {
namespace {

const std::string kSim = " --device ascend --ascend-runtime sim ";
// Few captures: what they cost here is arithmetic.
const std::string kSmall =
    kSim +
    "--max-running-requests 4 --chunked-prefill-size 24 --context-length 64 --max-total-tokens 1024 "
    "--graph-prefill-sizes 8,24 ";
// One alone is padded as well: what a padding row does in a graph whose size is frozen needs a row for it.
const std::string kPadded = "--graph-decode-sizes 4 ", kExact = "--graph-decode-sizes 1,4 ";

struct TinyModel {
  const char* name;
  const char* dtype;
  const char* inexact;
  const char* folder = "models";
};

std::string model_flags(const TinyModel& m) {
  return fmt::format("--model-path {}/tests/data/{}/{} --dtype {} ", REPRISE_SOURCE_DIR, m.folder, m.name, m.dtype);
}

class AscendVerify : public testing::TestWithParam<TinyModel> {};

TEST_P(AscendVerify, SoundModelsPassWithinTheBound) {
  const OrderedJson j =
      json_of(run_binary("graph verify --json --quick --log-level error " + model_flags(GetParam()) + kSmall + kExact));
  EXPECT_EQ(j["mismatches"], 0) << j;
  ASSERT_TRUE(j.contains("fusions")) << j;
  EXPECT_TRUE(holds(j["fusions"]["inexact"].dump(), GetParam().inexact)) << j["fusions"];
  EXPECT_GT(j["fusions"]["rows"], 10);
  EXPECT_GT(j["fusions"]["largest"], 0) << "it must round otherwise, or the bound is not needed";
  EXPECT_LT(j["fusions"]["bound"], 0.5) << "what is computed wrongly is as far off as its own size";
  // Sizes freeze in every mode of this device.
  EXPECT_EQ(j["modes"].size(), 6u);
  EXPECT_TRUE(holds(j["modes"].dump(), "eager, exact passes")) << j["modes"];
}

INSTANTIATE_TEST_SUITE_P(
    Models, AscendVerify,
    testing::Values(TinyModel{"llama_gqa3_tied", "bfloat16", "silu_mul"},
                    TinyModel{"qwen3_tied", "float16", "silu_mul"}, TinyModel{"mixtral_top2", "bfloat16", "silu_mul"},
                    TinyModel{"qwen3_moe_norm", "float16", "silu_mul"},
                    TinyModel{"compressed_dynamic", "bfloat16", "silu_mul_quant", "models_quantised"}),
    [](const auto& info) { return fmt::format("{}_{}", info.param.name, info.param.dtype); });

// A model with states: a check reads a state twice. Its rule is many launches, so sizes are small.
TEST(AscendVerifyStates, ASoundModelPassesWithinTheBound) {
  const OrderedJson j = json_of(
      run_binary("graph verify --json --quick --log-level error " + model_flags({"qwen3_5", "bfloat16", ""}) + kSim +
                 "--max-running-requests 2 --chunked-prefill-size 8 --context-length 16 --max-total-tokens 256 "
                 "--graph-prefill-sizes 8 --graph-decode-sizes 2"));
  EXPECT_EQ(j["mismatches"], 0) << j;
  EXPECT_GT(j["sizes_checked"], 0);
  EXPECT_EQ(j["modes"].size(), 6u);
}

class AscendVerifyFault : public testing::TestWithParam<std::string> {};
class AscendReplayFault : public testing::TestWithParam<std::string> {};

TEST_P(AscendVerifyFault, IsFoundByVerify) {
  const TinyModel m{"qwen3_tied", "bfloat16", ""};
  const Outcome o = run_binary(fmt::format("graph verify --json --quick --log-level error --inject-fault {} {}{}{}",
                                           GetParam(), model_flags(m), kSmall, kPadded));
  EXPECT_EQ(o.exit_code, 1);
  auto json = parse_ordered_json(o.out, "standard output");
  ASSERT_TRUE(json.is_ok()) << o.out << o.err;
  EXPECT_GT((*json)["mismatches"], 0);
}

TEST_P(AscendReplayFault, IsFoundWhileGenerating) {
  const Folder folder;
  const TinyModel m{"llama_mha_untied", "bfloat16", ""};  // does not repeat its tokens
  const std::string command =
      "generate --prompt-ids 5,6,7,8,9 --max-new-tokens 8 --ignore-eos --temperature 0 --verify-replay 1 " +
      model_flags(m) + kSmall + kPadded + "--dump-dir " + folder.path() + " ";
  const Outcome sound = run_binary(command);
  EXPECT_EQ(sound.exit_code, 0) << sound.err;
  EXPECT_FALSE(holds(sound.err, "out of service")) << sound.err;
  EXPECT_TRUE(holds(sound.err, "not exact on this device: silu_mul")) << sound.err;
  const Outcome o = run_binary(command + "--inject-fault " + GetParam());
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(holds(o.err, "out of service")) << o.err;
  EXPECT_EQ(o.out, sound.out) << "the right answer all the same";
}

std::string kind_of(const testing::TestParamInfo<std::string>& info) {
  return info.param.substr(0, info.param.find_first_of("-@"));
}

// Those that leave a wrong answer behind, and those that are reported by what fails.
const auto kSilent = testing::Values("padding-leak@3", "stale-input@4", "wrong-length@3", "bit-flip@3");
INSTANTIATE_TEST_SUITE_P(Silent, AscendVerifyFault, kSilent, kind_of);
INSTANTIATE_TEST_SUITE_P(Reported, AscendVerifyFault, testing::Values("alloc@1", "kernel-error@5"), kind_of);
INSTANTIATE_TEST_SUITE_P(Silent, AscendReplayFault, kSilent, kind_of);

// A rewrite that computes something else is far outside the bound.
TEST(AscendVerifyPasses, AWrongRewriteIsFound) {
  const Folder folder;
  folder.write("wrong.pass", wrong_rewrite("bf16"));
  const TinyModel m{"qwen3_tied", "bfloat16", ""};
  const Outcome o = run_binary("graph verify --json --quick --log-level error --pass-file " + (folder / "wrong.pass") +
                               " " + model_flags(m) + kSmall + kExact);
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_TRUE(holds(o.out, "eager, exact passes")) << o.out << o.err;
}

// A6: no dtype and no sizes given. The checkpoint is fp32, which the vendor's attention does not know.
TEST(AscendDefaults, AutoTakesADtypeWithKernelsAndCapturesAtOnce) {
  const std::string command =
      "generate --prompt-ids 5,6,7 --max-new-tokens 3 --ignore-eos --override dtype=float32 "
      "--model-path " +
      model_folder("qwen3_tied") + kSim;
  const Outcome o = run_binary(command);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(holds(o.err,
                    "notice: --dtype auto: ascend has no kernels for this model in float32; effective: "
                    "bfloat16"))
      << o.err;
  EXPECT_TRUE(holds(o.err, "no warm-ups before captures")) << o.err;
  const Outcome named = run_binary(command + "--dtype float32");
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_TRUE(holds(named.err,
                    "error: --dtype float32: ascend has no kernels for this model in it; allowed: auto, "
                    "bfloat16, float16\n"))
      << named.err;
}

}  // namespace
}  // namespace reprise::apps::ascend_verify_test
