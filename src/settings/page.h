// The table of settings as the lists of docs/configuration.md. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "settings/setting.h"

namespace reprise::settings {

// A group as a Markdown list: flag and value, other names, default, what is allowed, help; lines of 120 columns at
// most.
std::string list_of(Group group);

// The page with each part between "<!-- settings: NAME -->" and "<!-- end of settings -->" written anew; NAME is that
// of a group: model, engine, graphs, graph aliases, sampling, server, launcher. An unknown name, or a part without an
// end, is an error.
Result<std::string> with_lists(std::string_view page);

}  // namespace reprise::settings
