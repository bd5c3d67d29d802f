#include "checkpoint/config.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/close_names.h"
#include "base/file.h"
#include "checkpoint/config_rope.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_parts.h"
#include "checkpoint/limits.h"
#include "checkpoint/mmproj.h"
#include "checkpoint/unique_json.h"

namespace reprise::checkpoint {
namespace {

constexpr size_t kMaxConfigBytes = 64 << 20;

// Which class computes the model is looked at before any of its fields.
Status read_architecture(const FieldReader& in, const Families& families, ModelConfigFields& out) {
  std::optional<std::string> type;
  RETURN_IF_ERROR(in.string("model_type", type));
  out.model_type = type.value_or("");
  const Family* by_type = families.of_model_type(out.model_type);
  if (const Json* list = in.find("architectures")) {
    if (!list->is_array() || list->empty() || !(*list)[0].is_string())
      return in.wrong("architectures", *list, "a list with one name, as [\"LlamaForCausalLM\"]");
    out.architecture = (*list)[0].get<std::string>();
  } else if (by_type) {
    out.architecture = by_type->architecture;
  }
  const auto unknown = [&](std::string_view what, std::string_view name) {
    std::string known;
    for (const Family* f : families.list) known += fmt::format("{}{}", known.empty() ? "" : ", ", f->architecture);
    // Before the list, which is long.
    const std::string nearest = families.nearest_to(out.architecture, out.model_type);
    std::string close;
    if (nearest.empty()) {
      std::vector<std::string_view> names;
      for (const Family* f : families.list) names.push_back(what == "architecture" ? f->architecture : f->model_type);
      close = close_names(name, names);
    }
    return error(Code::Unsupported, "{}: {} \"{}\" is not known{}; known: {}{}", out.source, what, name, nearest, known,
                 close);
  };
  if (out.architecture.empty()) {
    if (!out.model_type.empty() && !families.others) return unknown("model_type", out.model_type);
    return in.absent("architectures", "a list with one name, as [\"LlamaForCausalLM\"]");
  }
  out.family = families.find(out.architecture);
  const Family* f = out.family;
  if (!f && !families.others) return unknown("architecture", out.architecture);
  if (f && f->wrapper == out.architecture) {  // of several text models, that of the type
    if (by_type && by_type->wrapper == out.architecture) f = out.family = by_type;
    out.architecture = f->architecture;
  }
  if (f && f->other_architecture == out.architecture) out.architecture = f->architecture;
  // Hugging Face goes by the type, other engines by the architecture.
  const bool same_type = f && (f->model_type == out.model_type || (by_type && by_type == f));
  if (!f || out.model_type.empty() || same_type) return Status::ok();
  return in.wrong("model_type", Json(out.model_type),
                  f->other_model_type.empty()
                      ? fmt::format("\"{}\" with {}", f->model_type, f->architecture)
                      : fmt::format("\"{}\", \"{}\" with {}", f->model_type, f->other_model_type, f->architecture));
}

Status read_sizes(const FieldReader& in, ModelConfigFields& out) {
  const SizeDefaults sizes = out.family ? out.family->sizes : SizeDefaults{};
  const auto known = [&](int64_t size) { return size ? std::optional<int64_t>(size) : std::nullopt; };
  RETURN_IF_ERROR(in.integer("hidden_size", 1, kMaxHidden, known(sizes.hidden), out.hidden_size));
  RETURN_IF_ERROR(
      in.integer("intermediate_size", 1, kMaxIntermediate, known(sizes.intermediate), out.intermediate_size));
  RETURN_IF_ERROR(in.integer("num_hidden_layers", 1, kMaxLayers, known(sizes.layers), out.num_hidden_layers));
  RETURN_IF_ERROR(in.integer("num_attention_heads", 1, kMaxHeads, known(sizes.heads), out.num_attention_heads));
  // A key that is present and null means "as many as heads", regardless of the default.
  std::optional<int64_t> kv_default = known(sizes.kv_heads);
  if (!kv_default || out.raw_json.contains("num_key_value_heads")) kv_default = out.num_attention_heads;
  RETURN_IF_ERROR(in.integer("num_key_value_heads", 1, kMaxHeads, kv_default, out.num_key_value_heads));
  if (out.num_attention_heads % out.num_key_value_heads != 0)
    return invalid("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", out.source,
                   out.num_attention_heads, out.num_key_value_heads);

  std::optional<int64_t> head_dim;
  RETURN_IF_ERROR(in.integer("head_dim", 1, kMaxHeadDim, head_dim));
  if (!head_dim && !out.raw_json.contains("head_dim")) head_dim = known(sizes.head_dim);
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

  RETURN_IF_ERROR(in.integer("vocab_size", 1, kMaxVocab, known(sizes.vocab), out.vocab_size));
  RETURN_IF_ERROR(
      in.integer("max_position_embeddings", 1, kMaxPositions, known(sizes.positions), out.max_position_embeddings));
  return in.number(out.family ? out.family->eps_key : "rms_norm_eps", 0.0, 1.0,
                   out.family ? std::optional<double>(sizes.eps) : std::nullopt, out.rms_norm_eps);
}

Status read_layer_types(const FieldReader& in, ModelConfigFields& out) {
  const Json* types = in.find("layer_types");
  if (!types) return Status::ok();
  // Read by the family: read_state_layers(), read_mamba(), attention_chunk_size.
  const bool mamba = out.numbers.contains("mamba.heads"),
             states = mamba || out.numbers.contains("linear_num_value_heads");
  const std::string_view other = states                    ? "linear_attention"
                                 : out.attention_chunk > 0 ? "chunked_attention"
                                                           : "sliding_attention";
  if (!types->is_array())
    return in.wrong("layer_types", *types,
                    fmt::format("a list with \"full_attention\" or \"{}\" for each layer", other));
  if (static_cast<int64_t>(types->size()) < out.num_hidden_layers)
    return invalid("{}: layer_types has {} entries, but num_hidden_layers is {}", out.source, types->size(),
                   out.num_hidden_layers);
  for (int64_t i = 0; i < out.num_hidden_layers; ++i) {
    const Json& t = (*types)[static_cast<size_t>(i)];
    const bool is_other = t == other || (mamba && t == "mamba");  // older names: that, and "attention"
    if (t != "full_attention" && t != "attention" && !is_other)
      return in.wrong(fmt::format("layer_types[{}]", i), t, fmt::format("\"full_attention\", \"{}\"", other));
    out.layer_types.emplace_back(is_other ? other : "full_attention");
  }
  return Status::ok();
}

// A window that this family does not go by, layers that slide without one, and layer types that say otherwise than the
// window does are errors: programs differ in what they compute then.
Status check_window(const FieldReader& in, const ModelConfigFields& out) {
  if (!out.family) return Status::ok();
  const bool typed = !out.layer_types.empty();
  const bool asked = !typed || out.use_sliding_window;  // layers that are listed outrank a window that is just there
  if (!out.family->slides && asked && out.sliding_window && *out.sliding_window < out.max_position_embeddings)
    return in.wrong("sliding_window", Json(*out.sliding_window),
                    fmt::format("null with {}, which has no window", out.architecture));
  for (int64_t l = 0; l < out.num_hidden_layers; ++l) {
    const bool slides = out.family->slides && out.family->slides(out, l);
    const std::string_view expected = slides ? "sliding_attention" : "full_attention";
    const std::string_view type = typed ? std::string_view(out.layer_types[static_cast<size_t>(l)]) : expected;
    if (type != "full_attention" && type != "sliding_attention") continue;  // it does not attend
    if (type != expected)
      return in.wrong(fmt::format("layer_types[{}]", l), Json(type),
                      fmt::format("\"{}\", as {} has one window for all layers or none", expected, out.architecture));
    if (slides && out.sliding_window.value_or(0) == 0)
      return invalid("{}: layer {} slides, but sliding_window is {}{}; allowed: integers from 1 to {}", out.source, l,
                     out.sliding_window ? "0" : "null", out.use_sliding_window ? "" : " or use_sliding_window false",
                     kMaxPositions);
  }
  return Status::ok();
}

Status read_window(const FieldReader& in, ModelConfigFields& out) {
  const Family* f = out.family;
  RETURN_IF_ERROR(in.integer("sliding_window", 0, kMaxPositions, out.sliding_window));
  if (!out.sliding_window && f && f->sizes.window && !out.raw_json.contains("sliding_window"))
    out.sliding_window = f->sizes.window;
  RETURN_IF_ERROR(in.boolean("use_sliding_window", false, out.use_sliding_window));
  if (f && f->window_switch && !out.use_sliding_window) out.sliding_window.reset();
  RETURN_IF_ERROR(in.integer("max_window_layers", 0, kMaxPositions, 28, out.max_window_layers));
  RETURN_IF_ERROR(read_layer_types(in, out));
  return check_window(in, out);
}

// What the gate of an MLP goes through.
Status read_gate(const FieldReader& in, ModelConfigFields& out) {
  const Family& f = *out.family;
  std::string name;
  RETURN_IF_ERROR(in.choice(f.activation_key, {"silu", "swish", "gelu", "gelu_pytorch_tanh", "gelu_new", "relu2"},
                            f.activation, name));
  out.hidden_act = name == "swish"             ? "silu"
                   : name == "relu2"           ? "relu_squared"
                   : name.starts_with("gelu_") ? "gelu_tanh"
                                               : name;
  return Status::ok();
}

// What the feed-forward layers and the projections are like.
Status read_parts(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(in.boolean("tie_word_embeddings", out.family && out.family->sizes.tied, out.tie_word_embeddings));
  RETURN_IF_ERROR(in.boolean("attention_bias", false, out.attention_bias));
  RETURN_IF_ERROR(in.boolean("mlp_bias", false, out.mlp_bias));
  RETURN_IF_ERROR(in.boolean("qkv_bias", true, out.qkv_bias));
  if (out.family && !out.family->activation_key.empty()) return read_gate(in, out);
  std::optional<std::string> act;
  RETURN_IF_ERROR(in.string("hidden_act", act));
  out.hidden_act = act.value_or("silu");
  if (out.hidden_act == "swish") out.hidden_act = "silu";  // another name of it
  if (out.hidden_act != "silu")
    return error(Code::Unsupported, "{}: hidden_act is \"{}\"; allowed: silu", out.source, out.hidden_act);
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

// A model of text and pictures has its text model's fields in text_config: what is read is that, under the
// architecture of the whole. Fields beside it that are about text win.
Result<bool> unwrap(Json& config, std::string_view source, const Families& families) {
  const auto list = config.find("architectures");
  if (list == config.end() || !list->is_array() || list->empty() || !(*list)[0].is_string()) return false;
  const Family* f = families.find((*list)[0].get<std::string>());
  const auto text = config.find("text_config");
  if (!f || f->wrapper != (*list)[0].get<std::string>() || text == config.end()) return false;
  if (!text->is_object()) return FieldReader(config, source).wrong("text_config", *text, "an object");
  Json out = *text;
  for (const char* key : {"architectures", "quantization_config", "compression_config", "dtype", "torch_dtype",
                          "bos_token_id", "eos_token_id", "pad_token_id", "transformers_version"})
    if (const auto it = config.find(key); it != config.end() && !it->is_null()) out[key] = *it;
  // transformers 5 asks the whole (get_expanded_tied_weights_keys), its older versions the text model, which its
  // configuration_qwen2_5_vl.py still hears: where either says so, a file without a head has the embedding as its head.
  if (const auto tied = config.find("tie_word_embeddings");
      tied != config.end() && (!out.contains("tie_word_embeddings") || *tied != Json(false)))
    out["tie_word_embeddings"] = *tied;
  if (f->vision)
    for (const char* key : {"vision_config", "image_token_id", "video_token_id"})
      if (const auto it = config.find(key); it != config.end()) out[key] = *it;
  config = std::move(out);
  return true;
}

// Python writes infinite numbers as no JSON has them; newer files say {"__float__": "Infinity"} for these.
std::string with_infinity_as_object(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kObject = "{\"__float__\": \"Infinity\"}";
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (size_t i = 0; i < text.size();) {
    if (!quoted && text.substr(i).starts_with(kWord)) {
      out += kObject;
      i += kWord.size();
      continue;
    }
    if (quoted && text[i] == '\\' && i + 1 < text.size())
      out += text[i++];
    else if (text[i] == '"')
      quoted = !quoted;
    out += text[i++];
  }
  return out;
}

Result<Json> read_json_file(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, read_file(path, kMaxConfigBytes));
  if (text.find("Infinity") != std::string::npos) text = with_infinity_as_object(text);
  return parse_unique_json(text, path);
}

// quant_model_description*.json, which ModelSlim writes next to the weights.
Result<Json> read_modelslim(const std::string& folder) {
  std::error_code ec;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("quant_model_description") && name.ends_with(".json")) found.push_back(it->path().string());
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
    case RopeKind::Long: return "longrope";
  }
  return "unknown";
}

