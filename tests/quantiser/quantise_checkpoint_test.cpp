// quantise_checkpoint(): the folders it makes, loaded again: near the float model, nearer with smoothing where
// activations have outliers; what it reports; what it refuses.
#include "quantiser/checkpoint_quantiser.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/half.h"
#include "checkpoint/quantise_rows.h"
#include "models/model.h"
#include "support/tiny_models.h"

namespace reprise::quantise_checkpoint_test {
namespace {

using quantiser::QuantFormat;
using quantiser::QuantiseOptions;
using testing_support::EngineSetup;

class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(testing::TempDir() + "/reprise_quantised_" + name + "_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<int32_t> tokens_of(int64_t n, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>((i * 37 + i * i + 3) % vocab));
  return tokens;
}

quantiser::InputObservations observe(const std::string& path) {
  engine::EngineOptions o;
  DeviceOptions device;
  device.threads = 2;
  device.pin_threads = false;
  auto platform = make_platform(device);
  EXPECT_TRUE(platform.is_ok());
  o.model_path = path;
  o.dtype = DType::F32;
  o.max_running_requests = 2;
  o.context_length = 256;
  o.max_total_tokens = 1024;
  o.graph.policy = engine::GraphPolicy::Off;
  o.graph.pipeline.observe_linears = true;
  auto engine = engine::Engine::create(o, std::move(*platform));
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  quantiser::ObserveOptions options;
  options.window = 50;
  options.samples = 16;
  auto seen = quantiser::observe_inputs(**engine, tokens_of(230, (*engine)->config().vocab_size), options);
  EXPECT_TRUE(seen.is_ok()) << seen.status().message();
  return *seen;
}

Result<quantiser::QuantisedCheckpoint> quantise(const std::string& path, const QuantiseOptions& options,
                                                bool with_seen) {
  auto source = checkpoint::Checkpoint::open(path, models::families());
  if (!source) return source.status();
  return quantiser::quantise_checkpoint(*source, with_seen ? observe(path) : quantiser::InputObservations{}, options);
}

void write(const quantiser::QuantisedCheckpoint& q, const std::string& from, const std::string& to, const char* dtype) {
  std::vector<checkpoint::TensorToWrite> tensors;
  for (const auto& t : q.tensors) tensors.push_back({t.name, t.dtype, t.shape, t.bytes});
  ASSERT_TRUE(checkpoint::write_safetensors(to + "/model.safetensors", tensors).is_ok());
  auto read = checkpoint::read_model_config(from, {}, models::families());
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  Json config = read->raw_json;
  config["dtype"] = dtype;
  if (!q.quantization_config.is_null()) config["quantization_config"] = q.quantization_config;
  std::ofstream(to + "/config.json") << config.dump();
  if (!q.description.is_null()) std::ofstream(to + "/quant_model_description.json") << q.description.dump();
}

std::vector<float> logits_of(const std::string& path, DType dtype) {
  EngineSetup setup;
  setup.dtype = dtype;
  auto engine = testing_support::open_engine(path, setup);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  if (!engine.is_ok()) return {};
  return testing_support::all_logits(**engine, tokens_of(61, (*engine)->config().vocab_size), 1000);
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  if (a.size() != b.size()) return 1;
  double off = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    off += static_cast<double>((a[i] - b[i]) * (a[i] - b[i]));
    all += static_cast<double>(a[i] * a[i]);
  }
  return std::sqrt(off / all);
}

struct Case {
  const char* model;
  QuantFormat format;
  bool is_static;
  double smooth;
  DType dtype;
};

class QuantiseCheckpoint : public testing::TestWithParam<Case> {};

TEST_P(QuantiseCheckpoint, LoadsAndIsNearTheFloatModel) {
  const Case& c = GetParam();
  const std::string source = testing_support::tiny_model_path(c.model);
  QuantiseOptions options;
  options.format = c.format;
  options.static_activations = c.is_static;
  options.smooth = c.smooth;
  options.dtype = c.dtype;
  options.threads = 2;
  options.ignore = {"lm_head"};
  if (c.is_static) options.dynamic = {"down_proj"};
  auto q = quantise(source, options, c.is_static || c.smooth > 0);
  ASSERT_TRUE(q.is_ok()) << q.status().message();
  for (const auto& l : q->linears) {
    EXPECT_GT(l.weight_error, 0) << l.weight;
    EXPECT_LT(l.weight_error, 0.02) << l.weight;  // 1 / (254 sqrt 3) of the largest of a row, and rows are short
    EXPECT_EQ(l.is_static, c.is_static && l.weight.find("down_proj") == std::string::npos) << l.weight;
    EXPECT_EQ(l.output_error.has_value(), c.is_static || c.smooth > 0);
    if (l.output_error) {
      EXPECT_LT(*l.output_error, 0.05) << l.weight;
    }
  }
  const Folder folder(fmt::format("{}_{}_{}_{}", c.model, static_cast<int>(c.format), c.is_static, c.smooth));
  write(*q, source, folder.path(), c.dtype == DType::F16 ? "float16" : "bfloat16");
  const double error = relative_error(logits_of(source, c.dtype), logits_of(folder.path(), c.dtype));
  EXPECT_GT(error, 0);  // it was the quantised model that ran
  EXPECT_LT(error, 0.06);
}

// Of families with fused tensors, other norms, experts, latents and states, whose linears are dynamic in both formats.
constexpr const char* kFamilies[] = {"internlm3",
                                     "mistral_window24",
                                     "ministral3",
                                     "mixtral_top2",
                                     "qwen2_moe_shared",
                                     "qwen3_moe_norm",
                                     "deepseek_v2_lite",
                                     "deepseek_v3_kimi_k2",
                                     "gemma2",
                                     "gemma3",
                                     "phi3_partial",
                                     "glm4",
                                     "glm4_moe",
                                     "olmo2",
                                     "olmo3",
                                     "granite",
                                     "granite_moe",
                                     "granite_hybrid",
                                     "smollm3",
                                     "cohere",
                                     "cohere2",
                                     "starcoder2",
                                     "exaone4_window",
                                     "ernie",
                                     "ernie_moe",
                                     "seed_oss",
                                     "hunyuan",
                                     "hunyuan_moe",
                                     "minimax_m2",
                                     "gpt_oss",
                                     "qwen3_next",
                                     "qwen3_5",
                                     "nemotron_h",
                                     "nemotron_h_moe"};

std::vector<Case> cases() {
  std::vector<Case> out{Case{"llama_bias", QuantFormat::CompressedTensors, false, 0, DType::BF16},
                        Case{"llama_bias", QuantFormat::CompressedTensors, true, 0.5, DType::BF16},
                        Case{"llama_bias", QuantFormat::ModelSlim, true, 0, DType::BF16},
                        Case{"llama_bias", QuantFormat::ModelSlim, true, 0.5, DType::F16},
                        Case{"qwen2_untied", QuantFormat::ModelSlim, true, 0.5, DType::BF16},
                        Case{"qwen3_tied", QuantFormat::ModelSlim, false, 0, DType::BF16},
                        Case{"qwen3_tied", QuantFormat::CompressedTensors, true, 0, DType::F16},
                        Case{"llama_gqa4_sharded", QuantFormat::CompressedTensors, false, 0.5, DType::BF16}};
  for (const char* model : kFamilies)
    for (const QuantFormat format : {QuantFormat::CompressedTensors, QuantFormat::ModelSlim})
      out.push_back({model, format, false, 0, DType::BF16});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, QuantiseCheckpoint, testing::ValuesIn(cases()), [](const auto& info) {
  return fmt::format("{}_{}_{}{}_{}", info.param.model,
                     info.param.format == QuantFormat::ModelSlim ? "modelslim" : "compressed",
                     info.param.is_static ? "static" : "dynamic", info.param.smooth > 0 ? "_smooth" : "",
                     dtype_name(info.param.dtype));
});

TEST(QuantiseCheckpointNumbers, AreThoseOfTheFormulas) {
  const std::string source = testing_support::tiny_model_path("llama_bias");
  QuantiseOptions options;
  options.format = QuantFormat::ModelSlim;
  options.static_activations = true;
  options.dtype = DType::BF16;
  auto q = quantise(source, options, true);
  ASSERT_TRUE(q.is_ok()) << q.status().message();
  auto original = checkpoint::Checkpoint::open(source, models::families());
  ASSERT_TRUE(original.is_ok());
  const auto find = [&](const std::string& name) -> const quantiser::QuantisedCheckpoint::Tensor& {
    for (const auto& t : q->tensors)
      if (t.name == name) return t;
    ADD_FAILURE() << name << " is missing";
    return q->tensors[0];
  };
  const auto bf16 = [&](const std::string& name, size_t i) {
    uint16_t bits;
    std::memcpy(&bits, find(name).bytes.data() + 2 * i, 2);
    return bf16_to_float(bits);
  };
  const std::string m = "model.layers.1.mlp.gate_proj";
  const auto& w = find(m + ".weight");
  const int64_t n = w.shape[0], k = w.shape[1];
  auto floats = checkpoint::read_numbers(*original, *original->find(m + ".weight"));
  auto bias = checkpoint::read_numbers(*original, *original->find(m + ".bias"));
  ASSERT_TRUE(floats.is_ok() && bias.is_ok());
  const float scale_in = bf16(m + ".input_scale", 0), offset_in = bf16(m + ".input_offset", 0);
  for (int64_t r = 0; r < n; ++r) {
    const float scale = bf16(m + ".weight_scale", static_cast<size_t>(r));
    EXPECT_EQ(bf16(m + ".weight_offset", static_cast<size_t>(r)), 0);
    int64_t sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const auto stored = static_cast<int8_t>(w.bytes[static_cast<size_t>(r * k + i)]);
      sum += stored;
      const float v = (*floats)[static_cast<size_t>(r * k + i)];
      EXPECT_LE(std::fabs(static_cast<float>(stored) * scale - v), 0.51f * scale + 0.004f * std::fabs(v));
    }
    float deq;
    int32_t folded;
    std::memcpy(&deq, find(m + ".deq_scale").bytes.data() + 4 * r, 4);
    std::memcpy(&folded, find(m + ".quant_bias").bytes.data() + 4 * r, 4);
    EXPECT_EQ(deq, scale_in * scale);
    EXPECT_EQ(folded, static_cast<int32_t>(-offset_in * static_cast<float>(sum)) +
                          static_cast<int32_t>(std::nearbyint((*bias)[static_cast<size_t>(r)] / deq)));
  }
  EXPECT_EQ(q->description[m + ".weight"], "W8A8");
  EXPECT_EQ(q->description["model.norm.weight"], "FLOAT");
}

