#include "checkpoint/pooling.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/config.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf.h"
#include "checkpoint/limits.h"
#include "checkpoint/unique_json.h"

namespace reprise::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPoolingBytes = 4 << 20;

// A file of the folder; null where there is none.
Result<Json> read_optional(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return Json(nullptr);
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxPoolingBytes));
  return parse_unique_json(text, path);
}

Status want_object(const Json& json, const std::string& path) {
  return json.is_object() ? Status::ok() : invalid("{}: must be an object", path);
}

// N_Pooling/config.json: one mode is true, or "pooling_mode" names it.
Status read_mode(const std::string& path, PoolingFields& out) {
  ASSIGN_OR_RETURN(const Json json, read_optional(path));
  if (json.is_null()) return invalid("{}: the file is missing, and modules.json names its module", path);
  RETURN_IF_ERROR(want_object(json, path));
  const FieldReader in(json, path);
  constexpr std::pair<std::string_view, PoolKind> kModes[] = {
      {"cls", PoolKind::First}, {"mean", PoolKind::Mean}, {"lasttoken", PoolKind::Last}};
  std::optional<std::string> named;
  RETURN_IF_ERROR(in.string("pooling_mode", named));
  std::vector<std::string> on;
  if (named) on.push_back(*named);
  for (const auto& [key, value] : json.items())
    if (std::string_view name = key; name.starts_with("pooling_mode_") && value == true) {
      name.remove_prefix(std::string_view("pooling_mode_").size());
      if (const size_t end = name.rfind("_token"); end != std::string_view::npos) name = name.substr(0, end);
      on.emplace_back(name);
    }
  if (on.size() == 1)
    for (const auto& [name, kind] : kModes)
      if (on.front() == name) {
        out.kind = kind;
        return Status::ok();
      }
  return error(Code::Unsupported, "{}: pooling modes {}; allowed: one of cls, mean, lasttoken", path,
               on.empty() ? "none" : fmt::format("{}", fmt::join(on, ", ")));
}

// N_Dense/config.json, of a layer of vectors of `in` numbers.
Status read_dense(const std::string& path, const std::string& folder, int64_t in, PoolingFields& out) {
  ASSIGN_OR_RETURN(const Json json, read_optional(path));
  if (json.is_null()) return invalid("{}: the file is missing, and modules.json names its module", path);
  RETURN_IF_ERROR(want_object(json, path));
  const FieldReader fields(json, path);
  DenseFields d{.folder = folder};
  RETURN_IF_ERROR(fields.integer("in_features", in, in, std::nullopt, d.in));
  RETURN_IF_ERROR(fields.integer("out_features", 1, kMaxHidden, std::nullopt, d.out));
  RETURN_IF_ERROR(fields.boolean("bias", true, d.bias));
  std::optional<std::string> name;
  RETURN_IF_ERROR(fields.string("activation_function", name));
  const std::string_view activation = name ? std::string_view(*name) : "Tanh";  // as the module's class has it
  const std::string_view last = activation.substr(activation.rfind('.') + 1);
  if (last != "Identity" && last != "Tanh")
    return fields.wrong("activation_function", Json(activation),
                        "\"torch.nn.modules.linear.Identity\", \"torch.nn.modules.activation.Tanh\"");
  d.tanh = last == "Tanh";
  out.dense.push_back(std::move(d));
  return Status::ok();
}

// The tokens of a reranker that answers yes or no.
Status read_answers(const std::string& path, PoolingFields& out) {
  ASSIGN_OR_RETURN(const Json json, read_optional(path));
  RETURN_IF_ERROR(want_object(json, path));
  const FieldReader in(json, path);
  RETURN_IF_ERROR(in.integer("true_token_id", 0, kMaxTokenId, std::nullopt, out.yes));
  RETURN_IF_ERROR(in.integer("false_token_id", 0, kMaxTokenId, std::nullopt, out.no));
  out.kind = PoolKind::YesNo;
  return Status::ok();
}

