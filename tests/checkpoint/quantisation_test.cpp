// Plans read from ModelSlim and compressed-tensors checkpoints (F53, F54), what they refuse, and the numbers behind
// recipes.
#include "checkpoint/quantisation.h"

#include <cmath>
#include <functional>
#include <limits>

#include "checkpoint/quantise_rows.h"
#include "helpers.h"
#include "models/model.h"

namespace reprise::checkpoint::quantisation_test {
namespace {

// A safetensors file in memory: int8 weights of [3, 4] and whatever belongs to them.
struct Files {
  std::map<std::string, std::tuple<std::string, std::vector<int64_t>, std::string>> tensors;
  Json description = nullptr, quantization = nullptr;
  std::string bytes;

  template <typename T>
  Files& add(const std::string& name, const char* type, std::vector<int64_t> shape, std::vector<T> values) {
    tensors[name] = {type, std::move(shape),
                     std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
    return *this;
  }
  Files& weight(const std::string& module) {
    return add<int8_t>(module + ".weight", "I8", {3, 4}, {1, 2, 3, 4, -5, -6, -7, -8, 9, 10, 11, 12});
  }
  Files& floats(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    return add<float>(name, "F32", std::move(shape), std::move(values));
  }
  Files& is_static(const std::string& module, float scale = 0.5f, float offset = 3) {
    weight(module);
    floats(module + ".weight_offset", {3, 1}, {0, 0, 0}).floats(module + ".weight_scale", {3, 1}, {1, 2, 3});
    floats(module + ".input_scale", {1}, {scale}).floats(module + ".input_offset", {1}, {offset});
    return *this;
  }
  Files& plain(const std::string& module) { return floats(module + ".weight", {3, 4}, std::vector<float>(12, 0.5f)); }

  Result<Checkpoint> open() {
    Json header = Json::object();
    std::string data;
    for (const auto& [name, t] : tensors) {
      const auto& [type, shape, raw] = t;
      header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + raw.size()}}};
      data += raw;
    }
    bytes = safetensors_bytes(header.dump(), 0) + data;
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::parse(bytes_of(bytes), "test"));
    return Checkpoint::from_safetensors(std::move(file), models::families());
  }
  Result<QuantPlan> plan(Quantization asked = Quantization::Auto) {
    ASSIGN_OR_RETURN(const Checkpoint checkpoint, open());
    ModelConfigFields config;
    config.source = "test";
    config.modelslim = description;
    config.quantization = quantization;
    return make_quant_plan(asked, config, &checkpoint);
  }
};

Files modelslim() {
  Files f;
  f.is_static("l.q_proj").is_static("l.k_proj").weight("l.down_proj").plain("lm_head");
  f.description = {{"l.q_proj.weight", "W8A8"},
                   {"l.k_proj.weight", "W8A8"},
                   {"l.down_proj.weight", "W8A8_DYNAMIC"},
                   {"lm_head.weight", "FLOAT"},
                   {"model_quant_type", "W8A8"}};
  return f;
}

TEST(ModelSlimPlan, EveryTensorHasItsOwnType) {
  const auto plan = modelslim().plan();
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->format, Quantization::ModelSlim);
  EXPECT_EQ(plan->of("l.q_proj.weight").scheme, LinearScheme::W8A8Static);
  EXPECT_EQ(plan->of("l.q_proj.weight").input_scale, 0.5f);
  EXPECT_EQ(plan->of("l.q_proj.weight").input_offset, 3.0f);
  EXPECT_EQ(plan->of("l.down_proj.weight").scheme, LinearScheme::W8A8Dynamic);
  EXPECT_EQ(plan->of("lm_head.weight").scheme, LinearScheme::Float);
  EXPECT_EQ(plan->of("unknown.weight").scheme, LinearScheme::Float);
  EXPECT_TRUE(plan->seen.contains("l.q_proj.weight_offset"));
  EXPECT_EQ(plan->summary(), "modelslim (2 static, 1 dynamic, 1 float linears)");
}

