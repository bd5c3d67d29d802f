// Models with states (Qwen3-Next, Qwen3.5, Granite 4, Nemotron-H): the last rows of a prompt one by one, as decoding
// computes them, against transformers' form of one row; what a sequence remembers; what prompts in other orders,
// preemption and a step computed again leave of the bits.
#include <gtest/gtest.h>

#include <tuple>

#include "backends/cpu/isa.h"
#include "models/foreign_fields.h"
#include "models/rope.h"
#include "support/goldens.h"
#include "support/tiny_models.h"

namespace reprise::recurrent_test {
namespace {

using testing_support::all_logits;
using testing_support::open_engine;
using testing_support::same_bits;
using testing_support::tiny_model_path;

class StateModels : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return tiny_model_path(GetParam()); }
};

// Logits of the last `steps` tokens, each of a step of its own behind one step with all others.
std::vector<float> stepped_logits(engine::Engine& e, const std::vector<int32_t>& tokens, int64_t steps) {
  engine::Sequence s(tokens);
  std::vector<float> out;
  EXPECT_TRUE(e.reserve(s, s.size()).is_ok());
  engine::StepItem item{&s, s.size() - steps};
  EXPECT_TRUE(e.step({&item, 1}).is_ok());
  item = {&s, 1, 1};
  while (s.uncached() > 0) {
    const auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) break;
    out.insert(out.end(), logits->begin(), logits->end());
  }
  e.release(s);
  return out;
}

TEST_P(StateModels, StepsBehindAPromptAreThoseOfTheReference) {
  const auto goldens = testing_support::read_goldens(folder());
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const cpu::Isa isa : cpu::supported_isas()) {
      auto e = open_engine(folder(), {.dtype = dtype, .isa = std::string(cpu::isa_name(isa))});
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      const auto vocab = static_cast<size_t>((*e)->config().vocab_size);
      size_t compared = 0;
      for (const auto& [length, g] : goldens) {
        if (g.stepped.empty()) continue;
        const auto steps = static_cast<int64_t>(g.stepped.size() / vocab);
        const std::vector<float> logits = stepped_logits(**e, g.tokens, steps);
        ASSERT_EQ(logits.size(), g.stepped.size());
        double largest = 0, worst = 0;
        for (size_t i = 0; i < logits.size(); ++i) {
          largest = std::max(largest, std::fabs(static_cast<double>(g.stepped[i])));
          worst = std::max(worst, std::fabs(static_cast<double>(logits[i]) - static_cast<double>(g.stepped[i])));
        }
        const double bound = (dtype == DType::F32 ? 1e-5 : 2e-2) * largest;
        EXPECT_LE(worst, bound) << dtype_name(dtype) << " " << cpu::isa_name(isa) << " length " << length;
        size_t firsts = 0;
        for (size_t at = 0; at < logits.size(); at += vocab)
          firsts += testing_support::expect_first_token(std::span(g.stepped).subspan(at, vocab),
                                                        std::span(logits).subspan(at, vocab), bound,
                                                        fmt::format("length {}, row {}", length, at / vocab));
        EXPECT_GT(firsts, 0u) << length;
        const std::vector<float> whole = all_logits(**e, g.tokens, 1000);
        EXPECT_TRUE(same_bits(std::span(whole).last(logits.size()), logits)) << length;
        ++compared;
      }
      EXPECT_GE(compared, 2u);
    }
}