Status read_modules(const std::string& folder, const ModelConfigFields& config, PoolingFields& out) {
  const std::string path = folder + "/modules.json";
  ASSIGN_OR_RETURN(const Json modules, read_optional(path));
  if (modules.is_null()) return Status::ok();
  if (!modules.is_array()) return invalid("{}: must be a list of modules", path);
  for (size_t i = 0; i < modules.size(); ++i) {
    const std::string place = fmt::format("[{}].", i);
    if (!modules[i].is_object()) return invalid("{}: module {} must be an object", path, i);
    const FieldReader in(modules[i], path, place);
    std::optional<std::string> type, at;
    RETURN_IF_ERROR(in.string("type", type));
    RETURN_IF_ERROR(in.string("path", at));
    const std::string_view name =
        type ? std::string_view(*type).substr(type->rfind('.') == std::string::npos ? 0 : type->rfind('.') + 1) : "";
    // A name of a folder beside this file, and of nothing else.
    if (at && (at->find("..") != std::string::npos || at->find('/') != std::string::npos))
      return in.wrong("path", Json(*at), "the name of a folder beside modules.json");
    const std::string file = fmt::format("{}/{}/config.json", folder, at.value_or(""));
    if (name == "Transformer") continue;
    if (name == "Pooling")
      RETURN_IF_ERROR(read_mode(file, out));
    else if (name == "Dense" && out.gives_vectors() && !out.normalise)
      RETURN_IF_ERROR(
          read_dense(file, at.value_or(""), out.dense.empty() ? config.hidden_size : out.dense.back().out, out));
    else if (name == "Dense")
      return in.wrong("type", Json(*type), "modules named Dense behind Pooling and before Normalize");
    else if (name == "Normalize")
      out.normalise = true;
    else if (name == "LogitScore")
      RETURN_IF_ERROR(read_answers(file, out));
    else
      return in.wrong("type", Json(type.value_or("")),
                      "modules named Transformer, Pooling, Dense, Normalize, LogitScore");
  }
  return Status::ok();
}

Status read_prompts(const std::string& folder, PoolingFields& out) {
  const std::string path = folder + "/config_sentence_transformers.json";
  ASSIGN_OR_RETURN(const Json json, read_optional(path));
  if (json.is_null()) return Status::ok();
  RETURN_IF_ERROR(want_object(json, path));
  const FieldReader in(json, path);
  if (const Json* prompts = in.find("prompts")) {
    if (!prompts->is_object()) return in.wrong("prompts", *prompts, "an object of texts by name");
    for (const auto& [name, text] : prompts->items()) {
      if (!text.is_string()) return in.wrong(fmt::format("prompts.{}", name), text, "a text");
      out.prompts[name] = text.get<std::string>();
    }
  }
  std::optional<std::string> usual;
  RETURN_IF_ERROR(in.string("default_prompt_name", usual));
  if (usual && !out.prompts.contains(*usual)) {
    std::vector<std::string> names;
    for (const auto& entry : out.prompts) names.push_back(entry.first);
    return in.wrong("default_prompt_name", Json(*usual), fmt::format("null, {}", fmt::join(names, ", ")));
  }
  out.default_prompt = usual.value_or("");
  return Status::ok();
}

Status read_length(const std::string& folder, PoolingFields& out) {
  const std::string path = folder + "/sentence_bert_config.json";
  ASSIGN_OR_RETURN(const Json json, read_optional(path));
  if (json.is_null()) return Status::ok();
  RETURN_IF_ERROR(want_object(json, path));
  return FieldReader(json, path).integer("max_seq_length", 1, kMaxPositions, 0, out.max_tokens);
}

// config.json's words for vectors that may be cut.
Status read_sizes(const ModelConfigFields& config, PoolingFields& out) {
  const FieldReader in(config.raw(), config.source);
  bool nested = false;
  RETURN_IF_ERROR(in.boolean("is_matryoshka", false, nested));
  if (nested) out.least_size = 1;
  const Json* sizes = in.find("matryoshka_dimensions");
  if (!sizes) return Status::ok();
  const bool whole = sizes->is_array() && std::all_of(sizes->begin(), sizes->end(), [&](const Json& n) {
                       return n.is_number_unsigned() && n.get<uint64_t>() > 0 &&
                              n.get<uint64_t>() <= static_cast<uint64_t>(config.hidden_size);
                     });
  if (!whole)
    return in.wrong("matryoshka_dimensions", *sizes,
                    fmt::format("a list of integers from 1 to {}", config.hidden_size));
  for (const Json& n : *sizes) out.sizes.push_back(n.get<int64_t>());
  return Status::ok();
}