TEST(ModelSlimPlan, AFusedNameAndAnIgnoreListCount) {
  Files f = modelslim();
  f.description.erase("l.q_proj.weight");
  f.description.erase("l.k_proj.weight");
  f.description["l.qkv_proj.weight"] = "W8A8";
  f.description["lm_head.weight"] = "W8A8";
  f.description["ignore"] = {"lm_head"};
  const auto plan = f.plan();
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->of("l.k_proj.weight").scheme, LinearScheme::W8A8Static);
  EXPECT_EQ(plan->of("lm_head.weight").scheme, LinearScheme::Float);
}

TEST(ModelSlimPlan, ErrorsNameTheTensorAndWhatIsAllowed) {
  struct Case {
    std::function<void(Files&)> change;
    std::vector<std::string_view> words;
  };
  const std::string allowed = "allowed: FLOAT, W8A8, W8A8_DYNAMIC";
  const std::vector<Case> cases{
      {[](Files& f) { f.description["l.q_proj.weight"] = "W8A7"; },
       {"l.q_proj.weight", "unknown type \"W8A7\"", allowed}},
      {[](Files& f) { f.description["l.q_proj.weight"] = "W4A8_DYNAMIC"; },
       {"l.q_proj.weight", "W4A8_DYNAMIC", allowed}},
      {[](Files& f) { f.description["l.q_proj.weight"] = 8; }, {"l.q_proj.weight", "not a string", allowed}},
      {[](Files& f) { f.description.erase("l.down_proj.weight"); }, {"l.down_proj.weight", "I8", "no type", allowed}},
      {[](Files& f) { f.plain("l.k_proj").description["l.k_proj.weight"] = "FLOAT"; },
       {"l.q_proj.weight", "l.k_proj.weight", "only one of them is FLOAT"}},
      {[](Files& f) { f.description["l.down_proj.weight"] = "FLOAT"; }, {"l.down_proj.weight", "stored as I8"}},
      {[](Files& f) { f.description["lm_head.weight"] = "W8A8_DYNAMIC"; },
       {"lm_head.weight", "stored as F32", "allowed: I8"}},
      {[](Files& f) {
         f.floats("l.q_proj.weight_offset", {3, 1}, {0, 1, 0});
       },
       {"l.q_proj.weight_offset", "allowed: 0", "symmetric"}},
      {[](Files& f) { f.floats("l.q_proj.input_scale", {1}, {0}); }, {"l.q_proj.input_scale", "positive"}},
      {[](Files& f) {
         f.floats("l.q_proj.input_scale", {2}, {1, 1});
       },
       {"l.q_proj.input_scale", "one number"}},
      {[](Files& f) { f.floats("l.q_proj.input_scale", {1}, {std::numeric_limits<float>::infinity()}); },
       {"l.q_proj.input_scale", "NaN or infinite"}},
      {[](Files& f) { f.tensors.erase("l.q_proj.input_offset"); }, {"no tensor \"l.q_proj.input_offset\""}},
      {[](Files& f) {
         f.floats("l.input_layernorm.bias", {2}, {1, std::numeric_limits<float>::infinity()});
       },
       {"l.input_layernorm.bias", "NaN or infinite"}},
  };
  for (const Case& c : cases) {
    Files f = modelslim();
    c.change(f);
    expect_error(f.plan().status(), c.words);
  }
}

// F43: a bias that smoothing left behind a norm is part of the plan, of its text (which is the key of caches) and of
// the start-up line; zeros are none.
TEST(ModelSlimPlan, NormBiases) {
  Files f = modelslim();
  f.floats("l.input_layernorm.bias", {4}, {0, 1, 0, 0});
  f.floats("model.norm.bias", {4}, {0, 0, 0, 0});
  const auto with = f.plan(), without = modelslim().plan();
  ASSERT_TRUE(with.is_ok() && without.is_ok()) << with.status().message();
  EXPECT_EQ(with->norm_biases, (std::set<std::string, std::less<>>{"l.input_layernorm.bias"}));
  EXPECT_FALSE(with->seen.contains("l.input_layernorm.bias"));
  EXPECT_TRUE(with->seen.contains("model.norm.bias"));
  EXPECT_NE(with->text(), without->text());
  EXPECT_TRUE(with->summary().ends_with(", 1 norm bias)")) << with->summary();
  EXPECT_TRUE(without->norm_biases.empty());
}

