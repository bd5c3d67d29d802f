#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/generation_config.h"
#include "checkpoint/helpers.h"
#include "checkpoint/pooling.h"
#include "models/model.h"

namespace reprise::checkpoint::config_test {
namespace {

namespace fs = std::filesystem;

Result<ModelConfigFields> parse(std::string_view text, std::vector<std::string> overrides = {}) {
  auto json = parse_json(text, "config.json");
  EXPECT_TRUE(json.is_ok()) << json.status().message();
  return parse_model_config(*json, "config.json", overrides, models::families(true));
}

std::string with(std::string_view extra) {
  return fmt::format(R"({{"architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":90,)"
                     R"("num_hidden_layers":2,"num_attention_heads":4,"vocab_size":100{}{}}})",
                     extra.empty() ? "" : ",", extra);
}

TEST(Config, EveryFileOfTheTestDataParses) {
  for (const auto& entry : fs::directory_iterator(data_dir() + "/models")) {
    if (!entry.is_directory()) continue;
    auto c = read_model_config(entry.path().string(), {}, models::families(true));
    ASSERT_TRUE(c.is_ok()) << c.status().message();
    EXPECT_EQ(c->eos_token_ids, (std::vector<int64_t>{2}));
    EXPECT_TRUE(c->dtype.has_value());
  }
}

TEST(Config, OldAndNewSpellings) {
  auto old_style = read_model_config(data_dir() + "/models/llama_rope_llama3", {}, models::families(true));
  ASSERT_TRUE(old_style.is_ok()) << old_style.status().message();
  EXPECT_EQ(old_style->rope.kind, RopeKind::Llama3);
  EXPECT_EQ(old_style->rope.factor, 8.0);
  EXPECT_EQ(old_style->rope.high_freq_factor, 4.0);
  EXPECT_EQ(old_style->rope.original_max_position_embeddings, 64);
  EXPECT_EQ(old_style->head_dim, 32);
  EXPECT_TRUE(old_style->tie_word_embeddings);
  auto new_style = read_model_config(data_dir() + "/models/qwen3_tied", {}, models::families(true));
  ASSERT_TRUE(new_style.is_ok()) << new_style.status().message();
  EXPECT_EQ(new_style->rope.kind, RopeKind::None);
  EXPECT_EQ(new_style->rope_theta, 1e6);
  EXPECT_EQ(new_style->dtype, DType::BF16);
  auto options = read_model_config(data_dir() + "/models/llama_rope_yarn_options", {}, models::families(true));
  ASSERT_TRUE(options.is_ok()) << options.status().message();
  EXPECT_EQ(options->rope.kind, RopeKind::Yarn);
  EXPECT_EQ(options->rope.attention_factor, 1.25);
  EXPECT_EQ(options->rope.beta_fast, 8.0);
  EXPECT_FALSE(options->rope.truncate);
  EXPECT_EQ(options->rope_theta, 5000.0);
  auto linear = read_model_config(data_dir() + "/models/llama_rope_linear", {}, models::families(true));  // "type"
  EXPECT_EQ(linear->rope.kind, RopeKind::Linear);
}

TEST(Config, DefaultsOfEachArchitecture) {
  const auto of = [](std::string_view arch) { return parse(fmt::format(R"({{"architectures":["{}"]}})", arch)); };
  auto llama = of("LlamaForCausalLM");
  ASSERT_TRUE(llama.is_ok()) << llama.status().message();
  EXPECT_EQ(llama->num_key_value_heads, 32);
  EXPECT_EQ(llama->max_position_embeddings, 2048);
  EXPECT_EQ(llama->rms_norm_eps, 1e-6);
  EXPECT_EQ(llama->head_dim, 128);
  auto mistral = of("MistralForCausalLM");
  EXPECT_EQ(mistral->num_key_value_heads, 8);
  EXPECT_EQ(mistral->window_of_layer(0), 4096);
  auto qwen3 = of("Qwen3ForCausalLM");
  EXPECT_EQ(qwen3->head_dim, 128);
  EXPECT_EQ(qwen3->vocab_size, 151936);
  EXPECT_EQ(qwen3->window_of_layer(30), 0);
  expect_error(of("NewForCausalLM").status(), {"hidden_size is missing"});
  auto by_type = parse(R"({"model_type":"qwen2"})");
  EXPECT_EQ(by_type->architecture, "Qwen2ForCausalLM");
  expect_error(parse("{}").status(), {"architectures is missing"});
  // null means "as many as heads", not the class default
  EXPECT_EQ(parse(R"({"architectures":["MistralForCausalLM"],"num_key_value_heads":null})")->num_key_value_heads, 32);
}

TEST(Config, EachBadValueIsNamed) {
  const std::pair<std::string_view, std::vector<std::string_view>> cases[] = {
      {R"("hidden_size":0)", {"hidden_size is 0", "allowed: integers from 1 to 1048576"}},
      {R"("hidden_size":-4)", {"hidden_size is -4", "allowed"}},
      {R"("hidden_size":1e30)", {"hidden_size is 1e+30", "allowed"}},
      {R"("hidden_size":18446744073709551615)", {"hidden_size is 18446744073709551615", "allowed"}},
      {R"("hidden_size":64.5)", {"hidden_size is 64.5", "an integer"}},
      {R"("hidden_size":"64")", {"hidden_size is \"64\"", "an integer"}},
      {R"("hidden_size":true)", {"hidden_size is true", "an integer"}},
      {R"("hidden_size":[64])", {"hidden_size is [64]", "an integer"}},
      {R"("hidden_size":62)", {"hidden_size 62 is not a multiple of num_attention_heads 4"}},
      {R"("num_hidden_layers":1001)", {"num_hidden_layers is 1001", "1 to 1000"}},
      {R"("num_key_value_heads":3)", {"num_attention_heads 4 is not a multiple of num_key_value_heads 3"}},
      {R"("num_key_value_heads":8)", {"num_attention_heads 4 is not a multiple"}},
      {R"("head_dim":100000)", {"head_dim is 100000", "1 to 8192"}},
      {R"("vocab_size":0)", {"vocab_size is 0"}},
      {R"("max_position_embeddings":4294967296)", {"max_position_embeddings is 4294967296"}},
      {R"("rms_norm_eps":-1)", {"rms_norm_eps is -1", "numbers from 0 to 1"}},
      {R"("rms_norm_eps":"1e-5")", {"rms_norm_eps"}},
      {R"("rope_theta":0)", {"rope_theta is 0"}},
      {R"("rope_scaling":3)", {"rope_scaling is 3", "an object, null"}},
      {R"("rope_scaling":{"type":"axial"})", {"rope_scaling.rope_type is \"axial\"", "llama3, yarn, longrope"}},
      {R"("rope_scaling":{"type":"longrope"})", {"rope_scaling.original_max_position_embeddings is missing"}},
      {R"("rope_scaling":{"type":"longrope","original_max_position_embeddings":64,"short_factor":[1]})",
       {"rope_scaling.short_factor is [1]", "numbers above 0"}},
      {R"("rope_scaling":{"type":"longrope","original_max_position_embeddings":64,"short_factor":[1,1,1,1,1,1,1,1]})",
       {"rope_scaling.long_factor is missing", "a list of 8 numbers above 0"}},
      {R"("rope_scaling":{"type":"linear"})", {"rope_scaling.factor is missing"}},
      {R"("rope_scaling":{"type":"linear","factor":0.5})", {"rope_scaling.factor is 0.5"}},
      {R"("rope_scaling":{"type":7})", {"rope_scaling.type is 7"}},
      {R"("rope_scaling":{"rope_type":"yarn"})", {"rope_scaling.factor is missing"}},
      {R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1})", {"high_freq_factor is missing"}},
      {R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":3,)"
       R"("original_max_position_embeddings":64})",
       {"high_freq_factor 3 must not be below low_freq_factor 4"}},
      {R"("rope_scaling":{"rope_type":"yarn","factor":8,"beta_fast":1,"beta_slow":2})", {"beta_fast 1"}},
      {R"("rope_parameters":{"full_attention":{"rope_type":"default"}})",
       {"rope_parameters.full_attention is an object"}},
      {R"("rope_parameters":{"rope_type":"default","rope_theta":"x"})", {"rope_parameters.rope_theta is \"x\""}},
      {R"("partial_rotary_factor":2)", {"partial_rotary_factor is 2"}},
      {R"("hidden_act":"gelu")", {"hidden_act is \"gelu\"", "allowed: silu"}},
      {R"("attention_bias":1)", {"attention_bias is 1", "true, false"}},
      {R"("layer_types":["full_attention"])", {"layer_types has 1 entries", "num_hidden_layers is 2"}},
      {R"("layer_types":["full_attention","linear_attention"])",
       {"layer_types[1] is \"linear_attention\"", "sliding_attention"}},
      {R"("eos_token_id":"</s>")", {"eos_token_id is \"</s>\"", "a token id"}},
      {R"("eos_token_id":[1,2.5])", {"eos_token_id is [1,2.5]"}},
      {R"("bos_token_id":-2)", {"bos_token_id is -2"}},
      {R"("torch_dtype":"int8")", {"torch_dtype is \"int8\"", "bfloat16"}},
      {R"("architectures":"LlamaForCausalLM")", {"architectures is \"LlamaForCausalLM\"", "a list"}},
      {R"("architectures":[])", {"architectures is []"}},
      {R"("quantization_config":7)", {"quantization_config is 7"}},
  };
  for (const auto& [extra, words] : cases) {
    SCOPED_TRACE(extra);
    // nlohmann keeps the last of two equal keys, which here replaces the good one
    expect_error(parse(with(extra)).status(), {"config.json"});
    expect_error(parse(with(extra)).status(), words);
  }
  EXPECT_TRUE(parse(with("")).is_ok());
  expect_error(parse("[]").status(), {"not a JSON object"});
}

TEST(Config, TokensWindowsAndTheRest) {
  auto c = parse(with(R"("eos_token_id":[1,7],"pad_token_id":-1,"bos_token_id":3,"sliding_window":8,)"
                      R"("layer_types":["full_attention","full_attention"],)"
                      R"("quantization_config":{"quant_method":"x"},"num_experts":5,"max_position_embeddings":128.0)"));
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->eos_token_ids, (std::vector<int64_t>{1, 7}));
  EXPECT_FALSE(c->pad_token_id.has_value());
  EXPECT_EQ(c->bos_token_id, 3);
  EXPECT_EQ(c->window_of_layer(0), 0);
  EXPECT_EQ(c->quantization["quant_method"], "x");
  EXPECT_EQ(c->raw()["num_experts"], 5);
  EXPECT_EQ(c->max_position_embeddings, 128);
  auto qwen = parse(R"({"architectures":["Qwen2ForCausalLM"],"num_hidden_layers":4,"sliding_window":16,)"
                    R"("use_sliding_window":true,"max_window_layers":2})");
  ASSERT_TRUE(qwen.is_ok()) << qwen.status().message();
  EXPECT_EQ(qwen->window_of_layer(1), 0);
  EXPECT_EQ(qwen->window_of_layer(2), 16);
  auto typed = parse(R"({"architectures":["Qwen3ForCausalLM"],"num_hidden_layers":2,"sliding_window":16,)"
                     R"("use_sliding_window":true,"layer_types":["sliding_attention","full_attention"]})");
  EXPECT_EQ(typed->window_of_layer(0), 16);
  EXPECT_EQ(typed->window_of_layer(1), 0);
}

