#include "checkpoint/config.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "checkpoint/config_experts.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/unique_json.h"

namespace reprise::checkpoint {
namespace {

constexpr size_t kMaxConfigBytes = 64 << 20;

// Limits far above any real model and low enough that products of a few of them stay inside 63 bits.
constexpr int64_t kMaxLayers = 1000;
constexpr int64_t kMaxHidden = 1 << 20;
constexpr int64_t kMaxIntermediate = 1 << 22;
constexpr int64_t kMaxHeads = 65536;
constexpr int64_t kMaxHeadDim = 8192;
constexpr int64_t kMaxVocab = 10'000'000;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr int64_t kMaxTokenId = (int64_t{1} << 31) - 1;

// What the configuration classes of Hugging Face transformers fill in when config.json is silent. kv_heads 0 = as many
// as heads, head_dim 0 = hidden / heads, window 0 = none.
struct Defaults {
  std::string_view architecture, model_type;
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, positions, window;
  double eps = 1e-6, theta = 1e4;
};
constexpr Defaults kDefaults[] = {
    {"LlamaForCausalLM", "llama", 32000, 4096, 11008, 32, 32, 0, 0, 2048, 0},
    {"MistralForCausalLM", "mistral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 4096},
    {"Qwen2ForCausalLM", "qwen2", 151936, 4096, 22016, 32, 32, 32, 0, 32768, 4096},
    {"Qwen3ForCausalLM", "qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 4096},
    {"DeepseekV2ForCausalLM", "deepseek_v2", 102400, 4096, 11008, 32, 32, 0, 64, 2048, 0},
    {"DeepseekV3ForCausalLM", "deepseek_v3", 129280, 7168, 18432, 61, 128, 0, 64, 4096, 0},
    {"MixtralForCausalLM", "mixtral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 0, 1e-5, 1e6},
    {"Qwen2MoeForCausalLM", "qwen2_moe", 151936, 2048, 5632, 24, 16, 16, 0, 32768, 4096},
    {"Qwen3MoeForCausalLM", "qwen3_moe", 151936, 2048, 6144, 24, 32, 4, 0, 32768, 4096},
};

const Defaults* defaults_of(std::string_view architecture) {
  for (const Defaults& d : kDefaults)
    if (d.architecture == architecture) return &d;
  return nullptr;
}

Status read_architecture(const FieldReader& in, ModelConfigFields& out) {
  std::optional<std::string> type;
  RETURN_IF_ERROR(in.string("model_type", type));
  out.model_type = type.value_or("");
  if (const Json* list = in.find("architectures")) {
    if (!list->is_array() || list->empty() || !(*list)[0].is_string())
      return in.wrong("architectures", *list, "a list with one name, as [\"LlamaForCausalLM\"]");
    out.architecture = (*list)[0].get<std::string>();
    return Status::ok();
  }
  for (const Defaults& d : kDefaults)
    if (d.model_type == out.model_type) out.architecture = d.architecture;
  if (out.architecture.empty()) return in.absent("architectures", "a list with one name, as [\"LlamaForCausalLM\"]");
  return Status::ok();
}

Status read_sizes(const FieldReader& in, ModelConfigFields& out) {
  const Defaults* d = defaults_of(out.architecture);
  const auto known = [&](int64_t Defaults::*member) {
    return d && d->*member ? std::optional<int64_t>(d->*member) : std::nullopt;
  };
  RETURN_IF_ERROR(in.integer("hidden_size", 1, kMaxHidden, known(&Defaults::hidden), out.hidden_size));
  RETURN_IF_ERROR(
      in.integer("intermediate_size", 1, kMaxIntermediate, known(&Defaults::intermediate), out.intermediate_size));
  RETURN_IF_ERROR(in.integer("num_hidden_layers", 1, kMaxLayers, known(&Defaults::layers), out.num_hidden_layers));
  RETURN_IF_ERROR(in.integer("num_attention_heads", 1, kMaxHeads, known(&Defaults::heads), out.num_attention_heads));
  // A key that is present and null means "as many as heads", whatever the default.
  std::optional<int64_t> kv_default = known(&Defaults::kv_heads);
  if (!kv_default || out.raw_json.contains("num_key_value_heads")) kv_default = out.num_attention_heads;
  RETURN_IF_ERROR(in.integer("num_key_value_heads", 1, kMaxHeads, kv_default, out.num_key_value_heads));
  if (out.num_attention_heads % out.num_key_value_heads != 0)
    return invalid("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", out.source,
                   out.num_attention_heads, out.num_key_value_heads);

  std::optional<int64_t> head_dim;
  RETURN_IF_ERROR(in.integer("head_dim", 1, kMaxHeadDim, head_dim));
  if (!head_dim && !out.raw_json.contains("head_dim")) head_dim = known(&Defaults::head_dim);
  if (!head_dim) {
    if (out.hidden_size % out.num_attention_heads != 0)
      return invalid("{}: hidden_size {} is not a multiple of num_attention_heads {}, and head_dim is not given",
                     out.source, out.hidden_size, out.num_attention_heads);
    head_dim = out.hidden_size / out.num_attention_heads;
    if (*head_dim > kMaxHeadDim)
      return invalid("{}: hidden_size / num_attention_heads is {}; allowed: 1 to {}", out.source, *head_dim,
                     kMaxHeadDim);
  }
  out.head_dim = *head_dim;

  RETURN_IF_ERROR(in.integer("vocab_size", 1, kMaxVocab, known(&Defaults::vocab), out.vocab_size));
  RETURN_IF_ERROR(in.integer("max_position_embeddings", 1, kMaxPositions, known(&Defaults::positions),
                             out.max_position_embeddings));
  return in.number("rms_norm_eps", 0.0, 1.0, d ? std::optional<double>(d->eps) : std::nullopt, out.rms_norm_eps);
}

// Families with latent attention; others have no such fields.
Status read_latent(const FieldReader& in, ModelConfigFields& out) {
  const bool v2 = out.architecture == "DeepseekV2ForCausalLM", v3 = out.architecture == "DeepseekV3ForCausalLM";
  if (!v2 && !v3) return Status::ok();
  LatentFields l;
  std::optional<int64_t> rank;
  RETURN_IF_ERROR(in.integer("q_lora_rank", 1, kMaxHidden, rank));
  if (!rank && !out.raw_json.contains("q_lora_rank")) rank = 1536;
  l.q_lora_rank = rank.value_or(0);
  RETURN_IF_ERROR(in.integer("kv_lora_rank", 1, kMaxHidden, 512, l.kv_lora_rank));
  RETURN_IF_ERROR(in.integer("qk_nope_head_dim", 1, kMaxHeadDim, 128, l.qk_nope_head_dim));
  RETURN_IF_ERROR(in.integer("qk_rope_head_dim", 2, kMaxHeadDim, 64, l.qk_rope_head_dim));
  RETURN_IF_ERROR(in.integer("v_head_dim", 1, kMaxHeadDim, 128, l.v_head_dim));
  RETURN_IF_ERROR(in.boolean("rope_interleave", true, l.rope_interleave));
  if (v2) l.rope_interleave = true;  // the family knows no other
  out.head_dim = l.qk_rope_head_dim;
  out.latent = l;
  return Status::ok();
}

Status read_rope_scaling(const FieldReader& in, std::string_view place, ModelConfigFields& out) {
  RopeScaling& rope = out.rope;
  std::optional<std::string> name;
  RETURN_IF_ERROR(in.string("type", name));
  RETURN_IF_ERROR(in.string("rope_type", name));  // the newer spelling wins
  const std::string kind = name.value_or("default");
  if (kind == "default") {
    rope.kind = RopeKind::None;
  } else if (kind == "linear") {
    rope.kind = RopeKind::Linear;
  } else if (kind == "dynamic") {
    rope.kind = RopeKind::Dynamic;
  } else if (kind == "llama3") {
    rope.kind = RopeKind::Llama3;
  } else if (kind == "yarn") {
    rope.kind = RopeKind::Yarn;
  } else {
    return error(Code::Unsupported, "{}: {}.rope_type is \"{}\"; allowed: default, linear, dynamic, llama3, yarn",
                 out.source, place, kind);
  }
  if (rope.kind == RopeKind::None) return Status::ok();

  RETURN_IF_ERROR(in.number("factor", 1.0, 1e6, rope.factor));
  RETURN_IF_ERROR(
      in.integer("original_max_position_embeddings", 1, kMaxPositions, rope.original_max_position_embeddings));
  if (!rope.original_max_position_embeddings)
    RETURN_IF_ERROR(
        FieldReader(out.raw_json, out.source)
            .integer("original_max_position_embeddings", 1, kMaxPositions, rope.original_max_position_embeddings));
  if (!rope.factor && !(rope.kind == RopeKind::Yarn && rope.original_max_position_embeddings))
    return in.absent("factor", "numbers from 1 to 1000000");
  if (rope.kind == RopeKind::Llama3) {
    RETURN_IF_ERROR(in.number("low_freq_factor", 1e-6, 1e6, std::nullopt, rope.low_freq_factor));
    RETURN_IF_ERROR(in.number("high_freq_factor", 1e-6, 1e6, std::nullopt, rope.high_freq_factor));
    if (!rope.original_max_position_embeddings)
      return in.absent("original_max_position_embeddings", fmt::format("integers from 1 to {}", kMaxPositions));
    if (rope.high_freq_factor <= rope.low_freq_factor)
      return invalid("{}: {}.high_freq_factor {} must be above low_freq_factor {}", out.source, place,
                     rope.high_freq_factor, rope.low_freq_factor);
  }
  if (rope.kind == RopeKind::Yarn) {
    RETURN_IF_ERROR(in.number("attention_factor", 1e-6, 1e6, rope.attention_factor));
    RETURN_IF_ERROR(in.number("beta_fast", 1e-6, 1e6, rope.beta_fast, rope.beta_fast));
    RETURN_IF_ERROR(in.number("beta_slow", 1e-6, 1e6, rope.beta_slow, rope.beta_slow));
    if (rope.beta_fast < rope.beta_slow)
      return invalid("{}: {}.beta_fast {} must not be below beta_slow {}", out.source, place, rope.beta_fast,
                     rope.beta_slow);
    RETURN_IF_ERROR(in.number("mscale", 0.0, 1e6, rope.mscale));
    RETURN_IF_ERROR(in.number("mscale_all_dim", 0.0, 1e6, rope.mscale_all_dim));
    RETURN_IF_ERROR(in.boolean("truncate", true, rope.truncate));
  }
  return Status::ok();
}

Status read_rope(const FieldReader& in, ModelConfigFields& out) {
  constexpr double kMinTheta = 1.0, kMaxTheta = 1e12;
  const Defaults* d = defaults_of(out.architecture);
  RETURN_IF_ERROR(in.number("rope_theta", kMinTheta, kMaxTheta, d ? d->theta : 1e4, out.rope_theta));
  RETURN_IF_ERROR(in.number("partial_rotary_factor", 1e-3, 1.0, 1.0, out.partial_rotary_factor));
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* object = in.find(key);
    if (!object) continue;
    if (!object->is_object()) return in.wrong(key, *object, "an object, null");
    for (const auto& [inner, value] : object->items())
      if (value.is_object())
        return error(Code::Unsupported, "{}: {}.{} is an object; parameters by layer type cannot be read", out.source,
                     key, inner);
    const FieldReader rope(*object, out.source, fmt::format("{}.", key));
    RETURN_IF_ERROR(rope.number("rope_theta", kMinTheta, kMaxTheta, out.rope_theta, out.rope_theta));
    RETURN_IF_ERROR(
        rope.number("partial_rotary_factor", 1e-3, 1.0, out.partial_rotary_factor, out.partial_rotary_factor));
    RETURN_IF_ERROR(read_rope_scaling(rope, key, out));
    break;  // the newer object holds everything
  }
  return in.boolean("gguf_rope_freqs", false, out.has_rope_freqs);
}

Status read_window(const FieldReader& in, ModelConfigFields& out) {
  const Defaults* d = defaults_of(out.architecture);
  RETURN_IF_ERROR(in.integer("sliding_window", 0, kMaxPositions, out.sliding_window));
  if (!out.sliding_window && d && d->window && !out.raw_json.contains("sliding_window")) out.sliding_window = d->window;
  if (out.sliding_window == 0) out.sliding_window.reset();
  RETURN_IF_ERROR(in.boolean("use_sliding_window", false, out.use_sliding_window));
  RETURN_IF_ERROR(in.integer("max_window_layers", 0, kMaxPositions, 28, out.max_window_layers));
  const Json* types = in.find("layer_types");
  if (!types) return Status::ok();
  constexpr std::string_view kAllowed = "a list with \"full_attention\" or \"sliding_attention\" for each layer";
  if (!types->is_array()) return in.wrong("layer_types", *types, kAllowed);
  if (static_cast<int64_t>(types->size()) < out.num_hidden_layers)
    return invalid("{}: layer_types has {} entries, but num_hidden_layers is {}", out.source, types->size(),
                   out.num_hidden_layers);
  for (int64_t i = 0; i < out.num_hidden_layers; ++i) {
    const Json& t = (*types)[static_cast<size_t>(i)];
    if (t != "full_attention" && t != "sliding_attention")
      return in.wrong(fmt::format("layer_types[{}]", i), t, "\"full_attention\", \"sliding_attention\"");
    out.layer_types.push_back(t.get<std::string>());
  }
  return Status::ok();
}

Status read_tokens(const FieldReader& in, ModelConfigFields& out) {
  // -1 is how some files say "none".
  RETURN_IF_ERROR(in.integer("bos_token_id", -1, kMaxTokenId, out.bos_token_id));
  RETURN_IF_ERROR(in.integer("pad_token_id", -1, kMaxTokenId, out.pad_token_id));
  if (out.bos_token_id == -1) out.bos_token_id.reset();
  if (out.pad_token_id == -1) out.pad_token_id.reset();
  return read_token_list(in, "eos_token_id", out.eos_token_ids);
}

Status read_dtype(const FieldReader& in, ModelConfigFields& out) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    std::optional<std::string> name;
    RETURN_IF_ERROR(in.string(key, name));
    if (!name || *name == "auto") continue;
    const auto dtype = parse_dtype(*name);
    if (!dtype.is_ok() || !is_float(*dtype))
      return in.wrong(key, Json(*name), "\"float32\", \"float16\", \"bfloat16\", \"float64\", \"auto\"");
    out.dtype = *dtype;
    return Status::ok();
  }
  return Status::ok();
}

Result<Json> read_json_file(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxConfigBytes));
  return parse_unique_json(text, path);
}