TEST(QuantPlanTest, WhatIsAskedMustBeWhatIsThere) {
  expect_error(modelslim().plan(Quantization::None).status(),
               {"quantised (modelslim)", "none", "allowed: auto, modelslim"});
  expect_error(modelslim().plan(Quantization::CompressedTensors).status(),
               {"quantised (modelslim)", "compressed-tensors"});
  EXPECT_TRUE(modelslim().plan(Quantization::ModelSlim).is_ok());
  EXPECT_EQ(modelslim().plan(Quantization::W8A8Int8)->format, Quantization::ModelSlim) << "the older name";
  Files plain;
  plain.plain("lm_head");
  expect_error(plain.plan(Quantization::ModelSlim).status(),
               {"not quantised", "modelslim", "allowed: auto, none, w8a8_int8"});
  EXPECT_EQ(plain.plan(Quantization::Auto)->format, Quantization::None);
  const auto plan = plain.plan(Quantization::W8A8Int8);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_EQ(plan->of("anything.weight").scheme, LinearScheme::W8A8Dynamic);
  EXPECT_NE(plan->text(), plain.plan(Quantization::None)->text());
  EXPECT_FALSE(parse_quantization("awq").is_ok());
  for (int i = 0; i < 6; ++i) {
    const auto q = static_cast<Quantization>(i);
    EXPECT_EQ(*parse_quantization(quantization_name(q)), q);
  }
}

// A GGUF file of llama's matrices [32, 32], each of the type that `types` names by GGUF's name, else F32.
Result<QuantPlan> gguf_plan_of(const std::map<std::string, uint32_t>& types, Quantization asked) {
  static const std::map<uint32_t, size_t> kBlockBytes{{0, 128}, {1, 64}, {2, 18}, {3, 20}, {6, 22}, {8, 34}, {20, 18}};
  GgufBuilder b;
  b.str("general.architecture", "llama").u32("llama.block_count", 1);
  b.u32("llama.attention.head_count", 1).u32("llama.attention.head_count_kv", 1);
  for (const char* name : {"token_embd", "blk.0.attn_q", "blk.0.attn_v", "blk.0.ffn_up", "output"}) {
    const auto it = types.find(name);
    const uint32_t type = it == types.end() ? 0 : it->second;
    b.tensor(fmt::format("{}.weight", name), {32, 32}, type, std::string(32 * kBlockBytes.at(type), '\1'));
  }
  const std::string bytes = b.finish();
  ASSIGN_OR_RETURN(GgufFile file, GgufFile::parse(bytes_of(bytes), "t.gguf"));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::from_gguf(std::move(file), models::families()));
  ModelConfigFields config;
  config.source = "t.gguf";
  return make_quant_plan(asked, config, &checkpoint);
}

