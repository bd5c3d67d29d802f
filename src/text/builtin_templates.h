// Chat templates that have a name, as SGLang's --chat-template takes them: for models whose files bring none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::text {

std::vector<std::string> builtin_template_names();
// The Jinja source; the error names the allowed ones.
Result<std::string> builtin_template(std::string_view name);

}  // namespace reprise::text