TEST(Config, Overrides) {
  auto c = parse(with(""), {"num_hidden_layers=7", "rope_scaling.rope_type=linear", "rope_scaling.factor=2"});
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->num_hidden_layers, 7);
  EXPECT_EQ(c->rope.kind, RopeKind::Linear);
  // An override reaches the spelling that the file uses.
  const std::string newer = with(R"("rope_parameters":{"rope_type":"default","rope_theta":5000},"dtype":"float32")");
  auto theta = parse(newer, {"rope_theta=100", "torch_dtype=bfloat16"});
  ASSERT_TRUE(theta.is_ok()) << theta.status().message();
  EXPECT_EQ(theta->rope_theta, 100.0);
  EXPECT_EQ(theta->dtype, DType::BF16);
  auto whole = parse(newer, {R"(rope_scaling={"rope_type":"yarn","factor":4})"});
  ASSERT_TRUE(whole.is_ok()) << whole.status().message();
  EXPECT_EQ(whole->rope.kind, RopeKind::Yarn);
  EXPECT_EQ(whole->rope_theta, 5000.0);
  EXPECT_EQ(parse(with(R"("sliding_window":4)"), {"sliding_window=null"})->sliding_window, std::nullopt);
  EXPECT_EQ(parse(with(R"("my_key":4)"), {"my_key=5"})->raw()["my_key"], 5);

  expect_error(parse(with(""), {"num_hiden_layers=7"}).status(), {"no key \"num_hiden_layers\"", "num_hidden_layers"});
  expect_error(parse(with(""), {"zzz=7"}).status(), {"no key \"zzz\""});
  expect_error(parse(with(""), {"rope_scaling.facto=7"}).status(), {"rope_scaling has no key \"facto\"", "factor"});
  expect_error(parse(with(""), {"hidden_size.x=7"}).status(), {"hidden_size has no keys of its own"});
  expect_error(parse(with(""), {"rope_scaling.a.b=7"}).status(), {"at most two parts"});
  expect_error(parse(with(""), {"hidden_size"}).status(), {"not of the form key=value"});
  expect_error(parse(with(""), {"=3"}).status(), {"not of the form key=value"});
  expect_error(parse(with(""), {"hidden_size=abc"}).status(), {"hidden_size is \"abc\""});
}