TEST(GgufPlan, MatricesInBlocksStay) {
  const std::map<std::string, uint32_t> mix{
      {"token_embd", 8}, {"blk.0.attn_q", 3}, {"blk.0.attn_v", 2}, {"output", 20}};
  for (auto asked : {Quantization::Auto, Quantization::Gguf}) {
    const auto plan = gguf_plan_of(mix, asked);
    ASSERT_TRUE(plan.is_ok()) << plan.status().message();
    EXPECT_EQ(plan->format, Quantization::Gguf);
    EXPECT_EQ(plan->summary(), "gguf (1 iq4_nl, 1 q4_0, 1 q4_1, 1 q8_0 kept packed)");
    const LinearQuant& table = plan->of("model.embed_tokens.weight");
    EXPECT_EQ(table.scheme, LinearScheme::Packed);
    EXPECT_EQ(table.block, BlockFormat::Q8_0);
    EXPECT_EQ(plan->of("model.layers.0.self_attn.q_proj.weight").block, BlockFormat::Q4_1);
    EXPECT_EQ(plan->of("model.layers.0.self_attn.v_proj.weight").block, BlockFormat::Q4_0);
    EXPECT_EQ(plan->of("model.layers.0.mlp.up_proj.weight").scheme, LinearScheme::Float);
    EXPECT_EQ(plan->of("lm_head.weight").block, BlockFormat::IQ4_NL);
    // Whatever changes the program is in the text that plans are cached by.
    auto other = mix;
    other["blk.0.attn_q"] = 2;
    EXPECT_NE(gguf_plan_of(other, asked)->text(), plan->text());
  }
  const auto none = gguf_plan_of(mix, Quantization::None);
  ASSERT_TRUE(none.is_ok()) << none.status().message();
  EXPECT_EQ(none->summary(), "none");
  EXPECT_EQ(none->of("model.embed_tokens.weight").scheme, LinearScheme::Float);
  EXPECT_EQ(gguf_plan_of(mix, Quantization::W8A8Int8)->of("lm_head.weight").scheme, LinearScheme::W8A8Dynamic);
}

TEST(GgufPlan, WithoutSuchBlocksItIsAFloatModel) {
  EXPECT_EQ(gguf_plan_of({{"output", 1}}, Quantization::Auto)->summary(), "none");
  for (uint32_t type : {0u, 1u})
    expect_error(gguf_plan_of({{"output", type}}, Quantization::Gguf).status(),
                 {"no matrix in a GGUF block type", "allowed: auto, none, w8a8_int8"});
  expect_error(gguf_plan_of({{"output", 8}}, Quantization::ModelSlim).status(), {"not quantised", "modelslim"});
}

Files compressed() {
  Files f;
  for (const char* module : {"m.layers.0.q_proj", "m.layers.1.q_proj"})
    f.weight(module).floats(std::string(module) + ".weight_scale", {3, 1}, {1, 2, 3});
  f.plain("lm_head").floats("m.embed_tokens.weight", {3, 4}, std::vector<float>(12, 1.0f));
  f.quantization =
      Json::parse(R"({"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
    "quantization_status": "compressed", "kv_cache_scheme": null, "sparsity_config": {}, "config_groups": {"group_0": {
    "targets": ["Linear"], "output_activations": null,
    "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false},
    "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true}}}})");
  return f;
}

Json& group(Files& f) { return f.quantization["config_groups"]["group_0"]; }

void make_static(Files& f, bool symmetric) {
  group(f)["input_activations"] = {
      {"num_bits", 8}, {"type", "int"}, {"symmetric", symmetric}, {"strategy", "tensor"}, {"dynamic", false}};
  for (const char* module : {"m.layers.0.q_proj", "m.layers.1.q_proj"}) {
    f.floats(std::string(module) + ".input_scale", {1}, {0.25f});
    if (!symmetric) f.add<int8_t>(std::string(module) + ".input_zero_point", "I8", {1}, {-5});
  }
}

TEST(CompressedTensorsPlan, GroupsTargetsAndIgnore) {
  Files f = compressed();
  auto plan = f.plan();
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->format, Quantization::CompressedTensors);
  EXPECT_EQ(plan->of("m.layers.0.q_proj.weight").scheme, LinearScheme::W8A8Dynamic);
  EXPECT_EQ(plan->of("lm_head.weight").scheme, LinearScheme::Float);

  make_static(f, false);
  plan = f.plan();
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->of("m.layers.1.q_proj.weight").scheme, LinearScheme::W8A8Static);
  EXPECT_EQ(plan->of("m.layers.1.q_proj.weight").input_scale, 0.25f);
  EXPECT_EQ(plan->of("m.layers.1.q_proj.weight").input_offset, -5.0f);

  // A name or an expression; what begins like it counts, as in Python's re.match.
  for (const char* target : {"m.layers.0.q_proj", "re:m\\.layers\\.0", "re:.*0\\.q_proj$"}) {
    Files some = compressed();
    group(some)["targets"] = {target};
    some.plain("m.layers.1.q_proj").tensors.erase("m.layers.1.q_proj.weight_scale");
    plan = some.plan();
    ASSERT_TRUE(plan.is_ok()) << target << ": " << plan.status().message();
    EXPECT_EQ(plan->of("m.layers.0.q_proj.weight").scheme, LinearScheme::W8A8Dynamic) << target;
    EXPECT_EQ(plan->of("m.layers.1.q_proj.weight").scheme, LinearScheme::Float) << target;
  }
}

