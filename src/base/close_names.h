// close_names: which of the known names a misspelt one may have meant, for error messages. Pure, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace reprise {

// "; close names: a, b" with at most three, or "" when nothing is near.
std::string close_names(std::string_view name, std::span<const std::string_view> known);

}  // namespace reprise
