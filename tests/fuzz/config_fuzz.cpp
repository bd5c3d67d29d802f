// Any text as config.json and generation_config.json, with overrides taken from after the first newline.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/unique_json.h"
#include "models/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  using namespace reprise::checkpoint;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  auto json = parse_unique_json(text.substr(0, line), "config.json");
  if (!json.is_ok()) return 0;
  (void)parse_generation_config(*json, "generation_config.json");
  std::vector<std::string> overrides;
  if (line != std::string_view::npos) overrides.emplace_back(text.substr(line + 1, 200));
  for (const auto& list : {std::vector<std::string>{}, overrides}) {
    auto config = parse_model_config(*json, "config.json", list, models::families(true));
    if (!config.is_ok()) continue;
    // The range checks promise that products like these do not overflow.
    int64_t total = 0;
    for (int64_t i = 0; i < config->num_hidden_layers; ++i) total += config->window_of_layer(i);
    total += config->num_attention_heads * config->head_dim * config->hidden_size * config->num_hidden_layers;
    total += config->vocab_size * config->hidden_size;
    if (config->num_attention_heads % config->num_key_value_heads != 0 || total < 0) __builtin_trap();
  }
  return 0;
}
