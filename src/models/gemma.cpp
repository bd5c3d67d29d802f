// Gemma (text). Gemma 2 and Gemma 3: norms on both sides of each branch, whose weights are what is added to 1; scaled
// embeddings; GELU in the gate. Gemma 2 caps scores and logits; Gemma 3 norms queries and keys, and turns layers with a
// window by a base of their own. EmbeddingGemma is a Gemma 3 whose rows see both sides.
#include <cmath>

#include "base/half.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"

namespace reprise::models::gemma {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

// transformers rounds the factor of embeddings to the model's dtype.
double embedding_scale(int64_t hidden, DType dtype) {
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(hidden)));
  if (dtype == DType::BF16) return static_cast<double>(bf16_to_float(float_to_bf16(root)));
  if (dtype == DType::F16) return static_cast<double>(half_to_float(float_to_half(root)));
  return static_cast<double>(root);
}

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const ModelConfigFields& f = config.fields;
  const bool second = f.model_type == "gemma2";
  const DecoderTraits traits{.qkv_bias = f.attention_bias,
                             .output_bias = f.attention_bias,
                             .qk_norm = !second,
                             .qk_norm_kind = nn::rms_norm_centred,
                             .window_of_both_sides = true,
                             .score_scale = 1 / std::sqrt(f.number("query_pre_attn_scalar")),
                             .score_cap = f.number("attn_logit_softcapping"),
                             .shape = {.after_attention = "post_attention_layernorm",
                                       .before_mlp = "pre_feedforward_layernorm",
                                       .after_mlp = "post_feedforward_layernorm",
                                       .norm = nn::rms_norm_centred,
                                       .embedding_scale = embedding_scale(f.hidden_size, root.dtype()),
                                       .logit_cap = f.number("final_logit_softcapping")}};
  return dense_decoder(config, traits, in, root);
}

ModelOutputs forward1(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const ModelConfigFields& f = config.fields;
  const DecoderTraits traits{
      .qkv_bias = f.attention_bias,
      .output_bias = f.attention_bias,
      .shape = {.norm = nn::rms_norm_centred, .embedding_scale = embedding_scale(f.hidden_size, root.dtype())}};
  return dense_decoder(config, traits, in, root);
}

constexpr std::string_view kFields1[] = {"hidden_activation", "attention_bias", "hidden_act"};
constexpr std::string_view kFields[] = {"query_pre_attn_scalar", "final_logit_softcapping", "hidden_activation",
                                        "attention_bias",        "attn_logit_softcapping",  "hidden_act"};
constexpr std::string_view kFields3[] = {
    "query_pre_attn_scalar",      "final_logit_softcapping", "hidden_activation",       "attention_bias",
    "rope_local_base_freq",       "sliding_window_pattern",  "_sliding_window_pattern", "hidden_act",
    "use_bidirectional_attention"};

// Published files say "gelu" and mean its approximation by tanh, as transformers reads them.
Status read1(const FieldReader& in, ModelConfigFields&) {
  std::string word;
  return in.choice("hidden_act", {"gelu", "gelu_pytorch_tanh"}, "gelu_pytorch_tanh", word);
}

// null is no cap.
Status read_cap(const FieldReader& in, const char* key, double missing, ModelConfigFields& out) {
  if (out.raw_json.contains(key) && !in.find(key)) missing = 0;
  return in.number(key, 0.0, 1e6, missing, out.numbers[key]);
}

Status read2(const FieldReader& in, ModelConfigFields& out) {
  out.model_type = "gemma2";  // of files that name the architecture alone
  RETURN_IF_ERROR(in.number("query_pre_attn_scalar", 1e-3, 1e6, 256.0, out.numbers["query_pre_attn_scalar"]));
  RETURN_IF_ERROR(read_cap(in, "attn_logit_softcapping", 50, out));
  return read_cap(in, "final_logit_softcapping", 30, out);
}

Status read3(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(in.number("query_pre_attn_scalar", 1e-3, 1e6, 256.0, out.numbers["query_pre_attn_scalar"]));
  out.numbers["attn_logit_softcapping"] = 0;  // a file that asks for one is refused
  int64_t pattern = 0;
  RETURN_IF_ERROR(in.integer("sliding_window_pattern", 1, checkpoint::kMaxLayers, 6, pattern));
  out.numbers["sliding_window_pattern"] = static_cast<double>(pattern);
  RETURN_IF_ERROR(in.boolean("use_bidirectional_attention", false, out.both_sides));
  bool bare = false;
  RETURN_IF_ERROR(in.boolean("gguf_without_dense", false, bare));
  if (bare)
    out.notices.push_back(
        "no tensor \"dense_2.weight\": vectors are those before the dense layers of EmbeddingGemma, which llama.cpp's "
        "converter leaves out unless it is asked for them");
  return read_cap(in, "final_logit_softcapping", 0, out);
}