// quant_model_description*.json, which ModelSlim writes beside the weights.
Result<Json> read_modelslim(const std::string& folder) {
  std::error_code ec;
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("quant_model_description") && name.ends_with(".json")) found.push_back(entry.path().string());
  }
  if (found.empty()) return Json(nullptr);
  std::sort(found.begin(), found.end());
  if (found.size() > 1)
    return invalid("{}: more than one quantisation description: {}", folder, fmt::join(found, ", "));
  return read_json_file(found[0]);
}

}  // namespace

Status read_token_list(const FieldReader& in, std::string_view key, std::vector<int64_t>& out) {
  const Json* v = in.find(key);
  if (!v) return Status::ok();
  const Json list = v->is_array() ? *v : Json::array({*v});
  constexpr size_t kMaxIds = 1024;
  for (const Json& id : list) {
    const bool fits = id.is_number_integer() && out.size() < kMaxIds &&
                      (id.is_number_unsigned() ? id.get<uint64_t>() <= static_cast<uint64_t>(kMaxTokenId)
                                               : id.get<int64_t>() >= -1 && id.get<int64_t>() <= kMaxTokenId);
    if (!fits) return in.wrong(key, *v, fmt::format("a token id from 0 to {}, or a list of them", kMaxTokenId));
    if (id.get<int64_t>() >= 0) out.push_back(id.get<int64_t>());
  }
  return Status::ok();
}

