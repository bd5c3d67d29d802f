// ModelSlim: a flat JSON object with a type for every tensor, and tensors next to each int8 weight.
#include <algorithm>
#include <array>

#include "checkpoint/quantisation.h"
#include "checkpoint/quantise_rows.h"

namespace reprise::checkpoint {
namespace {

constexpr std::string_view kAllowed = "FLOAT, W8A8, W8A8_DYNAMIC";
// Types of the format for which there is nothing to compute them with.
constexpr std::array<std::string_view, 7> kUnsupported{"W4A8_DYNAMIC", "W4A4_DYNAMIC", "W8A8_MXFP8", "W4A8_MXFP",
                                                       "W4A4_MXFP4",   "W8A16",        "W4A16"};

constexpr std::string_view kNormBias = "norm.bias";
constexpr std::string_view kFolded = "kv_b_proj";  // of latent attention

struct Fused {
  std::string_view name;
  std::array<std::string_view, 3> shards;
};
constexpr std::array<Fused, 2> kFused{
    {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}}, {"gate_up_proj", {"gate_proj", "up_proj", ""}}}};

// The module next to this one: "a.b.q_proj" -> "a.b.k_proj".
std::string beside(std::string_view module, std::string_view name) {
  const size_t dot = module.rfind('.');
  return std::string(module.substr(0, dot == std::string_view::npos ? 0 : dot + 1)) + std::string(name);
}

std::string_view last_part(std::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? module : module.substr(dot + 1);
}

class ModelslimReader {
 public:
  ModelslimReader(const ModelConfigFields& config, const Checkpoint* checkpoint)
      : config_(config), json_(config.modelslim), checkpoint_(checkpoint) {}

  Result<QuantPlan> run() {
    if (!json_.is_object()) return invalid("{}: the quantisation description is not a JSON object", config_.source);
    plan_.format = Quantization::ModelSlim;
    for (const auto& [key, value] : json_.items())
      if (names_a_tensor(key)) RETURN_IF_ERROR(scheme_of(key, value).status());
    if (!checkpoint_) {
      for (const auto& [key, value] : json_.items())
        if (key.ends_with(kNormBias))
          plan_.norm_biases.insert(key);
        else if (!module_of(key).empty() && !key.ends_with("norm.weight") && !key.ends_with("embed_tokens.weight"))
          RETURN_IF_ERROR(add_without_tensors(key, value));
    } else {
      for (const CheckpointTensor& t : checkpoint_->tensors())
        if (is_linear_weight(t)) RETURN_IF_ERROR(add(t));
      for (const CheckpointTensor& t : checkpoint_->tensors())
        if (t.name.ends_with(kNormBias)) RETURN_IF_ERROR(add_norm_bias(t));
    }
    RETURN_IF_ERROR(check_shards());
    return std::move(plan_);
  }

 private:
  bool names_a_tensor(const std::string& key) const {
    return !module_of(key).empty() || (checkpoint_ && checkpoint_->find(key));
  }

  Result<LinearScheme> scheme_of(std::string_view name, const Json& value) const {
    if (!value.is_string())
      return invalid("{}: the description's \"{}\" is not a string; allowed: {}", config_.source, name, kAllowed);
    const std::string& type = value.get_ref<const std::string&>();
    if (type == "FLOAT") return LinearScheme::Float;
    if (type == "W8A8") return LinearScheme::W8A8Static;
    if (type == "W8A8_DYNAMIC") return LinearScheme::W8A8Dynamic;
    for (std::string_view known : kUnsupported)
      if (type == known)
        return error(Code::Unsupported, "{}: \"{}\" has the type {}, which is not computed here; allowed: {}",
                     config_.source, name, type, kAllowed);
    return invalid("{}: \"{}\" has the unknown type \"{}\"; allowed: {}", config_.source, name, type, kAllowed);
  }

  bool ignored(std::string_view module) const {
    const auto list = json_.find("ignore");
    if (list == json_.end() || !list->is_array()) return false;
    for (const Json& name : *list)
      if (name.is_string() && name.get_ref<const std::string&>() == module) return true;
    return false;
  }