// Experts are read under one set of names; the configuration may use those of the file.
TEST(CompressedTensorsPlan, MixtralsOwnNamesCount) {
  Files f = compressed();
  const std::string moe = "model.layers.0.block_sparse_moe.";
  f.plain(moe + "gate").weight(moe + "experts.1.w3").floats(moe + "experts.1.w3.weight_scale", {3, 1}, {1, 2, 3});
  f.quantization["ignore"] = {"lm_head", "re:.*block_sparse_moe.gate$"};
  const auto plan = f.plan();
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->of("model.layers.0.mlp.gate.weight").scheme, LinearScheme::Float);
  EXPECT_EQ(plan->of("model.layers.0.mlp.experts.1.up_proj.weight").scheme, LinearScheme::W8A8Dynamic);
}

TEST(CompressedTensorsPlan, ErrorsNameTheFieldAndWhatIsAllowed) {
  struct Case {
    std::function<void(Files&)> change;
    std::vector<std::string_view> words;
  };
  const std::vector<Case> cases{
      {[](Files& f) { f.quantization["quant_method"] = "gptq"; },
       {"quant_method", "gptq", "allowed: compressed-tensors, mxfp4"}},
      {[](Files& f) { f.quantization["format"] = "pack-quantized"; }, {"format", "allowed: int-quantized"}},
      {[](Files& f) {
         f.quantization["kv_cache_scheme"] = {{"num_bits", 8}};
       },
       {"kv_cache_scheme", "allowed: null"}},
      {[](Files& f) {
         f.quantization["sparsity_config"] = {{"format", "sparse-24"}};
       },
       {"sparsity_config", "allowed: null"}},
      {[](Files& f) { f.quantization["ignore"] = "lm_head"; }, {"ignore", "allowed: a list of strings"}},
      {[](Files& f) { f.quantization["ignore"] = {"re:("}; }, {"ignore", "regular expression"}},
      {[](Files& f) { f.quantization.erase("config_groups"); }, {"config_groups is missing"}},
      {[](Files& f) { group(f)["weights"]["num_bits"] = 4; }, {"group_0.weights.num_bits is 4", "allowed: 8"}},
      {[](Files& f) { group(f)["weights"]["type"] = "float"; }, {"weights.type", "allowed: int"}},
      {[](Files& f) { group(f)["weights"]["symmetric"] = false; }, {"weights.symmetric", "allowed: true"}},
      {[](Files& f) { group(f)["weights"]["strategy"] = "group"; }, {"weights.strategy", "allowed: channel, tensor"}},
      {[](Files& f) { group(f)["input_activations"] = nullptr; }, {"input_activations", "allowed: an object"}},
      {[](Files& f) { group(f)["input_activations"]["symmetric"] = false; },
       {"input_activations.symmetric", "allowed: true"}},
      {[](Files& f) { group(f)["input_activations"]["strategy"] = "tensor"; },
       {"input_activations.strategy", "allowed: token"}},
      {[](Files& f) {
         group(f)["output_activations"] = {{"num_bits", 8}};
       },
       {"output_activations", "allowed: null"}},
      {[](Files& f) { group(f).erase("targets"); }, {"targets is missing"}},
      {[](Files& f) { f.quantization["ignore"] = Json::array(); }, {"lm_head.weight_scale"}},
      {[](Files& f) { f.floats("m.layers.0.q_proj.weight_scale", {1}, {1}); },
       {"m.layers.0.q_proj.weight_scale", "channel"}},
      {[](Files& f) {
         f.add<int8_t>("m.layers.0.q_proj.weight_zero_point", "I8", {3, 1}, {0, 2, 0});
       },
       {"weight_zero_point", "allowed: 0"}},
      {[](Files& f) { f.plain("m.layers.0.q_proj"); }, {"m.layers.0.q_proj.weight", "stored as F32", "allowed: I8"}},
      {[](Files& f) {
         f.quantization["ignore"] = {"lm_head", "m.layers.0.q_proj"};
       },
       {"m.layers.0.q_proj.weight", "stored as I8"}},
      {[](Files& f) {
         make_static(f, true);
         f.tensors.erase("m.layers.1.q_proj.input_scale");
       },
       {"no tensor \"m.layers.1.q_proj.input_scale\""}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    Files f = compressed();
    cases[i].change(f);
    expect_error(f.plan().status(), cases[i].words);
  }
}

TEST(QuantiseRows, RoundsHalfToEvenAndKeepsZeroRows) {
  constexpr int64_t kWidth = 21;  // not a whole number of vectors
  std::vector<float> rows(4 * kWidth, 0.0f);
  // A scale of exactly 1: halves are ties.
  for (int64_t i = 0; i < kWidth; ++i) rows[static_cast<size_t>(i)] = static_cast<float>(i) - 10.5f;
  rows[kWidth - 1] = 127;
  for (int64_t i = 0; i < kWidth; ++i) rows[static_cast<size_t>(2 * kWidth + i)] = 1e-3f * static_cast<float>(i - 17);
  rows[3 * kWidth] = std::numeric_limits<float>::denorm_min();  // its scale is 0
  std::vector<float> scales(4);
  std::vector<int8_t> q(4 * kWidth, 99);
  row_scales(rows.data(), 4, kWidth, scales.data());
  quantise_rows(rows.data(), scales.data(), 4, kWidth, q.data());
  EXPECT_EQ(scales[0], 1.0f);
  EXPECT_EQ(scales[1], 0.0f);
  EXPECT_EQ(scales[2], 0.017f / 127.0f);
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t i = 0; i < kWidth; ++i) {
      const float v = rows[static_cast<size_t>(r * kWidth + i)], s = scales[static_cast<size_t>(r)];
      const double expected = s == 0 ? 0 : std::nearbyint(static_cast<double>(v / s));
      EXPECT_EQ(q[static_cast<size_t>(r * kWidth + i)], expected) << r << " " << i;
    }
}