// config.json's word of models whose rows see both sides, where there are no modules: LlamaBidirectionalModel's.
// NVIDIA's code gives its vectors length 1.
Status read_word(const ModelConfigFields& config, PoolingFields& out) {
  const FieldReader in(config.raw(), config.source);
  if (out.kind != PoolKind::None || !config.both_sides || !in.find("pooling")) return Status::ok();
  std::string word;
  RETURN_IF_ERROR(in.choice("pooling", {"avg", "cls", "last"}, "avg", word));
  out.kind = word == "avg" ? PoolKind::Mean : word == "cls" ? PoolKind::First : PoolKind::Last;
  out.normalise = true;
  return Status::ok();
}

// vLLM's word for a generating model that scores: the tokens ["no", "yes"], looked up in tokenizer.json.
Status read_classifier(const std::string& folder, const ModelConfigFields& config, PoolingFields& out) {
  const FieldReader in(config.raw(), config.source);
  const Json* words = in.find("classifier_from_token");
  if (!words) return Status::ok();
  if (!words->is_array() || words->size() != 2 || !(*words)[0].is_string() || !(*words)[1].is_string())
    return in.wrong("classifier_from_token", *words, "two tokens, as [\"no\", \"yes\"]");
  const std::string path = folder + "/tokenizer.json";
  constexpr size_t kMaxTokenizerBytes = 256 << 20;
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxTokenizerBytes));
  ASSIGN_OR_RETURN(const Json tokenizer, parse_json(text, path));
  const auto id_of = [&](const Json& word) -> Result<int64_t> {
    const auto model = tokenizer.find("model");
    if (tokenizer.is_object() && model != tokenizer.end() && model->is_object())
      if (const auto vocab = model->find("vocab"); vocab != model->end() && vocab->is_object())
        if (const auto id = vocab->find(word.get<std::string>()); id != vocab->end() && id->is_number_unsigned())
          return id->get<int64_t>();
    return in.wrong("classifier_from_token", *words, fmt::format("tokens of {}", path));
  };
  ASSIGN_OR_RETURN(out.no, id_of((*words)[0]));
  ASSIGN_OR_RETURN(out.yes, id_of((*words)[1]));
  out.kind = PoolKind::YesNo;
  return Status::ok();
}

// A reranker that answers yes or no has the rows of the head for its answers as a classifier, in the order of its
// labels (Qwen3Model of llama.cpp's conversion/qwen.py). Classifiers of encoders have other labels or none.
Status read_labels(const GgufFile& file, const std::string& arch, PoolingFields& out) {
  const std::string key = arch + ".classifier.output_labels";
  const GgufValue* labels = file.find_value(key);
  if (!labels) return Status::ok();
  if (!labels->is_array_of(GgufValueType::String))
    return invalid("{}: metadata \"{}\" is not an array of strings", file.source(), key);
  const auto place = [&](std::string_view name) -> std::optional<int64_t> {
    const auto at = std::find(labels->strings.begin(), labels->strings.end(), name);
    if (at == labels->strings.end()) return std::nullopt;
    return at - labels->strings.begin();
  };
  const auto yes = place("yes"), no = place("no");
  if (labels->strings.size() != 2 || !yes || !no) return Status::ok();
  const StoredTensor* rows = file.find("cls.output.weight");
  if (!rows || rows->shape.size() != 2 || rows->shape[0] != 2)
    return invalid("{}: tensor \"cls.output.weight\" is missing or has no two rows, for labels yes and no",
                   file.source());
  out.kind = PoolKind::YesNo;
  out.yes = *yes;
  out.no = *no;
  out.classifier = true;
  return Status::ok();
}

