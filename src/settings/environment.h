// Settings of the environment: REPRISE_SET_MAX_RUNNING_REQUESTS=32. The names have a beginning of their own because
// Kubernetes sets variables like REPRISE_PORT for a service that is called reprise. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "settings/setting.h"

namespace reprise::settings {

struct Variable {
  std::string name;  // "REPRISE_SET_MAX_RUNNING_REQUESTS"
  std::string text;
  const Setting* row = nullptr;
};

// "max_running_requests" as "REPRISE_SET_MAX_RUNNING_REQUESTS".
std::string variable_of(std::string_view key);

// The variables of an environment ("NAME=text", as environ has them, up to its null) that name settings, in its order;
// an empty one counts as not set. One that names no setting is an error with the names that are close, or with that of
// the setting that has this name for another flag.
Result<std::vector<Variable>> variables_of(const char* const* environment);

// The value, or the elements of a JSON list for settings that may be given several times. What is wrong is an error
// that names the variable, the setting and what is allowed.
Result<std::vector<std::string>> values_of(const Variable& variable);

}  // namespace reprise::settings