// Layers with states keep no keys and values, and a sequence gives its slots back.
TEST_P(StateModels, HaveStatesForLayersAndPagesForTheOthers) {
  auto e = open_engine(folder(), {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto& f = (*e)->config();
  const auto with_states = std::count(f.layer_types.begin(), f.layer_types.end(), "linear_attention");
  EXPECT_EQ(with_states, 4);
  EXPECT_EQ((*e)->state_pool().caches().size(), 2 * static_cast<size_t>(with_states));
  EXPECT_EQ((*e)->kv_pool().shape().caches.size(),
            static_cast<size_t>(std::count(f.layer_types.begin(), f.layer_types.end(), "full_attention")));
  const bool mamba = f.numbers.contains("mamba.heads");
  const auto number = [&](const char* delta, const char* of_mamba) {
    return static_cast<int64_t>(f.number(mamba ? of_mamba : delta));
  };
  const int64_t key = number("linear_key_head_dim", "mamba.state"),
                heads = number("linear_num_value_heads", "mamba.heads"),
                value = number("linear_value_head_dim", "mamba.head"),
                columns = 2 * key * number("linear_num_key_heads", "mamba.groups") + heads * value;
  const int64_t conv = (number("linear_conv_kernel_dim", "mamba.taps") - 1) * columns, state = heads * key * value;
  size_t slot = 0;
  for (const auto& c : (*e)->state_pool().caches()) slot += c.slot_bytes;
  EXPECT_EQ(slot, static_cast<size_t>(with_states * (conv + state)) * sizeof(float));
  EXPECT_EQ((*e)->state_pool().free_slots(), (*e)->state_pool().slots() - 2);
  const std::vector<int32_t> tokens{5, 6, 7, 8};
  const auto once = all_logits(**e, tokens, 1000);
  EXPECT_EQ((*e)->state_pool().free_slots(), (*e)->state_pool().slots() - 2);
  EXPECT_TRUE(same_bits(once, all_logits(**e, tokens, 2)));
}

// A check runs a step twice over, from the slot that is read to the one that is written.
TEST_P(StateModels, AStepThatIsCheckedAndRepeatedHasTheSameBits) {
  const auto open = [&](int64_t verify_replay) {
    auto platform = make_platform({DeviceKind::Cpu, "auto", 2, false});
    EXPECT_TRUE(platform.is_ok()) << platform.status().message();
    engine::EngineOptions o;
    o.model_path = folder();
    o.dtype = DType::BF16;
    o.chunked_prefill_size = 64;
    o.max_running_requests = 16;
    o.max_total_tokens = 4096;
    o.graph.verify_replay = verify_replay;
    auto e = engine::Engine::create(o, std::move(*platform));
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    return e.is_ok() ? std::move(*e) : nullptr;
  };
  const auto plain = open(0), verified = open(1);
  ASSERT_TRUE(plain && verified);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 70; ++i) tokens.push_back((i * 37 + 5) % 131);
  EXPECT_TRUE(same_bits(all_logits(*plain, tokens, 9), all_logits(*verified, tokens, 13)));
  EXPECT_GT(verified->counters().checked, 0u);
  EXPECT_EQ(verified->counters().differences, 0u);
}

// As Qwen/Qwen3-Next-80B-A3B-Instruct and Qwen3.5 are published: the spellings of files before and behind
// transformers 5, an interval or a list of layers, fields of layers that are not loaded.
Json published(bool next) {
  Json c{{"hidden_size", 2048},          {"num_attention_heads", 16},
         {"num_key_value_heads", 2},     {"head_dim", 256},
         {"linear_conv_kernel_dim", 4},  {"linear_key_head_dim", 128},
         {"linear_num_key_heads", 16},   {"linear_num_value_heads", 32},
         {"linear_value_head_dim", 128}, {"num_hidden_layers", 8},
         {"full_attention_interval", 4}, {"hidden_act", "silu"},
         {"vocab_size", 151936},         {"max_position_embeddings", 4096},
         {"rms_norm_eps", 1e-6}};
  if (next) {
    c.update(Json{{"architectures", {"Qwen3NextForCausalLM"}},
                  {"model_type", "qwen3_next"},
                  {"decoder_sparse_step", 1},
                  {"mlp_only_layers", Json::array()},
                  {"norm_topk_prob", true},
                  {"num_experts", 512},
                  {"num_experts_per_tok", 10},
                  {"moe_intermediate_size", 512},
                  {"shared_expert_intermediate_size", 512},
                  {"partial_rotary_factor", 0.25},
                  {"rope_scaling", nullptr},
                  {"rope_theta", 10000000},
                  {"use_sliding_window", false},
                  {"output_router_logits", false}});
    return c;
  }
  c.update(Json{{"model_type", "qwen3_5_text"},
                {"vocab_size", 248320},
                {"intermediate_size", 6144},
                {"attn_output_gate", true},
                {"mamba_ssm_dtype", "float32"},
                {"mtp_num_hidden_layers", 1},
                {"layer_types",
                 {"linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention",
                  "linear_attention", "linear_attention", "full_attention"}},
                {"rope_parameters",
                 {{"rope_type", "default"},
                  {"rope_theta", 10000000},
                  {"partial_rotary_factor", 0.25},
                  {"mrope_section", {11, 11, 10}},
                  {"mrope_interleaved", true}}}});
  return {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
          {"model_type", "qwen3_5"},
          {"text_config", c},
          {"vision_config",
           {{"depth", 27},
            {"hidden_size", 1152},
            {"intermediate_size", 4304},
            {"num_heads", 16},
            {"patch_size", 16},
            {"out_hidden_size", 2048},
            {"num_position_embeddings", 2304},
            {"deepstack_visual_indexes", Json::array()}}},
          {"image_token_id", 248056}};
}

Result<checkpoint::ModelConfigFields> fields_of(const Json& config) {
  ASSIGN_OR_RETURN(auto fields, checkpoint::parse_model_config(config, "config.json", {}, models::families(true)));
  ASSIGN_OR_RETURN(const models::ModelSpec* spec, models::find_model(fields.architecture));
  RETURN_IF_ERROR(models::check_fields(*spec, fields));
  return fields;
}

TEST(StateModelConfigs, AreReadAsTheyArePublished) {
  for (const bool next : {true, false}) {
    const auto f = fields_of(published(next));
    ASSERT_TRUE(f.is_ok()) << f.status().message();
    EXPECT_EQ(f->architecture, next ? "Qwen3NextForCausalLM" : "Qwen3_5ForCausalLM");
    EXPECT_EQ(f->rope_theta, 1e7);
    EXPECT_EQ(models::rope_spec({*f, {}, {}}).dim, 64);
    for (int64_t l = 0; l < 8; ++l)
      EXPECT_EQ(f->layer_types[static_cast<size_t>(l)], l % 4 == 3 ? "full_attention" : "linear_attention");
    EXPECT_EQ(f->experts.count, next ? 512 : 0);
    EXPECT_EQ(f->experts.at_layer(0), next);
    EXPECT_EQ(f->experts.normalise, next);
    for (const std::string& notice : f->notices) EXPECT_EQ(notice.find("mrope"), std::string::npos) << notice;
  }
}

// The tower of Qwen3.5: no deepstack, and three parts of the quarter of a head that turns.
TEST(StateModelConfigs, TowersAreReadAsTheyArePublished) {
  const auto f = fields_of(published(false));
  ASSERT_TRUE(f.is_ok()) << f.status().message();
  ASSERT_TRUE(f->vision);
  EXPECT_EQ(f->vision->sections, (std::vector<int64_t>{11, 11, 10}));
  EXPECT_TRUE(f->vision->interleaved && f->vision->told_times);
  EXPECT_EQ(f->vision->image_token, 248056);
  EXPECT_EQ(f->vision->video_token, 248057);
  EXPECT_EQ(f->vision->side, 48);
  EXPECT_TRUE(f->vision->deepstack_blocks.empty());
  // Where a file is silent, what configuration_qwen3_5.py and modeling_qwen3_5.py of transformers take.
  Json silent = published(false);
  silent["vision_config"] = Json::object();
  silent["text_config"]["rope_parameters"].erase("mrope_section");
  const auto usual = fields_of(silent);
  ASSERT_TRUE(usual.is_ok()) << usual.status().message();
  EXPECT_EQ(usual->vision->sections, f->vision->sections);
  EXPECT_EQ(usual->vision->depth, 27);
  EXPECT_TRUE(usual->vision->deepstack_blocks.empty());
}

// The rule of get_expanded_tied_weights_keys in modeling_utils.py of transformers 5.23, which asks the whole, and that
// of configuration_qwen2_5_vl.py for files that tell it of the text alone.
TEST(StateModelConfigs, AHeadIsTiedWhereTheWholeOrTheTextSaysSo) {
  const std::optional<bool> said[] = {std::nullopt, false, true};
  for (const auto whole : said)
    for (const auto text : said) {
      Json c = published(false);
      c["text_config"].erase("tie_word_embeddings");
      if (whole) c["tie_word_embeddings"] = *whole;
      if (text) c["text_config"]["tie_word_embeddings"] = *text;
      const auto f = fields_of(c);
      ASSERT_TRUE(f.is_ok()) << f.status().message();
      EXPECT_EQ(f->tie_word_embeddings, whole.value_or(false) || text.value_or(false)) << c;
    }
  Json wrong = published(false);
  wrong["tie_word_embeddings"] = "yes";
  wrong["text_config"]["tie_word_embeddings"] = false;
  const auto f = fields_of(wrong);
  ASSERT_FALSE(f.is_ok());
  EXPECT_NE(f.status().message().find("tie_word_embeddings"), std::string::npos) << f.status().message();
}

TEST(StateModelConfigs, ATowerMayBeMissingButNotWrong) {
  for (const bool erased : {true, false}) {
    Json c = published(false);
    if (erased)
      c.erase("vision_config");
    else
      c["vision_config"] = nullptr;
    const auto f = fields_of(c);
    ASSERT_TRUE(f.is_ok()) << f.status().message();
    EXPECT_FALSE(f->vision);
  }
  Json c = published(false);
  c["text_config"]["rope_parameters"]["mrope_section"] = {24, 20, 20};
  EXPECT_NE(fields_of(c).status().message().find("mrope_section [24, 20, 20]; allowed: three numbers that add up to "
                                                 "half of what turns of a head, 32"),
            std::string::npos)
      << fields_of(c).status().message();
  c = published(false);
  c["vision_config"]["deepstack_visual_indexes"] = {5, 11, 17};
  const auto deep = fields_of(c);
  ASSERT_TRUE(deep.is_ok()) << deep.status().message();
  EXPECT_TRUE(std::any_of(deep->notices.begin(), deep->notices.end(), [](const std::string& n) {
    return n.find("deepstack_visual_indexes has no effect") != std::string::npos;
  }));
}

TEST(StateModelConfigs, WhatIsNotComputedIsRefusedByName) {
  const auto refused = [](const std::string& key, const Json& value) {
    Json c = published(true);
    c[key] = value;
    return fields_of(c).status().message();
  };
  EXPECT_NE(refused("attn_output_gate", false).find("attn_output_gate is false; allowed: true"), std::string::npos);
  EXPECT_NE(refused("linear_num_value_heads", 24).find("24 is not a multiple of linear_num_key_heads 16"),
            std::string::npos);
  EXPECT_NE(refused("linear_conv_kernel_dim", 1).find("allowed: integers from 2 to 16"), std::string::npos);
  EXPECT_NE(refused("layer_types", Json(std::vector<std::string>(8, "sliding_attention")))
                .find("allowed: \"full_attention\", \"linear_attention\""),
            std::string::npos);
  Json other = published(true);
  other["architectures"] = {"Qwen3ForCausalLM"};
  other["model_type"] = "qwen3";
  other["layer_types"] = std::vector<std::string>(8, "linear_attention");
  EXPECT_NE(fields_of(other).status().message().find("allowed: \"full_attention\", \"sliding_attention\""),
            std::string::npos);
}

// As ibm-granite/granite-4.0-h-tiny and nvidia/NVIDIA-Nemotron-Nano-9B-v2 are published.
Json published_mamba(bool granite) {
  if (granite)
    return {{"architectures", {"GraniteMoeHybridForCausalLM"}},
            {"model_type", "granitemoehybrid"},
            {"attention_bias", false},
            {"attention_multiplier", 0.0078125},
            {"embedding_multiplier", 12},
            {"residual_multiplier", 0.22},
            {"logits_scaling", 6},
            {"hidden_act", "silu"},
            {"hidden_size", 1536},
            {"init_method", "mup"},
            {"intermediate_size", 512},
            {"layer_types", {"mamba", "mamba", "attention", "mamba"}},
            {"mamba_chunk_size", 256},
            {"mamba_conv_bias", true},
            {"mamba_d_conv", 4},
            {"mamba_d_head", 64},
            {"mamba_d_state", 128},
            {"mamba_expand", 2},
            {"mamba_n_groups", 1},
            {"mamba_n_heads", 48},
            {"mamba_proj_bias", false},
            {"max_position_embeddings", 131072},
            {"normalization_function", "rmsnorm"},
            {"num_attention_heads", 12},
            {"num_experts_per_tok", 6},
            {"num_hidden_layers", 4},
            {"num_key_value_heads", 4},
            {"num_local_experts", 64},
            {"position_embedding_type", "nope"},
            {"rms_norm_eps", 1e-5},
            {"rope_scaling", nullptr},
            {"rope_theta", 10000},
            {"shared_intermediate_size", 1024},
            {"vocab_size", 100352}};
  return {{"architectures", {"NemotronHForCausalLM"}},
          {"model_type", "nemotron_h"},
          {"attention_bias", false},
          {"chunk_size", 128},
          {"conv_kernel", 4},
          {"expand", 2},
          {"head_dim", 128},
          {"hidden_size", 4480},
          {"hybrid_override_pattern", "M-M*-E"},
          {"intermediate_size", 15680},
          {"layer_norm_epsilon", 1e-5},
          {"mamba_head_dim", 80},
          {"mamba_hidden_act", "silu"},
          {"mamba_num_heads", 128},
          {"mamba_proj_bias", false},
          {"max_position_embeddings", 131072},
          {"mlp_bias", false},
          {"mlp_hidden_act", "relu2"},
          {"n_groups", 8},
          {"num_attention_heads", 40},
          {"num_hidden_layers", 6},
          {"num_key_value_heads", 8},
          {"rescale_prenorm_residual", true},
          {"residual_in_fp32", false},
          {"rms_norm_eps", 1e-5},
          {"sliding_window", nullptr},
          {"ssm_state_size", 128},
          {"time_step_floor", 0.0001},
          {"time_step_limit", {0.0, {{"__float__", "Infinity"}}}},
          {"time_step_max", 0.1},
          {"time_step_min", 0.001},
          {"use_bias", false},
          {"use_conv_bias", true},
          {"use_mamba_kernels", true},
          {"vocab_size", 131072}};
}

TEST(StateModelConfigs, MambasAreReadAsTheyArePublished) {
  const auto granite = fields_of(published_mamba(true));
  ASSERT_TRUE(granite.is_ok()) << granite.status().message();
  EXPECT_EQ(granite->layer_types[1], "linear_attention");
  EXPECT_EQ(granite->layer_types[2], "full_attention");
  EXPECT_EQ(granite->number("rotates"), 0);
  EXPECT_EQ(granite->number("mamba.head"), 64);
  EXPECT_EQ(granite->experts.shared_intermediate, 1024);
  const auto nemotron = fields_of(published_mamba(false));
  ASSERT_TRUE(nemotron.is_ok()) << nemotron.status().message();
  const std::vector<std::string> types{"linear_attention", "mlp", "linear_attention", "full_attention", "mlp", "moe"};
  EXPECT_EQ(nemotron->layer_types, types);
  EXPECT_EQ(nemotron->number("mamba.most_step"), 0);
  EXPECT_EQ(nemotron->number("mamba.groups"), 8);
}

TEST(StateModelConfigs, WhatMambaDoesNotComputeIsRefusedByName) {
  const auto refused = [](bool granite, const std::string& key, const Json& value) {
    Json c = published_mamba(granite);
    c[key] = value;
    return fields_of(c).status().message();
  };
  for (const auto& [granite, key, value, what] : std::vector<std::tuple<bool, std::string, Json, std::string>>{
           {true, "mamba_d_head", 32, "mamba_n_heads 48 of mamba_d_head 32 are 1536 numbers"},
           {true, "position_embedding_type", "alibi",
            "position_embedding_type is \"alibi\"; allowed: \"nope\", \"rope\""},
           {true, "mamba_n_groups", 5, "mamba_n_heads 48 is not a multiple of mamba_n_groups 5"},
           {true, "time_step_limit", Json::array({0.5, 0.1}),
            "time_step_limit is [0.5,0.1]; allowed: null, two numbers"},
           {true, "num_experts_per_tok", 65, "num_experts_per_tok is 65; allowed: integers from 1 to 64"},
           {true, "layer_types", Json(std::vector<std::string>(4, "sliding_attention")),
            "allowed: \"full_attention\", \"linear_attention\""},
           {false, "hybrid_override_pattern", "M-M*-X", "allowed: a text of M, *, - and E, one for each layer"},
           {false, "hybrid_override_pattern", "M-M", "3 layers in hybrid_override_pattern, but num_hidden_layers is 6"},
           {false, "mlp_hidden_act", "silu", "mlp_hidden_act is \"silu\"; allowed: \"relu2\""},
           {false, "conv_kernel", 17, "conv_kernel is 17; allowed: integers from 2 to 16"}})
    EXPECT_NE(refused(granite, key, value).find(what), std::string::npos) << refused(granite, key, value);
}

INSTANTIATE_TEST_SUITE_P(Tiny, StateModels,
                         testing::Values("qwen3_next", "qwen3_5", "qwen3_5_moe_text_of_images", "granite_hybrid",
                                         "nemotron_h", "nemotron_h_moe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::recurrent_test
