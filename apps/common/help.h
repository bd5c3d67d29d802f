// The form of --help: groups that are not listed stay out of it. Flags in them still have their names in errors, which
// CLI11's own hidden options have not.
#pragma once

namespace CLI {
class App;
}

namespace reprise::apps {

constexpr const char* kUnlisted = "Unlisted";  // the group

// For the program and, as they take it over, its commands: call it before they are added.
void set_help_form(CLI::App& program);

}  // namespace reprise::apps