TEST(Config, DuplicateKeysOfAFileAreRefused) {
  const TemporaryFolder f;
  f.write("config.json", R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"hidden_size":128})");
  expect_error(read_model_config(f.path, {}, models::families(true)).status(),
               {"config.json", "\"hidden_size\" is given twice"});
  f.write("config.json", std::string(1000, '['));
  expect_error(read_model_config(f.path, {}, models::families(true)).status(), {"config.json", "nested deeper"});
  const TemporaryFolder empty;
  expect_error(read_model_config(empty.path, {}, models::families(true)).status(), {"config.json", "No such file"});
}

TEST(Config, ModelSlimDescription) {
  const TemporaryFolder f;
  f.write("config.json", with(""));
  f.write("quant_model_description_w8a8.json", R"({"model.layers.0.mlp.up_proj.weight":"W8A8"})");
  auto c = read_model_config(f.path, {}, models::families(true));
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->modelslim["model.layers.0.mlp.up_proj.weight"], "W8A8");
  f.write("quant_model_description.json", "{}");
  expect_error(read_model_config(f.path, {}, models::families(true)).status(),
               {"more than one quantisation description"});
}

GgufBuilder gguf_model(std::string_view arch) {
  GgufBuilder b;
  const std::string a(arch);
  b.str("general.architecture", a).u32(a + ".embedding_length", 64).u32(a + ".block_count", 1);
  b.u32(a + ".context_length", 512).u32(a + ".feed_forward_length", 90).u32(a + ".attention.head_count", 4);
  b.f32(a + ".attention.layer_norm_rms_epsilon", 1e-5f);
  b.strings("tokenizer.ggml.tokens", {"a", "b", "c"}).u32("tokenizer.ggml.bos_token_id", 0);
  b.u32("tokenizer.ggml.eos_token_id", 1).u32("tokenizer.ggml.eot_token_id", 2);
  return b;
}

