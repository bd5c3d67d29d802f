#include "chat/commands.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/close_names.h"
#include "text/utf8.h"

namespace reprise::apps {
namespace {

namespace fs = std::filesystem;

enum class Follows { Nothing, MaybeText, File };

struct KnownCommand {
  std::string_view name;
  ChatCommand command;
  Follows follows;
  std::string_view help;
};

constexpr KnownCommand kCommands[] = {
    {"/help", ChatCommand::Help, Follows::Nothing, "this list"},
    {"/system", ChatCommand::System, Follows::MaybeText, "show the system message, or set it; - removes it"},
    {"/regen", ChatCommand::Regen, Follows::Nothing, "draw the last answer again, with another seed"},
    {"/save", ChatCommand::Save, Follows::File, "write the conversation as JSON, in OpenAI's form"},
    {"/load", ChatCommand::Load, Follows::File, "go on with a conversation that was saved"},
    {"/stats", ChatCommand::Stats, Follows::Nothing, "tokens, speed and settings so far"},
    {"/reset", ChatCommand::Reset, Follows::Nothing, "forget the conversation; the system message stays"},
    {"/exit", ChatCommand::Exit, Follows::Nothing, "end, as Ctrl-D does; also /quit"},
    {"/quit", ChatCommand::Exit, Follows::Nothing, ""},
};

constexpr std::string_view kBlank = " \t\n";

std::string_view what_follows(const KnownCommand& c) {
  return c.follows == Follows::File ? " FILE" : c.follows == Follows::MaybeText ? " [TEXT]" : "";
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

Status unknown_command(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KnownCommand& c : kCommands) names.push_back(c.name);
  return invalid("{} is not a command{}; all of them: {}; a message that begins with a slash is written with two", name,
                 close_names(name, names), fmt::join(names, " "));
}

}  // namespace

Result<std::optional<CommandLine>> parse_command(std::string_view line) {
  if (!line.starts_with('/') || line.starts_with("//")) return std::optional<CommandLine>();
  const std::string_view name = line.substr(0, line.find_first_of(kBlank));
  const auto* known =
      std::find_if(std::begin(kCommands), std::end(kCommands), [&](const KnownCommand& c) { return c.name == name; });
  if (known == std::end(kCommands)) return unknown_command(name);
  const std::string argument(trimmed(line.substr(name.size())));
  if (known->follows == Follows::Nothing && !argument.empty())
    return invalid("{} takes nothing after it, but there is \"{}\"", name, argument);
  if (known->follows == Follows::File && argument.empty()) return invalid("{0} needs a file: {0} FILE", name);
  return std::optional(CommandLine{known->command, argument});
}

std::string unescaped(std::string_view line) { return std::string(line.starts_with("//") ? line.substr(1) : line); }

std::string chat_help() {
  std::string out;
  for (const KnownCommand& c : kCommands)
    if (!c.help.empty()) out += fmt::format("  {:<18}{}\n", fmt::format("{}{}", c.name, what_follows(c)), c.help);
  out +=
      "A message that begins with a slash is written with two: //etc is a folder.\n"
      "More lines: end one with \\, or press Alt-Enter; pasted lines are one message.\n"
      "Up, Ctrl-R: earlier messages. Tab: commands and files. Ctrl-C: stop an answer, or clear the line.\n";
  return out;
}

std::string expanded_path(const std::string& path) {
  const char* home = std::getenv("HOME");
  return path.starts_with("~/") && home ? home + path.substr(1) : path;
}

Completion complete_command(std::string_view before) {
  Completion c;
  if (!before.starts_with('/') || before.starts_with("//")) return c;
  const size_t blank = before.find(' ');
  if (blank == std::string_view::npos) {
    for (const KnownCommand& known : kCommands)
      if (known.name.starts_with(before))
        c.choices.push_back(std::string(known.name) + (known.follows == Follows::Nothing ? "" : " "));
    return c;
  }
  const auto known = parse_command(std::string(before.substr(0, blank)) + " x");
  if (!known || !*known || ((*known)->command != ChatCommand::Save && (*known)->command != ChatCommand::Load)) return c;
  // Names of files: from the last slash on, or from the blank.
  const size_t begin = std::min(before.find_first_not_of(' ', blank), before.size());
  const std::string typed(before.substr(begin));
  const size_t slash = typed.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : typed.substr(0, slash + 1);
  const std::string beginning = typed.substr(folder.size());
  c.begin = begin + folder.size();
  std::error_code problem;
  fs::directory_iterator it(folder.empty() ? "." : expanded_path(folder), problem);
  for (; !problem && it != fs::directory_iterator(); it.increment(problem)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(beginning) || (beginning.empty() && name[0] == '.') || !text::is_valid_utf8(name)) continue;
    std::error_code ignored;
    c.choices.push_back(name + (it->is_directory(ignored) ? "/" : ""));
  }
  std::sort(c.choices.begin(), c.choices.end());
  return c;
}

}  // namespace reprise::apps
