// What this binary is: version, commit, compiler, what it was built with. Plain text; any thread.
#pragma once

#include <string>

namespace reprise::apps {

// The first line is "reprise VERSION (COMMIT)"; the last has no line break.
std::string version_text();
// "reprise VERSION", the same in every build.
std::string version_number();

}  // namespace reprise::apps
