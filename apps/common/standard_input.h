// Standard input as text: read whole within a bound, and checked to be UTF-8. Pure but for the reading.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::apps {

constexpr size_t kMostStandardInput = 16 << 20;

// UTF-8, or an error that names the first wrong byte.
Status check_utf8(std::string_view text, std::string_view place);
// All of standard input, without the newline at its end, as `prompt=$(cat)` would have it. Errors begin with `flag`.
Result<std::string> read_standard_input(std::string_view flag);

}  // namespace reprise::apps
