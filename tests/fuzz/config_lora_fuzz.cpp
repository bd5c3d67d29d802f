// An adapter_config.json (up to the first zero byte) and names of modules (lines behind it): nothing crashes or hangs,
// and ranks and scales of what is accepted are numbers that can be worked with.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/lora.h"

using namespace reprise::checkpoint;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\0');
  std::string_view names = end == std::string_view::npos ? "model.layers.0.self_attn.q_proj" : text.substr(end + 1);
  const auto config = LoraConfig::parse(text.substr(0, end), "fuzz");
  if (!config.is_ok()) {
    if (config.status().message().empty()) std::abort();
    return 0;
  }
  while (!names.empty()) {
    const size_t line = names.find('\n');
    const std::string_view name = names.substr(0, line);
    names.remove_prefix(line == std::string_view::npos ? names.size() : line + 1);
    const int64_t rank = config->rank_of(name);
    if (rank < 1 || rank > LoraConfig::kMostRank || !std::isfinite(config->scale_of(name))) std::abort();
    (void)config->targets(name);
  }
  return 0;
}
