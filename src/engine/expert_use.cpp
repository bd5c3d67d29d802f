#include "engine/expert_use.h"

#include <algorithm>

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
  // Nobody else writes, so a plain sum will do.
  for (size_t e = 0; e < experts; ++e)
    if (const int32_t n = starts[e + 1] - starts[e]; n > 0)
      rows[e].store(rows[e].load(std::memory_order_relaxed) + static_cast<uint64_t>(n), std::memory_order_relaxed);
}

}  // namespace reprise::engine