// EmbeddingGemma's, where the converter was asked for them (EmbeddingGemma of llama.cpp's conversion/gemma.py).
Status read_dense(const GgufFile& file, const std::string& arch, PoolingFields& out) {
  ASSIGN_OR_RETURN(const auto hidden, file.integer(arch + ".embedding_length"));
  for (const std::string_view name : {"dense_2.weight", "dense_3.weight"}) {
    const StoredTensor* t = file.find(name);
    if (!t) continue;
    const int64_t in = out.dense.empty() ? hidden.value_or(0) : out.dense.back().out;
    if (t->shape.size() != 2 || t->shape[1] != in)
      return invalid("{}: tensor \"{}\" is no matrix with {} columns", file.source(), name, in);
    out.dense.push_back({.in = in, .out = t->shape[0]});
  }
  if (file.find("dense_3.weight") && out.dense.size() != 2)
    return invalid("{}: tensor \"dense_2.weight\" is missing beside \"dense_3.weight\"", file.source());
  return Status::ok();
}

}  // namespace

Result<std::optional<PoolKind>> parse_pool_kind(std::string_view name) {
  if (name == "auto" || name.empty()) return std::optional<PoolKind>();
  for (const PoolKind kind : {PoolKind::None, PoolKind::Last, PoolKind::Mean, PoolKind::First})
    if (pool_kind_name(kind) == name) return std::optional(kind);
  return invalid("`pooling` \"{}\" is not known; allowed: auto, none, last, mean, cls", name);
}

Result<std::string> prompt_of(const PoolingFields& pooling, const std::optional<std::string>& name) {
  const std::string& wanted = name ? *name : pooling.default_prompt;
  if (!name && wanted.empty()) return std::string();
  if (const auto it = pooling.prompts.find(wanted); it != pooling.prompts.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& entry : pooling.prompts) names.push_back(entry.first);
  if (names.empty()) return invalid("\"{}\"; the model has no prompts (config_sentence_transformers.json)", wanted);
  return invalid("\"{}\"; allowed: {}", wanted, fmt::join(names, ", "));
}

Result<PoolingFields> read_pooling(const std::string& folder, const ModelConfigFields& config) {
  PoolingFields out;
  RETURN_IF_ERROR(read_modules(folder, config, out));
  RETURN_IF_ERROR(read_classifier(folder, config, out));
  RETURN_IF_ERROR(read_word(config, out));
  RETURN_IF_ERROR(read_prompts(folder, out));
  RETURN_IF_ERROR(read_length(folder, out));
  RETURN_IF_ERROR(read_sizes(config, out));
  for (const int64_t id : {out.yes, out.no})
    if (id >= config.vocab_size)
      return invalid("{}: the reranker answers with token {}, and the vocabulary has {}", folder, id,
                     config.vocab_size);
  return out;
}

Result<PoolingFields> read_pooling(const GgufFile& file) {
  constexpr PoolKind kKinds[] = {PoolKind::None, PoolKind::Mean, PoolKind::First, PoolKind::Last, PoolKind::Labels};
  PoolingFields out;
  ASSIGN_OR_RETURN(const auto arch, file.string("general.architecture"));
  const std::string key = arch.value_or("") + ".pooling_type";
  ASSIGN_OR_RETURN(const auto type, file.integer(key));
  if (!type) return out;
  if (*type < 0 || *type >= static_cast<int64_t>(std::size(kKinds)))
    return error(Code::Unsupported,
                 "{}: metadata \"{}\" is {}; allowed: 0 (none), 1 (mean), 2 (cls), 3 (last), 4 (rank)", file.source(),
                 key, *type);
  out.kind = kKinds[static_cast<size_t>(*type)];
  if (out.kind == PoolKind::Labels) RETURN_IF_ERROR(read_labels(file, arch.value_or(""), out));
  out.normalise = out.gives_vectors();
  if (out.gives_vectors()) RETURN_IF_ERROR(read_dense(file, arch.value_or(""), out));
  return out;
}

}  // namespace reprise::checkpoint