bool slides2(const ModelConfigFields& f, int64_t layer) { return f.listed_as_sliding(layer).value_or(layer % 2 == 0); }
bool slides3(const ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or((layer + 1) % static_cast<int64_t>(f.number("sliding_window_pattern")) !=
                                             0);
}

// Sizes that vectors of EmbeddingGemma were trained to be cut to.
constexpr int64_t kSizesOfVectors[] = {128, 256, 512};

// Files do not say what scores are scaled by: the largest models by the share of a head, others by its size.
Status add(checkpoint::GgufFields& in) {
  Json& out = in.out();
  const int64_t layers = out["num_hidden_layers"].get<int64_t>(), hidden = out["hidden_size"].get<int64_t>();
  const int64_t heads = out["num_attention_heads"].get<int64_t>();
  const bool largest = layers == (out["model_type"] == "gemma2" ? 46 : 62);
  out["query_pre_attn_scalar"] = largest || !out.contains("head_dim") ? hidden / heads : out["head_dim"].get<int64_t>();
  RETURN_IF_ERROR(in.copy_number("attn_logit_softcapping", "attn_logit_softcapping"));
  RETURN_IF_ERROR(in.copy_number("final_logit_softcapping", "final_logit_softcapping"));
  if (out["model_type"] != "gemma2") RETURN_IF_ERROR(in.copy_number("rope.freq_base_swa", "rope_local_base_freq"));
  if (in.arch() == "gemma-embedding") {
    out["use_bidirectional_attention"] = true;
    out["gguf_without_dense"] = !in.has("dense_2.weight");
  }
  return checkpoint::add_window_pattern(in);
}

constexpr checkpoint::GgufTensorName kTensors[] = {
    {"ffn_norm.", "pre_feedforward_layernorm."}, {"dense_2.", "dense.0.linear."}, {"dense_3.", "dense.1.linear."}};

constexpr checkpoint::SizeDefaults sizes(int64_t vocab, int64_t positions, double theta) {
  return {.vocab = vocab,
          .hidden = 2304,
          .intermediate = 9216,
          .layers = 26,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 256,
          .positions = positions,
          .window = 4096,
          .theta = theta,
          .tied = true};
}

}  // namespace

const ModelSpec kGemma{.family = {.architecture = "GemmaForCausalLM",
                                  .model_type = "gemma",
                                  .sizes = {.vocab = 256000,
                                            .hidden = 3072,
                                            .intermediate = 24576,
                                            .layers = 28,
                                            .heads = 16,
                                            .kv_heads = 16,
                                            .head_dim = 256,
                                            .positions = 8192,
                                            .tied = true},
                                  .fields = kFields1,
                                  .read = read1,
                                  .gguf = {.name = "gemma", .centred_norms = true},
                                  .activation_key = "hidden_activation",
                                  .activation = "gelu_pytorch_tanh"},
                       .forward = forward1,
                       .beyond_float16 = true};

const ModelSpec kGemma2{
    .family = {.architecture = "Gemma2ForCausalLM",
               .model_type = "gemma2",
               .sizes = sizes(256000, 8192, 1e4),
               .fields = kFields,
               .read = read2,
               .slides = slides2,
               .gguf = {.name = "gemma2", .windows = true, .add = add, .tensors = kTensors, .centred_norms = true},
               .activation_key = "hidden_activation",
               .activation = "gelu_pytorch_tanh"},
    .forward = forward,
    .beyond_float16 = true};

const ModelSpec kGemma3{.family = {.architecture = "Gemma3ForCausalLM",
                                   .other_architecture = "Gemma3TextModel",
                                   .model_type = "gemma3_text",
                                   .sizes = sizes(262208, 131072, 1e6),
                                   .fields = kFields3,
                                   .read = read3,
                                   .slides = slides3,
                                   .gguf = {.name = "gemma3",
                                            .other_name = "gemma-embedding",
                                            .windows = true,
                                            .add = add,
                                            .tensors = kTensors,
                                            .centred_norms = true},
                                   .wrapper = "Gemma3ForConditionalGeneration",
                                   .activation_key = "hidden_activation",
                                   .activation = "gelu_pytorch_tanh",
                                   .sliding_rotation = true,
                                   .sliding_theta = 1e4},
                        .forward = forward,
                        .qk_norm = true,
                        .pooling = checkpoint::PoolKind::Mean,
                        .sizes_of_vectors = kSizesOfVectors,
                        .beyond_float16 = true};

}  // namespace reprise::models::gemma
