#include "checkpoint/lora.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "checkpoint/convert.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/unique_json.h"

namespace reprise::checkpoint {
namespace {

constexpr size_t kMaxLoraConfigBytes = 1 << 20;
constexpr size_t kMostNames = 10'000, kMostPatterns = 256;
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kAllLinear = "all-linear";

// What a key must be for an adapter that is two products and nothing else.
struct OnlyValue {
  std::string_view key;
  bool (*plain)(const Json& value);
  std::string_view allowed, what;
};
bool is_false(const Json& v) { return v == false; }
bool is_empty(const Json& v) { return v.empty(); }
constexpr OnlyValue kOnly[] = {
    {"bias", [](const Json& v) { return v == "none"; }, "\"none\"", "trained biases"},
    {"use_dora", is_false, "false", "DoRA"},
    {"lora_bias", is_false, "false", "a bias of B"},
    {"use_qalora", is_false, "false", "QALoRA"},
    {"fan_in_fan_out", is_false, "false", "transposed weights"},
    {"modules_to_save", is_empty, "null, []", "modules that were trained whole"},
    {"trainable_token_indices", is_empty, "null", "trained tokens"},
    {"target_parameters", is_empty, "null, []", "parameters that are no linear layers"},
    {"layer_replication", is_empty, "null", "repeated layers"},
    {"alora_invocation_tokens", is_empty, "null", "activated LoRA"},
    {"use_bdlora", is_empty, "null", "block-diagonal LoRA"},
    {"kasa_config", is_empty, "null", "KaSA"},
    {"monteclora_config", is_empty, "null", "MonteCLoRA"},
    {"velora_config", is_empty, "null", "VeLoRA"},
    {"arrow_config", is_empty, "null", "a choice among adapters"},
};
// How the adapter was trained or begun, which its tensors hold already; and what is read elsewhere.
constexpr std::string_view kKnown[] = {"alpha_pattern",
                                       "auto_mapping",
                                       "base_model_name_or_path",
                                       "corda_config",
                                       "ensure_weight_tying",
                                       "eva_config",
                                       "exclude_modules",
                                       "inference_mode",
                                       "init_lora_weights",
                                       "layers_pattern",
                                       "layers_to_transform",
                                       "loftq_config",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "lora_ga_config",
                                       "megatron_config",
                                       "megatron_core",
                                       "peft_type",
                                       "peft_version",
                                       "qalora_group_size",
                                       "r",
                                       "rank_pattern",
                                       "revision",
                                       "runtime_config",
                                       "target_modules",
                                       "task_type",
                                       "use_rslora"};

Status check_plain(const FieldReader& in) {
  for (const OnlyValue& only : kOnly) {
    const Json* v = in.find(only.key);
    if (v && !only.plain(*v))
      return in.wrong(only.key, *v, fmt::format("{}; {} cannot be applied", only.allowed, only.what));
  }
  return Status::ok();
}

bool known_key(std::string_view key) {
  const auto same = [&](const OnlyValue& only) { return only.key == key; };
  return std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown) ||
         std::any_of(std::begin(kOnly), std::end(kOnly), same);
}

Result<NamePattern> pattern_of(std::string_view key, const std::string& python, const std::string& whole,
                               std::string_view source) {
  auto pattern = NamePattern::compile(whole);
  if (!pattern.is_ok()) return invalid("{}: {} \"{}\": {}", source, key, python, pattern.status().message());
  return pattern;
}

}  // namespace

// PEFT takes a string as an expression for whole names, and a list as endings of names behind a dot.
Status LoraConfig::read_targets(const FieldReader& in) {
  constexpr std::string_view kKey = "target_modules",
                             kAllowed = "a list of names, \"all-linear\", a regular expression";
  const Json* v = in.find(kKey);
  if (!v) return in.absent(kKey, kAllowed);
  if (v->is_string()) {
    const auto text = v->get<std::string>();
    all_linear_ = text == kAllLinear;
    if (all_linear_) return Status::ok();
    auto pattern = NamePattern::compile("(?:" + text + ")$");
    if (!pattern.is_ok()) return in.wrong(kKey, *v, fmt::format("{}: {}", kAllowed, pattern.status().message()));
    target_pattern_ = std::move(*pattern);
    return Status::ok();
  }
  if (!v->is_array() || v->empty() || v->size() > kMostNames) return in.wrong(kKey, *v, kAllowed);
  for (const Json& name : *v) {
    if (!name.is_string() || name.get<std::string>().empty()) return in.wrong(kKey, *v, kAllowed);
    target_names_.push_back(name.get<std::string>());
  }
  std::sort(target_names_.begin(), target_names_.end());
  return Status::ok();
}

