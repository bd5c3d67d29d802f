// Other systems' graph flags, one by one: what each means here, which one wins, and every error (F04, F08, F09, F28,
// F32, F33, F34, F46).
#include "api/graph_aliases.h"

#include <gtest/gtest.h>

#include "api/device_choice.h"
#include "settings/setting.h"

namespace reprise::api::graph_aliases_test {

namespace {

constexpr StepLimits kLimits{64, 2048};

bool said(const GraphMeaning& m, const std::string& part) {
  for (const Notice& n : m.notices)
    if (settings::as_flags(n.text).find(part) != std::string::npos) return true;
  return false;
}

GraphMeaning ok(const GraphWords& native, const GraphAliases& aliases) {
  auto m = resolve(native, aliases, kLimits);
  EXPECT_TRUE(m.is_ok()) << m.status().message();
  return m.is_ok() ? *m : GraphMeaning();
}

std::string failure(const GraphWords& native, const GraphAliases& aliases) {
  auto m = resolve(native, aliases, kLimits);
  return m.is_ok() ? "no error" : settings::as_flags(m.status().message());
}

GraphAliases json(std::string text) { return {.compilation_config = std::move(text)}; }
GraphAliases json_by_phase(std::string text) { return {.cuda_graph_config = std::move(text)}; }

TEST(GraphAliases, NothingSaidIsNothingSet) {
  const GraphMeaning m = ok({}, {});
  EXPECT_EQ(m.words.policy, "auto");
  EXPECT_FALSE(m.words.decode || m.words.prefill || m.words.decode_sizes || m.words.prefill_sizes || m.words.passes ||
               m.words.split_ops || m.words.plan_cache);
  EXPECT_EQ(m.words.fused_decode_max, 0);
  EXPECT_TRUE(m.notices.empty());
}

// Each alias, the native setting that it is, and the word about it.
TEST(GraphAliases, EachFlagIsOneNativeSetting) {
  struct Row {
    GraphAliases given;
    std::optional<std::string> GraphWords::*setting;
    std::string value, notice;
  };
  const std::vector<Row> rows{
      {{.disable_cuda_graph = true}, &GraphWords::decode, "off", "--disable-cuda-graph: --graph-decode off"},
      {{.cuda_graph_bs = {"1", "2", "9"}}, &GraphWords::decode_sizes, "1,2,9", "--cuda-graph-bs: --graph-decode-sizes"},
      {{.cuda_graph_bs = {"9,1", "2"}}, &GraphWords::decode_sizes, "1,2,9", "1,2,9"},
      {{.cuda_graph_max_bs = 20}, &GraphWords::decode_sizes, "1,2,4,8,12,16,20", "--cuda-graph-max-bs 20"},
      {{.torch_compile = true}, &GraphWords::passes, "all", "--enable-torch-compile: --passes all"},
      {{.enable_piecewise = true}, &GraphWords::prefill, "piecewise", "--graph-prefill piecewise"},
      {{.disable_piecewise = true}, &GraphWords::prefill, "off", "--graph-prefill off"},
      {{.piecewise_tokens = {"4", "128"}}, &GraphWords::prefill_sizes, "4,128", "--graph-prefill-sizes 4,128"},
      {{.piecewise_max_tokens = 18}, &GraphWords::prefill_sizes, "4,8,12,16,18", "--piecewise-cuda-graph-max-tokens"},
      {{.piecewise_npu_decode = true}, &GraphWords::decode, "piecewise", "--graph-decode piecewise"},
      {json(R"({"compiler": "eager"})"), &GraphWords::decode, "off", "--compilation-config: --graph-decode off"},
      {json(R"({"compiler": "npugraph"})"), &GraphWords::decode, "whole", "--graph-decode whole"},
      {json(R"({"compiler": "piecewise"})"), &GraphWords::decode, "piecewise", "--graph-decode piecewise"},
      {json(R"({"compiler": "npugraph_ex"})"), &GraphWords::decode, "whole", "--graph-decode whole"},
      {json(R"({"compiler": "npugraph_ex"})"), &GraphWords::plan_cache, "auto", "--plan-cache auto"},
      {json(R"({"capture_sizes": [8, 1, 8]})"), &GraphWords::decode_sizes, "1,8", "--graph-decode-sizes 1,8"},
      {json(R"({"splitting_ops": ["atb._npu_paged_attention"]})"), &GraphWords::split_ops, "paged_attention",
       "atb._npu_paged_attention is paged_attention here"},
      {json(R"({"splitting_ops": ["silu_mul", "sglang.unified_attention_with_output", "paged_attention"]})"),
       &GraphWords::split_ops, "silu_mul,paged_attention", "sglang.unified_attention_with_output"},
      {json(R"({"splitting_ops": ["sglang.unified_attention_with_output", "sglang.gdn_with_output"]})"),
       &GraphWords::split_ops, "paged_attention,gated_delta", "sglang.gdn_with_output is gated_delta here"},
      {json(R"({"splitting_ops": ["sglang.gdn_with_output", "sglang.unified_linear_attention_with_output"]})"),
       &GraphWords::split_ops, "gated_delta,state_space", "is gated_delta and state_space here"},
      {json(R"({"splitting_ops": ["sglang.nemotron_mamba2_with_output"]})"), &GraphWords::split_ops, "state_space",
       "sglang.nemotron_mamba2_with_output is state_space here"},
      {json(R"({"prefill": {"backend": "full"}})"), &GraphWords::prefill, "whole", "--graph-prefill whole"},
      {json_by_phase(R"({"decode": {"backend": "full"}})"), &GraphWords::decode, "whole", "--cuda-graph-config"},
      {json_by_phase(R"({"decode": {"backend": "disabled"}})"), &GraphWords::decode, "off", "--graph-decode off"},
      {json_by_phase(R"({"prefill": {"backend": "breakable"}})"), &GraphWords::prefill, "piecewise", "piecewise"},
      {json_by_phase(R"({"prefill": {"backend": "tc_piecewise", "tc_compiler": "eager"}})"), &GraphWords::prefill,
       "piecewise", "piecewise"},
      {json_by_phase(R"({"prefill": {"bs": [16, 4]}})"), &GraphWords::prefill_sizes, "4,16", "4,16"},
      {json_by_phase(R"({"decode": {"max_bs": 5}})"), &GraphWords::decode_sizes, "1,2,4,5", "decode max_bs 5"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.notice);
    const GraphMeaning m = ok({}, row.given);
    EXPECT_EQ(m.words.*row.setting, row.value);
    EXPECT_TRUE(said(m, row.notice));
  }
}

TEST(GraphAliases, SizesAboveWhatRunsAreLeftOutAndTheLargestIsAdded) {
  const GraphMeaning list = ok({}, {.cuda_graph_bs = {"8", "160", "256"}});
  EXPECT_EQ(list.words.decode_sizes, "8,64");
  EXPECT_TRUE(said(list, "at most 64"));
  EXPECT_EQ(ok({}, {.cuda_graph_bs = {"64", "65"}}).words.decode_sizes, "64");
  const GraphMeaning largest = ok({}, {.cuda_graph_max_bs = 512});
  EXPECT_EQ(largest.words.decode_sizes, "1,2,4,8,12,16,24,32,40,48,56,64");
  EXPECT_TRUE(said(largest, "effective: 64"));
  EXPECT_EQ(ok({}, json(R"({"capture_sizes": [4096]})")).words.decode_sizes, "64");
  EXPECT_EQ(ok({}, {.piecewise_tokens = {"4096"}}).words.prefill_sizes, "2048");
}

TEST(GraphAliases, AListCountsMoreThanTheLargestSize) {
  const GraphMeaning m = ok({}, {.cuda_graph_bs = {"1", "4"}, .cuda_graph_max_bs = 32});
  EXPECT_EQ(m.words.decode_sizes, "1,4");
  EXPECT_TRUE(said(m, "--cuda-graph-max-bs 32 has no effect beside --cuda-graph-bs, whose largest size is 4"));
  EXPECT_FALSE(said(ok({}, {.cuda_graph_bs = {"1", "4"}, .cuda_graph_max_bs = 4}), "no effect"));
}

TEST(GraphAliases, WithoutPaddingTheLargestSizeMeansEverySize) {
  EXPECT_EQ(ok({.padding = false}, {.cuda_graph_max_bs = 6}).words.decode_sizes, "1,2,3,4,5,6");
}

TEST(GraphAliases, JsonBeforeNativeBeforeAlias) {
  const GraphMeaning native = ok({.decode = "whole"}, {.disable_cuda_graph = true});
  EXPECT_EQ(native.words.decode, "whole");
  EXPECT_TRUE(said(native, "--disable-cuda-graph is outranked by --graph-decode whole"));
  GraphAliases both = json(R"({"compiler": "piecewise"})");
  both.disable_cuda_graph = true;
  EXPECT_EQ(ok({}, both).words.decode, "piecewise");
  const GraphMeaning all = ok({.decode = "whole"}, both);
  EXPECT_EQ(all.words.decode, "piecewise");
  EXPECT_TRUE(said(all, "--graph-decode whole is outranked by --compilation-config"));
  EXPECT_EQ(ok({.passes = "none"}, {.torch_compile = true}).words.passes, "none");
  EXPECT_EQ(ok({.decode_sizes = "3"}, json(R"({"capture_sizes": [5]})")).words.decode_sizes, "5");
  // Saying the same twice is no news.
  EXPECT_FALSE(said(ok({.decode = "piecewise"}, {.piecewise_npu_decode = true}), "outranked"));
}

TEST(GraphAliases, PlanCacheOfTheJsonKeepsTheUsersFolder) {
  const GraphAliases ex = json(R"({"compiler": "npugraph_ex"})");
  EXPECT_EQ(ok({.plan_cache = "plans"}, ex).words.plan_cache, "plans");
  EXPECT_EQ(ok({.plan_cache = "off"}, ex).words.plan_cache, "auto");
}

TEST(GraphAliases, LargerSizesRunUnfused) {
  const GraphMeaning m = ok({}, {.torch_compile = true, .torch_compile_max_bs = 16});
  EXPECT_EQ(m.words.fused_decode_max, 16);
  EXPECT_TRUE(said(m, "decode sizes above 16 run the unfused plan"));
  const GraphMeaning none = ok({.passes = "none"}, {.torch_compile_max_bs = 16});
  EXPECT_EQ(none.words.fused_decode_max, 0);
  EXPECT_TRUE(said(none, "no effect beside --passes none"));
}

TEST(GraphAliases, ContradictionsNameBothSides) {
  const std::vector<std::tuple<GraphWords, GraphAliases, std::string>> rows{
      {{},
       {.disable_cuda_graph = true, .piecewise_npu_decode = true},
       "--disable-cuda-graph and --enable-piecewise-npu-graph-decode contradict"},
      {{},
       {.enable_piecewise = true, .disable_piecewise = true},
       "--enable-piecewise-cuda-graph and --disable-piecewise-cuda-graph contradict"},
      {{.policy = "off", .decode = "whole"}, {}, "--graph off and --graph-decode whole contradict"},
      {{.policy = "off", .prefill = "piecewise"}, {}, "--graph off and --graph-prefill piecewise contradict"},
      {{.policy = "off"}, {.enable_piecewise = true}, "--graph off and --enable-piecewise-cuda-graph contradict"},
      {{.policy = "off"}, json(R"({"compiler": "npugraph"})"), "--graph off and --compilation-config contradict"},
      {{.policy = "required"}, {.disable_cuda_graph = true}, "--graph required and --disable-cuda-graph contradict"},
      {{.policy = "required", .prefill = "off"}, {}, "--graph required and --graph-prefill off contradict"},
      {{.policy = "required"}, {.piecewise_compiler = "inductor"}, "--graph required: --piecewise-cuda-graph-compiler"},
      {{.policy = "required"}, json(R"({"enable_debug_mode": true})"), "--graph required: --compilation-config"},
      {{},
       {.compilation_config = R"({"compiler": "npugraph"})",
        .cuda_graph_config = R"({"decode": {"backend": "disabled"}})"},
       "--compilation-config and --cuda-graph-config contradict"},
  };
  for (const auto& [native, aliases, words] : rows)
    EXPECT_NE(failure(native, aliases).find(words), std::string::npos) << words << "\n" << failure(native, aliases);
  EXPECT_EQ(ok({.policy = "off", .decode = "off"}, {.disable_cuda_graph = true}).words.decode, "off");
}

TEST(GraphAliases, CompilerOfPiecesIsEagerWithANotice) {
  EXPECT_TRUE(ok({}, {.piecewise_compiler = "eager"}).notices.empty());
  const GraphMeaning m = ok({}, {.piecewise_compiler = "inductor"});
  ASSERT_EQ(m.notices.size(), 1u);
  EXPECT_FALSE(m.notices[0].honoured);
  EXPECT_TRUE(said(m, "effective: eager"));
  EXPECT_NE(failure({}, {.piecewise_compiler = "triton"}).find("allowed: eager, inductor"), std::string::npos);
}

TEST(GraphAliases, WhatNeedsNothingHereIsSaid) {
  EXPECT_TRUE(said(ok({}, json(R"({"enable_debug_mode": true})")), "enable_debug_mode: addresses are fixed"));
  EXPECT_TRUE(ok({}, json(R"({"enable_debug_mode": false})")).notices.empty());
  EXPECT_TRUE(said(ok({}, json_by_phase(R"({"prefill": {"full_prefill_max_req": 4}})")), "effective: no limit"));
  EXPECT_TRUE(said(ok({}, json_by_phase(R"({"prefill": {"tc_compiler": "inductor"}})")), "effective: eager"));
  EXPECT_TRUE(said(ok({}, {.profile = true}), "--enable-profile-cuda-graph"));
}

TEST(GraphAliases, BadValuesNameTheAllowedOnes) {
  const std::vector<std::pair<GraphAliases, std::string>> rows{
      {{.cuda_graph_bs = {"1", "x"}}, "--cuda-graph-bs"},
      {{.cuda_graph_bs = {"0"}}, "numbers from 1"},
      {{.piecewise_tokens = {"1,,2"}}, "--piecewise-cuda-graph-tokens"},
      {json("{"), "--compilation-config"},
      {json("[]"), "an object was expected"},
      {json(R"({"compilr": "eager"})"), "allowed: compiler, splitting_ops, capture_sizes, enable_debug_mode"},
      {json(R"({"compiler": "inductor"})"), "allowed: eager, npugraph, piecewise, npugraph_ex"},
      {json(R"({"compiler": 1})"), "compiler must be a text"},
      {json(R"({"splitting_ops": "a"})"), "splitting_ops must be a list of op names"},
      {json(R"({"splitting_ops": [1]})"), "every entry of splitting_ops must be a text"},
      {json(R"({"capture_sizes": 8})"), "capture_sizes must be a list of sizes"},
      {json(R"({"capture_sizes": [0]})"), "a whole number from 1"},
      {json(R"({"capture_sizes": [1.5]})"), "a whole number from 1"},
      {json(R"({"enable_debug_mode": "yes"})"), "enable_debug_mode must be true or false"},
      {json(R"({"decode": {"backend": "eager"}})"), "allowed: full, breakable, tc_piecewise, disabled"},
      {json(R"({"decode": {"backend": "full"}, "compiler": "npugraph"})"), "decode and compiler say the same thing"},
      {json_by_phase(R"({"compiler": "eager"})"), "allowed: decode, prefill"},
      {json_by_phase(R"({"decode": 1})"), "--cuda-graph-config decode: an object was expected"},
      {json_by_phase(R"({"decode": {"full_prefill_max_req": 1}})"), "allowed: backend, max_bs, bs, tc_compiler"},
      {json_by_phase(R"({"prefill": {"max_bs": "8"}})"), "max_bs must be a whole number"},
      {json_by_phase(R"({"prefill": {"tc_compiler": "triton"}})"), "allowed: eager, inductor"},
  };
  for (const auto& [aliases, words] : rows)
    EXPECT_NE(failure({}, aliases).find(words), std::string::npos) << words << "\n" << failure({}, aliases);
}

std::function<const char*(const char*)> with(const std::string& name, const std::string& value) {
  return [=](const char* asked) -> const char* { return asked == name ? value.c_str() : nullptr; };
}

TEST(GraphAliases, EnvironmentOfAscendIsCheckedAndElsewhereNotNeeded) {
  for (const char* good : {"0", "1", "true", "False"}) {
    auto said = resolve_environment(with("ASCEND_USE_FIA", good), DeviceKind::Cpu);
    ASSERT_TRUE(said.is_ok()) << good;
    ASSERT_EQ(said->notices.size(), 1u);
    EXPECT_NE(said->notices.front().text.find("not needed"), std::string::npos);
  }
  for (const DeviceKind device : {DeviceKind::Cpu, DeviceKind::Ascend}) {
    for (const char* bad : {"yes", "2", "on ", "wahr"})
      EXPECT_NE(resolve_environment(with("ASCEND_USE_FIA", bad), device)
                    .status()
                    .message()
                    .find("allowed: 0, 1, true, false"),
                std::string::npos);
    auto streams = resolve_environment(with("STREAMS_PER_DEVICE", "32"), device);
    ASSERT_TRUE(streams.is_ok());
    ASSERT_EQ(streams->notices.size(), 1u);
    EXPECT_NE(streams->notices[0].text.find("not needed"), std::string::npos);
    for (const char* bad : {"many", "0", "3.5"})
      EXPECT_NE(
          resolve_environment(with("STREAMS_PER_DEVICE", bad), device).status().message().find("STREAMS_PER_DEVICE"),
          std::string::npos);
    for (const auto& get : {with("ASCEND_USE_FIA", ""), with("SOMETHING_ELSE", "x")}) {
      auto none = resolve_environment(get, device);
      ASSERT_TRUE(none.is_ok());
      EXPECT_TRUE(none->notices.empty());
      EXPECT_TRUE(none->ascend_fia);
    }
  }
}

TEST(GraphAliases, FlagsAndEnvironmentReachTheDevice) {
  const auto nothing = with("", "");
  for (const char* name : {"ascend", "npu"}) {
    auto usual = device_options(name, {}, nothing);
    ASSERT_TRUE(usual.is_ok()) << usual.status().message();
    EXPECT_EQ(usual->kind, DeviceKind::Ascend);
    EXPECT_EQ(usual->ascend_runtime, "system");
    EXPECT_TRUE(usual->ascend_fia);
    for (const char* word : {"false", "0"}) {
      auto pair = device_options(name, "sim", with("ASCEND_USE_FIA", word));
      ASSERT_TRUE(pair.is_ok());
      EXPECT_EQ(pair->ascend_runtime, "sim");
      EXPECT_FALSE(pair->ascend_fia);
    }
    EXPECT_TRUE(device_options(name, {}, with("ASCEND_USE_FIA", "TRUE"))->ascend_fia);
    auto said = resolve_environment(with("ASCEND_USE_FIA", "false"), DeviceKind::Ascend);
    ASSERT_EQ(said->notices.size(), 1u);
    EXPECT_NE(said->notices[0].text.find("PromptFlashAttention and IncreFlashAttention"), std::string::npos);
    ASSERT_EQ(device_notices(name, "sim").size(), 1u);
    EXPECT_NE(device_notices(name, "sim")[0].text.find("simulator"), std::string::npos);
    EXPECT_TRUE(device_notices(name, "system").empty());
    EXPECT_TRUE(device_notices(name, {}).empty());
  }
  ASSERT_EQ(device_notices("cpu", "sim").size(), 1u);
  EXPECT_NE(settings::as_flags(device_notices("cpu", "sim")[0].text).find("no effect on --device cpu"),
            std::string::npos);
  EXPECT_FALSE(device_options("cpu", {}, with("ASCEND_USE_FIA", "wahr")).is_ok());
}

// `auto` is what is found, unless the environment or a runtime of Ascend's names a device; then nothing is looked for.
TEST(GraphAliases, AutoTellsWhichDeviceItFound) {
  const auto nothing = with("", "");
  const std::vector<std::pair<FoundDevice, std::vector<std::string>>> cases{
      {{DeviceKind::Cuda, "the driver knows 2 GPUs"}, {"`device` auto: cuda (the driver knows 2 GPUs)"}},
      {{DeviceKind::Ascend, "the driver shows an NPU"}, {"`device` auto: ascend (the driver shows an NPU)"}},
      {{DeviceKind::Cpu, "an NPU is there, but no library"}, {"`device` auto: cpu (an NPU is there, but no library)"}},
      {{DeviceKind::Null, "a test"}, {"`device` auto: null (a test)"}},
      {{DeviceKind::Cpu, "no GPU or NPU that this build can use was found"}, {}}};
  for (const auto& [found, expected] : cases) {
    int looked = 0;
    const auto find = [&looked, &device = found] {
      ++looked;
      return device;
    };
    const auto texts = [&](const std::string& device, std::optional<std::string> runtime, const GetVariable& get) {
      std::vector<std::string> out;
      for (const Notice& n : device_notices(device, runtime, get, find)) out.push_back(n.text);
      return out;
    };
    for (const GetVariable& get :
         {GetVariable(nothing), GetVariable(with("REPRISE_DEVICE", "")), GetVariable(with("REPRISE_DEVICE", "auto"))}) {
      EXPECT_EQ(texts("auto", {}, get), expected);
      const auto options = device_options("auto", {}, get, find);
      ASSERT_TRUE(options.is_ok()) << options.status().message();
      EXPECT_EQ(options->kind, found.kind);
    }
    EXPECT_EQ(looked, 6);
    EXPECT_TRUE(texts("auto", {}, with("REPRISE_DEVICE", "cpu")).empty());
    EXPECT_EQ(device_options("auto", {}, with("REPRISE_DEVICE", "cpu"), find)->kind, DeviceKind::Cpu);
    EXPECT_EQ(device_options("auto", "sim", nothing, find)->kind, DeviceKind::Ascend);
    EXPECT_TRUE(texts("cpu", {}, nothing).empty());
    const auto wrong = device_options("auto", {}, with("REPRISE_DEVICE", "abacus"), find);
    ASSERT_FALSE(wrong.is_ok());
    EXPECT_TRUE(wrong.status().message().starts_with("REPRISE_DEVICE: ")) << wrong.status().message();
    EXPECT_EQ(looked, 6);
  }
}

}  // namespace
}  // namespace reprise::api::graph_aliases_test
