// What this binary is: version, commit, compiler, what it was built with. Plain text; any thread.
#pragma once

#include <string>

namespace reprise::apps {

// The first line is "reprise VERSION (COMMIT)".
std::string version_text();

}  // namespace reprise::apps