std::string_view rope_kind_name(RopeKind k) {
  switch (k) {
    case RopeKind::None: return "none";
    case RopeKind::Linear: return "linear";
    case RopeKind::Dynamic: return "dynamic";
    case RopeKind::Llama3: return "llama3";
    case RopeKind::Yarn: return "yarn";
  }
  return "unknown";
}

int64_t ModelConfigFields::window_of_layer(int64_t layer) const {
  if (!sliding_window) return 0;
  if (architecture == "MistralForCausalLM" || architecture == "MixtralForCausalLM") return *sliding_window;
  if (architecture.starts_with("Qwen")) {
    if (!use_sliding_window) return 0;
    if (architecture == "Qwen3MoeForCausalLM") return *sliding_window;
    // Qwen2-MoE's rule for files without a list is another one: every second layer of the first max_window_layers.
    if (architecture == "Qwen2MoeForCausalLM" && layer_types.empty())
      return layer % 2 == 0 && layer < max_window_layers ? *sliding_window : 0;
    const bool slides = layer >= 0 && layer < static_cast<int64_t>(layer_types.size())
                            ? layer_types[static_cast<size_t>(layer)] == "sliding_attention"
                            : layer >= max_window_layers;
    return slides ? *sliding_window : 0;
  }
  return 0;
}