std::optional<bool> ModelConfigFields::listed_as_sliding(int64_t layer) const {
  if (layer < 0 || layer >= static_cast<int64_t>(layer_types.size())) return std::nullopt;
  return layer_types[static_cast<size_t>(layer)] == "sliding_attention";
}

double ModelConfigFields::number(std::string_view name) const {
  const auto it = numbers.find(name);
  CHECK(it != numbers.end(), "{} has read no number {}", architecture, name);
  return it->second;
}

int64_t ModelConfigFields::window_of_layer(int64_t layer) const {
  return family && family->slides && family->slides(*this, layer) ? sliding_window.value_or(0) : 0;
}

int64_t ModelConfigFields::chunk_of_layer(int64_t layer) const {
  // A chunk that is as long as the context bounds nothing.
  if (attention_chunk >= max_position_embeddings || layer >= static_cast<int64_t>(layer_types.size())) return 0;
  return layer_types[static_cast<size_t>(layer)] == "chunked_attention" ? attention_chunk : 0;
}

Result<ModelConfigFields> parse_model_config(Json config, std::string_view source,
                                             std::span<const std::string> overrides, const Families& families) {
  if (!config.is_object()) return invalid("{}: not a JSON object", source);
  ASSIGN_OR_RETURN(const bool wrapped, unwrap(config, source, families));
  RETURN_IF_ERROR(apply_overrides(config, overrides, families));
  ModelConfigFields out;
  out.source = source;
  out.wrapped = wrapped;
  out.raw_json = std::move(config);
  const FieldReader in(out.raw_json, source);
  RETURN_IF_ERROR(read_architecture(in, families, out));
  RETURN_IF_ERROR(read_sizes(in, out));
  RETURN_IF_ERROR(read_parts(in, out));
  if (out.family && out.family->read) RETURN_IF_ERROR(out.family->read(in, out));
  RETURN_IF_ERROR(read_rope(in, out));
  std::optional<int64_t> nextn;
  RETURN_IF_ERROR(in.integer_or_alias("num_nextn_predict_layers", "num_mtp_layers", 0, kMaxLayers, nextn));
  out.nextn_layers = nextn.value_or(0);
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

Result<ModelConfigFields> read_model_config(const GgufFile& file, std::span<const std::string> overrides,
                                            const Families& families, const GgufFile* mmproj) {
  ASSIGN_OR_RETURN(Json config, config_json_from_gguf(file, families));
  if (mmproj) RETURN_IF_ERROR(add_mmproj_fields(*mmproj, file, families, config));
  return parse_model_config(std::move(config), file.source(), overrides, families);
}

Result<ModelConfigFields> read_model_config(const std::string& path, std::span<const std::string> overrides,
                                            const Families& families) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    const std::string file = path + "/config.json";
    ASSIGN_OR_RETURN(Json config, read_json_file(file));
    ASSIGN_OR_RETURN(ModelConfigFields out, parse_model_config(std::move(config), file, overrides, families));
    ASSIGN_OR_RETURN(out.modelslim, read_modelslim(path));
    return out;
  }
  if (path.ends_with(".json")) {
    ASSIGN_OR_RETURN(Json config, read_json_file(path));
    return parse_model_config(std::move(config), path, overrides, families);
  }
  ASSIGN_OR_RETURN(const GgufFile file, open_gguf_model(path));
  return read_model_config(file, overrides, families);
}

}  // namespace reprise::checkpoint
