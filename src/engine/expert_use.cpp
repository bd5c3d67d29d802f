#include "engine/expert_use.h"

#include <algorithm>

#include "nn/experts.h"
#include "passes/house_passes.h"

namespace reprise::engine {

std::string ExpertUse::layer_name(size_t layer) const {
  constexpr std::string_view kLayers = "layers.";
  const std::string& place = layers_[layer].place;
  const size_t at = place.find(kLayers);
  if (at == std::string::npos) return place;
  const size_t begin = at + kLayers.size();
  return place.substr(begin, std::min(place.find('.', begin), place.size()) - begin);
}

void ExpertUse::add(size_t layer, std::span<const int32_t> starts) {
  Counts& rows = layers_[layer].rows;
  const size_t experts = std::min(rows.size(), starts.empty() ? 0 : starts.size() - 1);
  // No other thread writes, so a plain sum will do.
  for (size_t e = 0; e < experts; ++e)
    if (const int32_t n = starts[e + 1] - starts[e]; n > 0)
      rows[e].store(rows[e].load(std::memory_order_relaxed) + static_cast<uint64_t>(n), std::memory_order_relaxed);
}

void ExpertUse::open(const Graph& graph, int64_t parts) {
  share_out(parts);
  for (const GraphOutput& o : graph.outputs())
    if (o.name.starts_with(kExpertStarts))
      add_layer(o.name.substr(kExpertStarts.size()), o.value->type.shape[0].factor - 1);
}

// Every program has the same layers in the same order.
Status ExpertUse::add_step(const StepOutputs& outputs) {
  std::vector<const GraphOutput*>& starts = starts_[outputs.program()];
  if (starts.empty())
    for (const GraphOutput& o : outputs.program()->graph().outputs())
      if (o.name.starts_with(kExpertStarts)) starts.push_back(&o);
  for (size_t layer = 0; layer < std::min(starts.size(), layers()); ++layer) {
    ASSIGN_OR_RETURN(const TensorView v, outputs.of_program(*starts[layer]));
    RETURN_IF_ERROR(outputs.arrived());
    add(layer, {static_cast<const int32_t*>(v.data), static_cast<size_t>(v.elements())});
  }
  return Status::ok();
}

double ExpertUse::imbalance(size_t layer) const {
  uint64_t most = 0, all = 0;
  for (int64_t part = 0; part < parts_; ++part) {
    const auto here = nn::expert_range(experts(layer), part, parts_);
    if (!here.is_ok()) return 1;  // fewer experts than parts: such a model is refused at the start
    uint64_t mine = 0;
    for (int64_t e = here->first; e < here->first + here->count; ++e) mine += rows(layer, e);
    most = std::max(most, mine);
    all += mine;
  }
  return all > 0 ? static_cast<double>(most) * static_cast<double>(parts_) / static_cast<double>(all) : 1;
}

}  // namespace reprise::engine
