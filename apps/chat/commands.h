// commands: the lines of a conversation that are for the program and begin with a slash: their names, what follows
// them, help and completion. Pure but for the names of files, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "chat/completion.h"

namespace reprise::apps {

enum class ChatCommand { Help, System, Regen, Save, Load, Stats, Reset, Exit };

struct CommandLine {
  ChatCommand command;
  std::string argument;
};

// nullopt: a message for the model; unescaped() is what it says. An error names the nearest commands.
Result<std::optional<CommandLine>> parse_command(std::string_view line);
// Without the first slash of two, which begin a message that starts with one.
std::string unescaped(std::string_view line);

std::string chat_help();
Completion complete_command(std::string_view before_cursor);
// "~/x" in the home folder.
std::string expanded_path(const std::string& path);

}  // namespace reprise::apps
