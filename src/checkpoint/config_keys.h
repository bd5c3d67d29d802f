// The keys of config.json that overrides may name although a given file lacks them. Plain data, any thread.
#pragma once

#include <span>
#include <string_view>

namespace reprise::checkpoint {

std::span<const std::string_view> known_config_keys();
std::span<const std::string_view> known_rope_keys();  // inside rope_scaling and rope_parameters

}  // namespace reprise::checkpoint