Result<ModelConfigFields> gguf_config(const GgufBuilder& b, std::vector<std::string> overrides = {}) {
  const std::string bytes = b.finish();
  auto file = GgufFile::parse(bytes_of(bytes), "t.gguf");
  EXPECT_TRUE(file.is_ok()) << file.status().message();
  return read_model_config(*file, overrides, models::families(true));
}

TEST(Config, FromGguf) {
  auto c = gguf_config(gguf_model("llama"));
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->architecture, "LlamaForCausalLM");
  EXPECT_EQ(c->num_key_value_heads, 4);
  EXPECT_EQ(c->head_dim, 16);
  EXPECT_EQ(c->rms_norm_eps, 1e-5);
  EXPECT_EQ(c->vocab_size, 3);
  EXPECT_EQ(c->eos_token_ids, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(c->tie_word_embeddings);
  EXPECT_FALSE(c->has_rope_freqs);
  EXPECT_FALSE(c->dtype.has_value());

  GgufBuilder q = gguf_model("qwen3");
  q.u32("qwen3.attention.head_count_kv", 2)
      .u32("qwen3.attention.key_length", 32)
      .u32("qwen3.attention.value_length", 32);
  q.u32("qwen3.rope.dimension_count", 32).f32("qwen3.rope.freq_base", 1e6f).str("qwen3.rope.scaling.type", "yarn");
  q.f32("qwen3.rope.scaling.factor", 4).u32("qwen3.rope.scaling.original_context_length", 128);
  q.f32_tensor("output.weight", {1}, {1}).f32_tensor("rope_freqs.weight", {1}, {1});
  q.f32_tensor("token_embd.weight", {1, 5}, {1, 2, 3, 4, 5});
  auto qwen = gguf_config(q, {"max_position_embeddings=256"});
  ASSERT_TRUE(qwen.is_ok()) << qwen.status().message();
  EXPECT_EQ(qwen->head_dim, 32);
  EXPECT_EQ(qwen->rope.kind, RopeKind::Yarn);
  EXPECT_EQ(qwen->rope.factor, 4.0);
  EXPECT_EQ(qwen->rope.original_max_position_embeddings, 128);
  EXPECT_EQ(qwen->partial_rotary_factor, 1.0);
  EXPECT_FALSE(qwen->tie_word_embeddings);
  EXPECT_TRUE(qwen->has_rope_freqs);
  EXPECT_EQ(qwen->vocab_size, 5);
  EXPECT_EQ(qwen->max_position_embeddings, 256);
}