  // A tensor's own entry, or that of the fused layer it is a shard of.
  Result<LinearScheme> scheme_of(const CheckpointTensor& t) const {
    const std::string_view module = module_of(t.name);
    if (ignored(module)) return LinearScheme::Float;
    for (const std::string& name : {t.name, t.file_name})  // Mixtral's experts have another name in the file
      if (auto it = json_.find(name); it != json_.end()) return scheme_of(name, *it);
    for (const Fused& fused : kFused)
      for (std::string_view shard : fused.shards) {
        if (shard.empty() || last_part(module) != shard) continue;
        const std::string name = beside(module, fused.name) + ".weight";
        if (auto it = json_.find(name); it != json_.end()) return scheme_of(name, *it);
      }
    if (readable_as_float(t.type)) return LinearScheme::Float;
    return invalid("{}: tensor {} is stored as {}, and the description has no type for it; allowed: {}",
                   checkpoint_->source(), t.name, t.type_name, kAllowed);
  }

  Status add(const CheckpointTensor& t) {
    LinearQuant q;
    ASSIGN_OR_RETURN(q.scheme, scheme_of(t));
    if (q.scheme != LinearScheme::Float) {
      q.storage = LinearStorage::ModelSlim;
      const std::string module(module_of(t.name));
      RETURN_IF_ERROR(allow_zeros(*checkpoint_, module + ".weight_offset", "as weights are symmetric", plan_));
      if (q.scheme == LinearScheme::W8A8Static) {
        ASSIGN_OR_RETURN(q.input_scale, positive_number(*checkpoint_, module + ".input_scale"));
        ASSIGN_OR_RETURN(q.input_offset, single_number(*checkpoint_, module + ".input_offset"));
        // deq_scale and quant_bias hold what these say.
        for (const char* leaf : {".input_scale", ".input_offset", ".weight_scale", ".bias"})
          plan_.seen.insert(module + leaf);
        // Folded into other products as floats, so its own activations do not occur; its weight_scale is read.
        if (last_part(module) == kFolded)
          for (const char* leaf : {".quant_bias", ".deq_scale"}) plan_.seen.insert(module + leaf);
      }
    }
    plan_.linears.emplace(t.name, q);
    return Status::ok();
  }

  // Smoothing that moves the middle of a channel leaves a bias behind the norm; tools write zeros where it has not.
  Status add_norm_bias(const CheckpointTensor& t) {
    ASSIGN_OR_RETURN(const std::vector<float> values, read_numbers(*checkpoint_, t));
    const bool zeros = std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
    if (zeros)
      plan_.seen.insert(t.name);
    else
      plan_.norm_biases.insert(t.name);
    return Status::ok();
  }

  Status add_without_tensors(const std::string& name, const Json& value) {
    LinearQuant q;
    ASSIGN_OR_RETURN(q.scheme, scheme_of(name, value));
    if (q.scheme != LinearScheme::Float) q.storage = LinearStorage::ModelSlim;
    if (q.scheme == LinearScheme::W8A8Static) q.input_scale = 1;
    plan_.linears.emplace(name, q);
    return Status::ok();
  }

  // Shards of one fused layer are float together or not at all.
  Status check_shards() const {
    for (const auto& [name, q] : plan_.linears) {
      const std::string_view module = module_of(name);
      for (const Fused& fused : kFused) {
        if (last_part(module) != fused.shards[0]) continue;
        for (std::string_view shard : fused.shards) {
          if (shard.empty()) continue;
          const std::string other = beside(module, shard) + ".weight";
          const auto it = plan_.linears.find(other);
          if (it != plan_.linears.end() &&
              (it->second.scheme == LinearScheme::Float) != (q.scheme == LinearScheme::Float))
            return invalid("{}: {} and {} are parts of one layer, but only one of them is FLOAT in the description",
                           config_.source, name, other);
        }
      }
    }
    return Status::ok();
  }

  const ModelConfigFields& config_;
  const Json& json_;
  const Checkpoint* checkpoint_;
  QuantPlan plan_;
};

}  // namespace

Result<QuantPlan> read_modelslim_plan(const ModelConfigFields& config, const Checkpoint* checkpoint) {
  return ModelslimReader(config, checkpoint).run();
}

}  // namespace reprise::checkpoint
