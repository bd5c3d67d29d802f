// Manual pages of the commands, in the macros of man(7), made of the flags that the commands declare. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace CLI {
class App;
}

namespace reprise::apps {

// The command that the words name, {"bench", "one-batch"}; none: the program. An error lists what is there.
Result<const CLI::App*> command_at(const CLI::App& program, std::span<const std::string> words);

// reprise(1) of the program, reprise-bench-one-batch(1) of a command; the version stands in the foot.
std::string manual_of(const CLI::App& app, std::string_view version);

}  // namespace reprise::apps