Result<ModelConfigFields> parse_model_config(Json config, std::string_view source,
                                             std::span<const std::string> overrides) {
  if (!config.is_object()) return invalid("{}: not a JSON object", source);
  RETURN_IF_ERROR(apply_overrides(config, overrides));
  ModelConfigFields out;
  out.source = source;
  out.raw_json = std::move(config);
  const FieldReader in(out.raw_json, source);
  RETURN_IF_ERROR(read_architecture(in, out));
  RETURN_IF_ERROR(read_sizes(in, out));
  RETURN_IF_ERROR(read_latent(in, out));
  RETURN_IF_ERROR(read_rope(in, out));
  RETURN_IF_ERROR(in.boolean("tie_word_embeddings", false, out.tie_word_embeddings));
  std::optional<std::string> act;
  RETURN_IF_ERROR(in.string("hidden_act", act));
  out.hidden_act = act.value_or("silu");
  if (out.hidden_act != "silu")
    return error(Code::Unsupported, "{}: hidden_act is \"{}\"; allowed: silu", source, out.hidden_act);
  RETURN_IF_ERROR(in.boolean("attention_bias", false, out.attention_bias));
  RETURN_IF_ERROR(in.boolean("mlp_bias", false, out.mlp_bias));
  RETURN_IF_ERROR(in.boolean("qkv_bias", true, out.qkv_bias));
  RETURN_IF_ERROR(read_experts(in, out));
  RETURN_IF_ERROR(read_window(in, out));
  RETURN_IF_ERROR(read_tokens(in, out));
  RETURN_IF_ERROR(read_dtype(in, out));
  for (const char* key : {"compression_config", "quantization_config"})
    if (const Json* q = in.find(key)) {
      if (!q->is_object()) return in.wrong(key, *q, "an object, null");
      out.quantization = *q;
    }
  return out;
}

Result<ModelConfigFields> read_model_config(const GgufFile& file, std::span<const std::string> overrides) {
  ASSIGN_OR_RETURN(Json config, config_json_from_gguf(file));
  return parse_model_config(std::move(config), file.source(), overrides);
}

Result<ModelConfigFields> read_model_config(const std::string& path, std::span<const std::string> overrides) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    const std::string file = path + "/config.json";
    ASSIGN_OR_RETURN(Json config, read_json_file(file));
    ASSIGN_OR_RETURN(ModelConfigFields out, parse_model_config(std::move(config), file, overrides));
    ASSIGN_OR_RETURN(out.modelslim, read_modelslim(path));
    return out;
  }
  if (path.ends_with(".json")) {
    ASSIGN_OR_RETURN(Json config, read_json_file(path));
    return parse_model_config(std::move(config), path, overrides);
  }
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  return read_model_config(file, overrides);
}

}  // namespace reprise::checkpoint
