// The form of --help. A command with many flags shows those of every day; --help-all shows the others as well, with
// all their spellings. Groups that are not listed stay out of both. Flags in them still have their names in errors,
// which CLI11's own hidden options have not.
#pragma once

namespace CLI {
class App;
}

namespace reprise::apps {

constexpr const char* kUnlisted = "Unlisted";  // the group

// For the program and, as they take it over, its commands: call it before they are added.
void set_help_form(CLI::App& program);
// Gives --help-all to the commands that need it: call it when all are there.
void add_help_all(CLI::App& program);

}  // namespace reprise::apps