TEST(Config, ExpertsFromGguf) {
  auto mixtral = gguf_config(gguf_model("llama").u32("llama.expert_count", 8).u32("llama.expert_used_count", 2));
  ASSERT_TRUE(mixtral.is_ok()) << mixtral.status().message();
  EXPECT_EQ(mixtral->architecture, "MixtralForCausalLM");
  EXPECT_EQ(mixtral->experts.count, 8);
  EXPECT_EQ(mixtral->experts.per_token, 2);
  EXPECT_EQ(mixtral->experts.intermediate, 90);

  GgufBuilder q = gguf_model("qwen3moe");
  q.u32("qwen3moe.expert_count", 7).u32("qwen3moe.expert_used_count", 3).u32("qwen3moe.expert_feed_forward_length", 24);
  auto qwen = gguf_config(q);
  ASSERT_TRUE(qwen.is_ok()) << qwen.status().message();
  EXPECT_EQ(qwen->architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(qwen->experts.intermediate, 24);
  EXPECT_TRUE(qwen->experts.normalise);

  for (const bool newer : {true, false})
    for (const bool sigmoid : {true, false}) {
      GgufBuilder d = gguf_model("deepseek2");
      const std::string a = "deepseek2.";
      d.u32(a + "attention.head_count_kv", newer ? 1 : 4).u32(a + "attention.kv_lora_rank", 32);
      d.u32(a + "rope.dimension_count", 8).u32(a + "attention.key_length", newer ? 40 : 24);
      d.u32(a + "attention.value_length", newer ? 32 : 12);
      if (newer) d.u32(a + "attention.key_length_mla", 24).u32(a + "attention.value_length_mla", 12);
      d.u32(a + "expert_count", 12).u32(a + "expert_used_count", 5).u32(a + "expert_feed_forward_length", 18);
      d.u32(a + "expert_shared_count", 2).u32(a + "leading_dense_block_count", 1).f32(a + "expert_weights_scale", 2.5f);
      d.u32(a + "expert_group_count", 4).u32(a + "expert_group_used_count", 2);
      d.u32(a + "expert_gating_func", sigmoid ? 2 : 1);
      d.str(a + "rope.scaling.type", "yarn").f32(a + "rope.scaling.factor", 4);
      d.u32(a + "rope.scaling.original_context_length", 64).f32(a + "rope.scaling.yarn_log_multiplier", 0.0707f);
      auto c = gguf_config(d);
      ASSERT_TRUE(c.is_ok()) << c.status().message();
      EXPECT_EQ(c->architecture, sigmoid ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM");
      ASSERT_TRUE(c->latent.has_value());
      EXPECT_EQ(c->latent->q_lora_rank, 0);
      EXPECT_EQ(c->latent->kv_lora_rank, 32);
      EXPECT_EQ(c->latent->qk_nope_head_dim, 16);
      EXPECT_EQ(c->latent->qk_rope_head_dim, 8);
      EXPECT_EQ(c->latent->v_head_dim, 12);
      EXPECT_EQ(c->num_key_value_heads, 4);
      EXPECT_NEAR(*c->rope.mscale_all_dim, 0.707, 1e-12);
      EXPECT_EQ(c->rope.mscale, c->rope.mscale_all_dim);
      EXPECT_EQ(c->experts.count, 12);
      EXPECT_EQ(c->experts.shared_intermediate, 36);
      EXPECT_EQ(c->experts.first_layer, 1);
      EXPECT_EQ(c->experts.scale, 2.5);
      EXPECT_EQ(c->experts.groups, 4);
      EXPECT_EQ(c->experts.top_groups, 2);
      EXPECT_EQ(c->experts.choice_bias, sigmoid);
    }
}

// A converter of newer files counts a layer that predicts further tokens, and leaves the used groups out.
TEST(Config, NemotronWithExpertsFromGguf) {
  const std::string a = "nemotron_h_moe.";
  const auto model = [&] {
    GgufBuilder b;
    b.str("general.architecture", "nemotron_h_moe").u32(a + "embedding_length", 64).u32(a + "block_count", 3);
    b.u32(a + "context_length", 512).u32(a + "attention.head_count", 4).u32(a + "nextn_predict_layers", 1);
    b.f32(a + "attention.layer_norm_rms_epsilon", 1e-5f).strings("tokenizer.ggml.tokens", {"a", "b"});
    b.array<uint32_t>(a + "attention.head_count_kv", 4, {0, 0, 2})
        .array<uint32_t>(a + "feed_forward_length", 4, {0, 18, 18});
    b.u32(a + "ssm.conv_kernel", 4).u32(a + "ssm.state_size", 16).u32(a + "ssm.group_count", 2);
    b.u32(a + "ssm.inner_size", 96).u32(a + "ssm.time_step_rank", 6);
    b.u32(a + "expert_count", 8).u32(a + "expert_used_count", 3).u32(a + "expert_feed_forward_length", 18);
    b.f32(a + "expert_weights_scale", 2.5f).flag(a + "expert_weights_norm", 1).u32(a + "expert_shared_count", 1);
    b.f32_tensor("blk.0.ssm_in.weight", {1}, {1}).f32_tensor("blk.1.ffn_gate_inp.weight", {1}, {1});
    return b.f32_tensor("blk.2.nextn.eh_proj.weight", {1}, {1});
  };
  auto c = gguf_config(model().u32(a + "expert_shared_feed_forward_length", 36).u32(a + "expert_group_count", 1));
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->architecture, "NemotronHForCausalLM");
  EXPECT_EQ(c->layer_types, (std::vector<std::string>{"linear_attention", "moe"}));
  EXPECT_EQ(c->experts.count, 8);
  EXPECT_EQ(c->experts.per_token, 3);
  EXPECT_EQ(c->experts.intermediate, 18);
  EXPECT_EQ(c->experts.shared_intermediate, 36);
  EXPECT_EQ(c->experts.scale, 2.5);
  EXPECT_EQ(c->experts.groups, 1);
  EXPECT_EQ(c->number("moe_latent_size"), 0);
  expect_error(gguf_config(model()).status(),
               {"t.gguf", "nemotron_h_moe.expert_shared_feed_forward_length", "missing"});
  expect_error(
      gguf_config(model().u32(a + "expert_shared_feed_forward_length", 36).u32(a + "expert_group_count", 2)).status(),
      {"t.gguf", "nemotron_h_moe.expert_group_used_count", "missing"});
}

TEST(Config, EncodersFromGguf) {
  const auto model = [](const char* tokenizer) {
    GgufBuilder b = gguf_model("bert");
    b.f32("bert.attention.layer_norm_epsilon", 1e-5f).str("tokenizer.ggml.model", tokenizer);
    return b.f32_tensor("token_types.weight", {1, 2}, {1, 2});
  };
  auto bert = gguf_config(model("bert")), xlm = gguf_config(model("t5").u32("tokenizer.ggml.token_type_count", 2));
  ASSERT_TRUE(bert.is_ok() && xlm.is_ok()) << bert.status().message() << xlm.status().message();
  EXPECT_EQ(bert->architecture, "BertModel");
  EXPECT_EQ(xlm->architecture, "XLMRobertaModel");
  EXPECT_EQ(xlm->max_position_embeddings, 512) << "the table in the file has no unused rows";
  EXPECT_EQ(xlm->number("type_vocab_size"), 2);
  EXPECT_EQ(xlm->rms_norm_eps, 1e-5);
  const auto scorer = [&] { return model("t5").f32_tensor("cls.output.weight", {1, 1}, {1}); };
  auto scores = gguf_config(scorer().f32_tensor("cls.weight", {1, 1}, {1}));
  ASSERT_TRUE(scores.is_ok()) << scores.status().message();
  EXPECT_EQ(scores->architecture, "XLMRobertaForSequenceClassification");
  expect_error(gguf_config(scorer()).status(), {"t.gguf", "cls.output.weight", "without \"cls.weight\""});
  expect_error(gguf_config(model("t5").u32("tokenizer.ggml.token_type_count", 3)).status(),
               {"t.gguf", "\"tokenizer.ggml.token_type_count\" is 3", "\"token_types.weight\" has 2 rows"});
  expect_error(gguf_config(gguf_model("bert").f32("bert.attention.layer_norm_epsilon", 1e-5f)).status(),
               {"t.gguf", "token_types.weight", "missing"});
}

TEST(Config, PoolingFromGguf) {
  const auto read = [](const GgufBuilder& b) {
    const std::string bytes = b.finish();
    auto file = GgufFile::parse(bytes_of(bytes), "t.gguf");
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    return read_pooling(*file);
  };
  EXPECT_EQ(read(gguf_model("qwen3"))->kind, PoolKind::None);
  const PoolKind kinds[] = {PoolKind::None, PoolKind::Mean, PoolKind::First, PoolKind::Last, PoolKind::Labels};
  for (uint32_t type = 0; type < 5; ++type) {
    const auto pooling = read(gguf_model("qwen3").u32("qwen3.pooling_type", type));
    ASSERT_TRUE(pooling.is_ok()) << pooling.status().message();
    EXPECT_EQ(pooling->kind, kinds[type]);
    EXPECT_EQ(pooling->normalise, type >= 1 && type <= 3);
  }
  const auto ranks = [](const std::vector<std::string>& labels, uint64_t rows) {
    return gguf_model("qwen3")
        .u32("qwen3.pooling_type", 4)
        .strings("qwen3.classifier.output_labels", labels)
        .f32_tensor("cls.output.weight", {1, rows}, std::vector<float>(rows, 1.0f));
  };
  const auto answers = read(ranks({"no", "yes"}, 2));
  ASSERT_TRUE(answers.is_ok()) << answers.status().message();
  EXPECT_EQ(answers->kind, PoolKind::YesNo);
  EXPECT_TRUE(answers->classifier);
  EXPECT_EQ(answers->yes, 1);
  EXPECT_EQ(answers->no, 0);
  EXPECT_EQ(read(ranks({"good", "bad"}, 2))->kind, PoolKind::Labels);
  expect_error(read(ranks({"yes", "no"}, 3)).status(), {"t.gguf", "cls.output.weight", "two rows"});
  expect_error(read(gguf_model("qwen3").u32("qwen3.pooling_type", 4).u32("qwen3.classifier.output_labels", 2)).status(),
               {"t.gguf", "qwen3.classifier.output_labels", "array of strings"});
  expect_error(read(gguf_model("bert").u32("bert.pooling_type", 5)).status(),
               {"t.gguf", "\"bert.pooling_type\" is 5", "4 (rank)"});
  expect_error(read(gguf_model("bert").str("bert.pooling_type", "mean")).status(), {"t.gguf", "bert.pooling_type"});
}

TEST(Config, GgufErrors) {
  expect_error(gguf_config(GgufBuilder()).status(), {"t.gguf", "general.architecture", "missing"});
  expect_error(gguf_config(GgufBuilder().str("general.architecture", "gpt2")).status(), {"\"gpt2\"", "known: llama"});
  expect_error(gguf_config(GgufBuilder().str("general.architecture", "llama")).status(),
               {"llama.embedding_length", "missing"});
  expect_error(gguf_config(gguf_model("qwen3").u32("qwen3.expert_count", 8)).status(),
               {"mixture of 8 experts", "allowed: llama4, llama, qwen2moe, qwen3moe, deepseek2"});
  expect_error(gguf_config(gguf_model("llama").u32("llama.expert_count", 8)).status(),
               {"llama.expert_used_count", "missing"});
  expect_error(gguf_config(gguf_model("qwen3moe")).status(), {"qwen3moe.expert_count", "missing"});
  expect_error(gguf_config(gguf_model("deepseek2")).status(), {"deepseek2.attention.kv_lora_rank", "missing"});
  expect_error(gguf_config(gguf_model("deepseek2").u32("deepseek2.expert_gating_func", 3)).status(),
               {"expert_gating_func", "is 3", "1 (softmax), 2 (sigmoid)"});
  expect_error(gguf_config(gguf_model("llama").str("llama.rope.freq_base", "x")).status(),
               {"llama.rope.freq_base", "expected a number"});
  expect_error(gguf_config(gguf_model("llama").str("llama.rope.scaling.type", "longrope")).status(),
               {"original_max_position_embeddings is missing"});
  expect_error(gguf_config(gguf_model("llama").u32("llama.attention.key_length", 0)).status(), {"key_length", "is 0"});
  expect_error(gguf_config(gguf_model("llama").u32("llama.rope.dimension_count", 17)).status(),
               {"rope.dimension_count", "1 to 16"});
  expect_error(gguf_config(gguf_model("llama").array<uint32_t>("llama.attention.head_count_kv", 4, {4, 2})).status(),
               {"head_count_kv", "differs between layers"});
  EXPECT_EQ(
      gguf_config(gguf_model("llama").array<uint32_t>("llama.attention.head_count_kv", 4, {2, 2}))->num_key_value_heads,
      2);
}

TEST(GenerationConfig, ReadsAndChecks) {
  const auto of = [](std::string_view text) { return parse_generation_config(*parse_json(text, "g"), "g.json"); };
  auto g = of(R"({"eos_token_id":[1,2],"bos_token_id":0,"do_sample":true,"temperature":0.6,"top_p":0.95,"top_k":20,)"
              R"("repetition_penalty":1.05,"transformers_version":"4"})");
  ASSERT_TRUE(g.is_ok()) << g.status().message();
  EXPECT_EQ(g->eos_token_ids.size(), 2u);
  EXPECT_EQ(g->temperature, 0.6);
  EXPECT_EQ(g->top_k, 20);
  EXPECT_EQ(g->do_sample, true);
  EXPECT_FALSE(of("{}")->top_p.has_value());
  expect_error(of(R"({"top_p":2})").status(), {"g.json", "top_p is 2", "0 to 1"});
  expect_error(of(R"({"temperature":"hot"})").status(), {"temperature is \"hot\""});
  expect_error(of(R"({"repetition_penalty":0})").status(), {"repetition_penalty is 0"});
  expect_error(of("3").status(), {"not a JSON object"});
  const TemporaryFolder f;
  EXPECT_TRUE(read_generation_config(f.path)->eos_token_ids.empty());
  GgufBuilder b = gguf_model("llama");
  b.f32("general.sampling.temp", 0.7f);
  const std::string path = f.write("m.gguf", b.finish());
  EXPECT_EQ(read_generation_config(path)->eos_token_ids, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read_generation_config(path)->temperature, 0.7);
}

}  // namespace
}  // namespace reprise::checkpoint::config_test