Result<LoraConfig> LoraConfig::parse(std::string_view text, std::string_view source) {
  ASSIGN_OR_RETURN(const Json config, parse_unique_json(text, source));
  if (!config.is_object()) return invalid("{}: not a JSON object", source);
  const FieldReader in(config, source);
  LoraConfig out;
  std::string type;
  RETURN_IF_ERROR(in.choice("peft_type", {"LORA"}, "LORA", type));
  RETURN_IF_ERROR(check_plain(in));
  RETURN_IF_ERROR(in.integer("r", 1, kMostRank, 8, out.rank_));
  RETURN_IF_ERROR(in.number("lora_alpha", -1e6, 1e6, 8.0, out.alpha_));
  RETURN_IF_ERROR(in.boolean("use_rslora", false, out.rank_stabilised_));
  std::optional<std::string> base;
  RETURN_IF_ERROR(in.string("base_model_name_or_path", base));
  out.base_model_ = base.value_or("");
  RETURN_IF_ERROR(out.read_targets(in));
  // In the order of the file, which decides.
  ASSIGN_OR_RETURN(const OrderedJson ordered, parse_ordered_json(text, source));
  for (const auto& [key, into, least, most] :
       {std::tuple{"rank_pattern", &out.ranks_, 1.0, static_cast<double>(kMostRank)},
        {"alpha_pattern", &out.alphas_, -1e6, 1e6}}) {
    const auto patterns = ordered.find(key);
    if (patterns == ordered.end() || patterns->is_null()) continue;
    if (!patterns->is_object() || patterns->size() > kMostPatterns)
      return invalid("{}: {}: allowed: an object of up to {} names of modules and numbers", source, key, kMostPatterns);
    for (const auto& [name, value] : patterns->items()) {
      const double number = value.is_number() ? value.get<double>() : 0;
      const bool fits = value.is_number() && number >= least && number <= most &&
                        (into != &out.ranks_ || number == std::floor(number));
      if (!fits)
        return invalid("{}: {} \"{}\": allowed: {} from {} to {}", source, key, name,
                       into == &out.ranks_ ? "integers" : "numbers", least, most);
      ASSIGN_OR_RETURN(NamePattern pattern, pattern_of(key, name, "(.*\\.)?(" + name + ")$", source));
      into->push_back({std::move(pattern), number});
    }
  }
  for (const auto& [key, value] : config.items())
    if (!known_key(key) && !value.empty() && value != false) out.unknown_.push_back(key);
  return out;
}

bool LoraConfig::targets(std::string_view module) const {
  if (all_linear_) return true;
  if (target_pattern_) return target_pattern_->matches(module);
  for (size_t at = 0; at != std::string_view::npos;) {
    if (std::binary_search(target_names_.begin(), target_names_.end(), module.substr(at),
                           std::less<std::string_view>()))
      return true;
    at = module.find('.', at);
    if (at != std::string_view::npos) ++at;
  }
  return false;
}

double LoraConfig::value_of(std::string_view module, const std::vector<PatternValue>& patterns,
                            double otherwise) const {
  for (const PatternValue& p : patterns)
    if (p.pattern.matches(module)) return p.value;
  return otherwise;
}

int64_t LoraConfig::rank_of(std::string_view module) const {
  return static_cast<int64_t>(value_of(module, ranks_, static_cast<double>(rank_)));
}

double LoraConfig::scale_of(std::string_view module) const {
  const auto rank = static_cast<double>(rank_of(module));
  return value_of(module, alphas_, alpha_) / (rank_stabilised_ ? std::sqrt(rank) : rank);
}