// The same model with outliers in a few channels behind the norms, taken back by the columns that read them: then one
// scale for a token wastes most of the 8 bits on those channels.
TEST(QuantiseCheckpointNumbers, SmoothingHelpsAgainstOutliers) {
  const std::string source = testing_support::tiny_model_path("llama_gqa3_tied");
  const Folder outliers("outliers");
  auto original = checkpoint::Checkpoint::open(source, models::families());
  ASSERT_TRUE(original.is_ok());
  std::vector<std::vector<float>> kept;
  std::vector<checkpoint::TensorToWrite> tensors;
  for (const auto& t : original->tensors()) {
    auto v = checkpoint::read_numbers(*original, t);
    ASSERT_TRUE(v.is_ok());
    constexpr size_t kEvery = 17;
    constexpr float kOutlier = 64;
    const bool norm = t.name.find("layernorm") != std::string::npos;
    const auto width = static_cast<size_t>(t.row_elements());
    for (const char* reader : {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"})
      if (t.name.find(reader) != std::string::npos)
        for (size_t i = 0; i < v->size(); ++i)
          if (i % width % kEvery == 0) (*v)[i] /= kOutlier;
    if (norm)
      for (size_t i = 0; i < v->size(); i += kEvery) (*v)[i] *= kOutlier;
    kept.push_back(std::move(*v));
  }
  for (size_t i = 0; i < kept.size(); ++i)
    tensors.push_back({original->tensors()[i].name,
                       DType::F32,
                       original->tensors()[i].shape,
                       {reinterpret_cast<const uint8_t*>(kept[i].data()), kept[i].size() * 4}});
  ASSERT_TRUE(checkpoint::write_safetensors(outliers.path() + "/model.safetensors", tensors).is_ok());
  std::filesystem::copy(source + "/config.json", outliers.path() + "/config.json");
  double error[2];
  for (const double smooth : {0.0, 0.5}) {
    QuantiseOptions options;
    options.smooth = smooth;
    auto q = quantise(outliers.path(), options, true);
    ASSERT_TRUE(q.is_ok()) << q.status().message();
    const Folder folder(fmt::format("smoothed_{}", smooth));
    write(*q, outliers.path(), folder.path(), "bfloat16");
    error[smooth > 0] = relative_error(logits_of(outliers.path(), DType::BF16), logits_of(folder.path(), DType::BF16));
  }
  EXPECT_LT(error[1], 0.3 * error[0]);
}

TEST(QuantiseCheckpointErrors, SayWhy) {
  const std::string source = testing_support::tiny_model_path("llama_mha_untied");
  const auto message = [&](const std::string& path, const QuantiseOptions& options) {
    auto q = quantise(path, options, false);
    return q.is_ok() ? std::string("no error") : q.status().message();
  };
  QuantiseOptions options;
  options.format = QuantFormat::ModelSlim;
  options.dtype = DType::F32;
  EXPECT_NE(message(source, options).find("allowed: bfloat16, float16"), std::string::npos);
  options = {};
  options.ignore = {"proj", "lm_head"};
  EXPECT_NE(message(source, options).find("no linear is left"), std::string::npos);
  options = {};
  options.static_activations = true;  // and nothing was seen
  EXPECT_NE(message(source, options).find("has not seen"), std::string::npos);

  const Folder folder("again");
  auto q = quantise(source, {}, false);
  ASSERT_TRUE(q.is_ok());
  write(*q, source, folder.path(), "bfloat16");
  EXPECT_NE(message(folder.path(), {}).find("only float checkpoints"), std::string::npos);
}

TEST(ObserveInputs, NeedsAnEngineThatShowsThem) {
  auto engine = testing_support::open_engine(testing_support::tiny_model_path("llama_mha_untied"), {});
  ASSERT_TRUE(engine.is_ok());
  const auto tokens = tokens_of(20, 200);
  quantiser::ObserveOptions options;
  options.window = 10;
  EXPECT_NE(quantiser::observe_inputs(**engine, tokens, options).status().message().find("not opened to observe"),
            std::string::npos);
  options.window = 0;
  EXPECT_NE(quantiser::observe_inputs(**engine, tokens, options).status().message().find("allowed: 1 to"),
            std::string::npos);
  EXPECT_NE(quantiser::observe_inputs(**engine, {}, {}).status().message().find("no tokens"), std::string::npos);
}

}  // namespace
}  // namespace reprise::quantise_checkpoint_test