TEST(ReadNumbers, EveryTypeAndTheBitsInInt64) {
  Files f;
  f.add<int8_t>("a", "I8", {2}, {-5, 7}).add<int32_t>("b", "I32", {2}, {-70000, 3}).add<int64_t>("c", "I64", {1}, {-9});
  const float scale = 0.0123f;
  uint32_t bits = 0;
  std::memcpy(&bits, &scale, 4);
  f.add<int64_t>("deq", "I64", {2}, {bits, bits}).add<int64_t>("bad", "I64", {1}, {int64_t{5} << 32});
  f.floats("plain", {2}, {1.5f, -2});
  auto c = f.open();
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(*read_numbers(*c, *c->find("a")), (std::vector<float>{-5, 7}));
  EXPECT_EQ(*read_numbers(*c, *c->find("b")), (std::vector<float>{-70000, 3}));
  EXPECT_EQ(*read_numbers(*c, *c->find("c")), (std::vector<float>{-9}));
  EXPECT_EQ(*read_deq_scales(*c, *c->find("deq")), (std::vector<float>{scale, scale}));
  EXPECT_EQ(*read_deq_scales(*c, *c->find("plain")), (std::vector<float>{1.5f, -2}));
  expect_error(read_deq_scales(*c, *c->find("bad")).status(), {"\"bad\"", "not the bits of a finite F32"});
  expect_error(read_deq_scales(*c, *c->find("b")).status(), {"\"b\"", "I32"});
}

}  // namespace
}  // namespace reprise::checkpoint::quantisation_test