Result<LoraAdapter> LoraAdapter::open(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path at(folder);
  std::error_code ec;
  if (!fs::is_directory(at, ec))
    return error(Code::NotFound, "{}: not a folder; a LoRA adapter is a folder with adapter_config.json", folder);
  const std::string config_path = (at / "adapter_config.json").string();
  const std::string file_path = (at / "adapter_model.safetensors").string();
  ASSIGN_OR_RETURN(const std::string text, read_file(config_path, kMaxLoraConfigBytes));
  ASSIGN_OR_RETURN(LoraConfig config, LoraConfig::parse(text, config_path));
  if (!fs::exists(file_path, ec) && fs::exists(at / "adapter_model.bin", ec))
    return error(Code::Unsupported,
                 "{}: adapter_model.bin is a pickle, which is not read; allowed: adapter_model.safetensors", folder);
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(file_path));
  return from(std::move(config), std::move(file));
}

Result<LoraAdapter> LoraAdapter::from(LoraConfig config, SafetensorsFile file) {
  LoraAdapter out(std::move(config), std::make_unique<SafetensorsFile>(std::move(file)));
  RETURN_IF_ERROR(out.pair_tensors());
  return out;
}

Status LoraAdapter::pair_tensors() {
  std::map<std::string_view, LoraModule> found;
  for (const StoredTensor& t : file_->tensors()) {
    std::string_view name = t.name;
    const auto wrong = [&](std::string_view why) { return invalid("{}: {}: {}", source_, t.name, why); };
    const bool a = name.ends_with(".lora_A.weight"), b = name.ends_with(".lora_B.weight");
    if (name.find("lora_magnitude_vector") != std::string_view::npos) return wrong("DoRA cannot be applied");
    if (name.find("lora_embedding_") != std::string_view::npos)
      return wrong("adapters of embeddings cannot be applied; allowed: linear layers of decoder blocks");
    if (!name.starts_with(kPrefix) || (!a && !b))
      return wrong("allowed: base_model.model.MODULE.lora_A.weight, base_model.model.MODULE.lora_B.weight");
    if (t.shape.size() != 2 || t.elements() == 0) return wrong("allowed: matrices that are not empty");
    if (!plain_dtype(t.type) || !readable_as_float(t.type)) return wrong("allowed: tensors of F32, F16, BF16, F64");
    name = name.substr(kPrefix.size(), name.size() - kPrefix.size() - std::string_view(".lora_A.weight").size());
    LoraModule& m = found[name];
    m.name = name;
    (a ? m.a : m.b) = &t;
  }
  if (found.empty()) return invalid("{}: holds no tensors", source_);
  for (auto& [name, m] : found) {
    if (!m.a || !m.b)
      return invalid("{}: {} has lora_{} and no lora_{}", source_, name, m.a ? "A" : "B", m.a ? "B" : "A");
    if (!config_.targets(name))
      return invalid("{}: has tensors of {}, which target_modules of adapter_config.json does not name", source_, name);
    m.rank = config_.rank_of(name);
    m.in = m.a->shape[1];
    m.out = m.b->shape[0];
    m.scale = config_.scale_of(name);
    if (m.a->shape[0] != m.rank || m.b->shape[1] != m.rank)
      return invalid("{}: {}: lora_A is [{}, {}] and lora_B [{}, {}]; adapter_config.json gives the rank {}", source_,
                     name, m.a->shape[0], m.in, m.out, m.b->shape[1], m.rank);
    modules_.push_back(std::move(m));
  }
  return Status::ok();
}

int64_t LoraAdapter::rank() const {
  int64_t most = 0;
  for (const LoraModule& m : modules_) most = std::max(most, m.rank);
  return most;
}

Result<std::vector<float>> LoraAdapter::read(const StoredTensor& t) const {
  std::vector<float> out(static_cast<size_t>(t.elements()));
  uint64_t bad = 0;
  RETURN_IF_ERROR(convert_elements(t.type, file_->bytes(t), DType::F32, out.data(), out.size(), &bad).at(source_));
  if (bad > 0) return invalid("{}: {}: {} numbers are NaN or infinite", source_, t.name, bad);
  return out;
}

}  // namespace reprise::checkpoint
