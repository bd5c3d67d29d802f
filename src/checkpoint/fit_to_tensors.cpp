#include "checkpoint/fit_to_tensors.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace reprise::checkpoint {
namespace {

constexpr std::string_view kHead = "lm_head.weight", kEmbedding = "model.embed_tokens.weight";

std::string_view first_part(std::string_view name) { return name.substr(0, name.find('.')); }

bool same_bytes(const Checkpoint& checkpoint, const CheckpointTensor& a, const CheckpointTensor& b) {
  if (a.type_name != b.type_name || a.shape != b.shape || a.bytes != b.bytes) return false;
  const auto x = checkpoint.raw(a), y = checkpoint.raw(b);
  return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size()) == 0);
}

void resolve_head(ModelConfigFields& config, const Checkpoint& checkpoint) {
  if (!config.tie_word_embeddings) return;
  const CheckpointTensor* head = checkpoint.find(kHead);
  const CheckpointTensor* embedding = checkpoint.find(kEmbedding);
  if (!head || !embedding || same_bytes(checkpoint, *head, *embedding)) return;
  config.tie_word_embeddings = false;
  config.raw_json["tie_word_embeddings"] = false;  // what programs are cached by
  config.notices.push_back(
      fmt::format("tie_word_embeddings true: {} is there and differs from {}; effective: false", kHead, kEmbedding));
}

// Modules that a layer behind the last one has besides those of any layer.
bool is_of_prediction(std::string_view module) {
  constexpr std::string_view kModules[] = {"enorm", "hnorm", "eh_proj", "shared_head", "embed_tokens"};
  return std::find(std::begin(kModules), std::end(kModules), module) != std::end(kModules);
}

void set_prediction_layers_aside(ModelConfigFields& config, Checkpoint& checkpoint, bool first_read) {
  if (config.nextn_layers == 0) return;
  const int64_t layers = config.num_hidden_layers, first = layers + (first_read ? 1 : 0);
  std::set<std::string, std::less<>> modules;  // of the layers that are computed
  for (const CheckpointTensor& t : checkpoint.tensors())
    if (const LayerName n = layer_name(t.name); n.layer >= 0 && n.layer < layers) modules.emplace(first_part(n.rest));
  uint64_t bytes = 0;
  size_t count = 0;  // of those that nothing reads
  checkpoint.set_aside([&](const CheckpointTensor& t) {
    const LayerName n = layer_name(t.name);
    const std::string_view module = first_part(n.rest);
    const bool known = n.layer >= layers && n.layer < layers + config.nextn_layers &&
                       (is_of_prediction(module) || modules.contains(module));
    if (known && n.layer >= first) ++count, bytes += t.bytes;
    return known;
  });
  if (count == 0) return;
  const int64_t last = layers + config.nextn_layers - 1;
  config.notices.push_back(fmt::format(
      "{} tensors ({:.1f} MB) of layer{} {} predict further tokens (num_nextn_predict_layers {}) and are not loaded",
      count, static_cast<double>(bytes) / 1e6, last > first ? "s" : "",
      last > first ? fmt::format("{} to {}", first, last) : fmt::format("{}", first), config.nextn_layers));
}

// A file of a family that may be text alone: its configuration tells of a tower that was left out.
void resolve_tower(ModelConfigFields& config, const Checkpoint& checkpoint) {
  if (!config.vision || config.family->architecture == config.family->wrapper) return;
  const auto& tensors = checkpoint.tensors();
  if (std::any_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.name.starts_with("visual."); })) return;
  config.vision.reset();
  config.raw_json.erase("vision_config");  // what programs are cached by
  config.notices.push_back("vision_config has no effect: there are no tensors visual.*; effective: the text model");
}

// A model of text and pictures: what is not of its text model.
void set_other_models_aside(ModelConfigFields& config, Checkpoint& checkpoint) {
  if (config.vision || (!config.wrapped && !(config.family && config.family->vision))) return;
  uint64_t bytes = 0;
  const size_t count = checkpoint.set_aside([&](const CheckpointTensor& t) {
    std::string_view name = t.name;
    if (name.starts_with("model.")) name.remove_prefix(6);
    const std::string_view part = first_part(name);
    const bool other = part.starts_with("vision_") || part == "multi_modal_projector" || part == "visual";
    if (other) bytes += t.bytes;
    return other;
  });
  if (count > 0)
    config.notices.push_back(fmt::format("{} tensors ({:.1f} MB) are not of the text model and are not loaded", count,
                                         static_cast<double>(bytes) / 1e6));
}

}  // namespace

LayerName layer_name(std::string_view tensor) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!tensor.starts_with(kLayers)) return {};
  tensor.remove_prefix(kLayers.size());
  constexpr size_t kMostDigits = 9;
  const size_t dot = tensor.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > kMostDigits || (dot > 1 && tensor[0] == '0')) return {};
  int64_t layer = 0;
  for (const char c : tensor.substr(0, dot)) {
    if (c < '0' || c > '9') return {};
    layer = layer * 10 + (c - '0');
  }
  return {layer, tensor.substr(dot + 1)};
}

void fit_to_tensors(ModelConfigFields& config, Checkpoint& checkpoint, bool nextn_read) {
  resolve_tower(config, checkpoint);
  set_other_models_aside(config, checkpoint);
  set_prediction_layers_aside(config, checkpoint, nextn_read);
  resolve_head(config, checkpoint);
}

}  // namespace reprise::checkpoint
