// The table of settings in the forms in which it is printed: text, JSON, Markdown, a manual page, a file of settings to
// begin with. Pure; any thread.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "settings/setting.h"

namespace reprise::settings {

// {name, aliases, variable, group, type, default, allowed, live, secret, help}
OrderedJson json_of(const Setting& setting);
OrderedJson table_as_json();
std::string table_as_text();
std::string table_as_markdown();
// reprise-settings(7); `version` stands in its foot.
std::string table_as_manual(std::string_view version);

// A file for `serve --config` in which every setting stands with its default, as a comment. Settings that a launch line
// of another system calls otherwise, and those of one start alone, are left out.
std::string table_as_config();

// Text for the manual: nothing in it is taken for an instruction of roff.
std::string for_roff(std::string_view text);

}  // namespace reprise::settings
