#include "common/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>

#include "common/help.h"

namespace reprise::apps {
namespace {

struct Flag {
  std::vector<std::string> names;  // long ones, without dashes
  std::string help;
  bool takes_value = false, takes_file = false, takes_model = false;
  std::vector<std::string> choices;
};

struct CommandWords {
  std::string path;  // "bench one-batch"; "" = the program
  std::string help;
  std::vector<std::string> commands;
  std::vector<Flag> flags;
};

// "{a, b}" is how flags with a list show their values.
std::vector<std::string> choices_of(std::string_view type) {
  std::vector<std::string> out;
  if (type.size() < 2 || type.front() != '{') return out;
  std::string word;
  for (const char c : type.substr(1)) {
    if (c == ' ') continue;
    if (c == ',' || c == '}')
      out.push_back(std::exchange(word, {}));
    else
      word += c;
  }
  return out;
}

Flag flag_of(const CLI::Option& option) {
  static const std::set<std::string> files{"FILE", "DIR", "FOLDER", "PATH"};
  Flag f;
  f.names = option.get_lnames();
  f.help = option.get_description();
  const std::string type = option.get_type_name();
  f.takes_value = option.get_type_size() != 0 && option.get_items_expected_max() > 0;
  f.choices = choices_of(type);
  f.takes_file = files.contains(type);
  f.takes_model = std::find(f.names.begin(), f.names.end(), "model-path") != f.names.end();
  return f;
}

void collect(const CLI::App& app, const std::string& path, std::vector<CommandWords>& out) {
  CommandWords c;
  c.path = path;
  c.help = app.get_description();
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : commands) c.commands.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty() && option->get_group() != kUnlisted) c.flags.push_back(flag_of(*option));
  out.push_back(std::move(c));
  for (const CLI::App* sub : commands)
    collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), out);
}

std::string dashed(const std::vector<std::string>& names, const char* between) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "--" : between + std::string("--")) + name;
  return out;
}

// Flags of all commands together: a flag has one meaning.
std::map<std::string, std::set<std::string>> all_choices(const std::vector<CommandWords>& commands) {
  std::map<std::string, std::set<std::string>> out;
  for (const CommandWords& c : commands)
    for (const Flag& f : c.flags)
      if (!f.choices.empty()) out[dashed(f.names, "|")].insert(f.choices.begin(), f.choices.end());
  return out;
}

std::set<std::string> all_with(const std::vector<CommandWords>& commands, bool Flag::*what) {
  std::set<std::string> out;
  for (const CommandWords& c : commands)
    for (const Flag& f : c.flags)
      if (f.*what)
        for (const std::string& name : f.names) out.insert("--" + name);
  return out;
}

std::string for_bash(const std::vector<CommandWords>& commands) {
  std::string out = R"(_reprise() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= next i words=
  for ((i = 1; i < COMP_CWORD; ++i)); do
    next="${path:+$path }${COMP_WORDS[i]}"
    case "$next" in
)";
  std::vector<std::string> paths;
  for (const CommandWords& c : commands)
    if (!c.path.empty()) paths.push_back("'" + c.path + "'");
  out += fmt::format("      {}) path=$next ;;\n    esac\n  done\n  COMPREPLY=()\n  case \"$prev\" in\n",
                     fmt::join(paths, " | "));
  for (const auto& [names, values] : all_choices(commands))
    out += fmt::format("    {}) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$cur\"); return ;;\n", names,
                       fmt::join(values, " "));
  out += fmt::format(
      "    {}) mapfile -t COMPREPLY < <(compgen -W smollm2 -- \"$cur\"; compgen -f -- \"$cur\"); "
      "compopt -o filenames; return ;;\n",
      fmt::join(all_with(commands, &Flag::takes_model), "|"));
  std::set<std::string> files = all_with(commands, &Flag::takes_file), values = all_with(commands, &Flag::takes_value);
  for (const std::string& name : all_with(commands, &Flag::takes_model)) files.erase(name);
  for (const std::string& name : files) values.erase(name);
  out += fmt::format("    {}) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); compopt -o filenames; return ;;\n",
                     fmt::join(files, "|"));
  out += fmt::format("    {}) return ;;\n  esac\n  case \"$path\" in\n", fmt::join(values, "|"));
  for (const CommandWords& c : commands) {
    std::vector<std::string> words = c.commands;
    for (const Flag& f : c.flags)
      for (const std::string& name : f.names) words.push_back("--" + name);
    out += fmt::format("    '{}') words='{}' ;;\n", c.path, fmt::join(words, " "));
  }
  return out + R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _reprise reprise
)";
}

std::string quoted_for_fish(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string for_fish(const std::vector<CommandWords>& commands) {
  std::string out = R"(function __reprise_at
  set -l path
  for word in (commandline -opc)[2..]
    if contains -- (string join ' ' $path $word) )";
  for (const CommandWords& c : commands)
    if (!c.path.empty()) out += quoted_for_fish(c.path) + " ";
  out +=
      "\n      set -a path $word\n    end\n  end\n  test (string join ' ' $path) = \"$argv[1]\"\nend\n"
      "complete -c reprise -f\n";
  for (const CommandWords& c : commands) {
    const std::string at = fmt::format("complete -c reprise -n {}", quoted_for_fish("__reprise_at '" + c.path + "'"));
    for (const std::string& name : c.commands) {
      const auto sub = std::find_if(commands.begin(), commands.end(), [&](const CommandWords& other) {
        return other.path == (c.path.empty() ? name : c.path + " " + name);
      });
      out += fmt::format("{} -a {} -d {}\n", at, name, quoted_for_fish(sub->help));
    }
    for (const Flag& f : c.flags) {
      out += at;
      for (const std::string& name : f.names) out += " -l " + name;
      if (f.takes_value) out += f.takes_file || f.takes_model ? " -r -F" : " -x";
      if (!f.choices.empty()) out += fmt::format(" -a '{}'", fmt::join(f.choices, " "));
      out += fmt::format(" -d {}\n", quoted_for_fish(f.help));
    }
  }
  return out;
}

}  // namespace

const std::vector<std::string>& completion_shells() {
  static const std::vector<std::string> shells{"bash", "zsh", "fish"};
  return shells;
}

std::string completion_script(const CLI::App& program, std::string_view shell) {
  std::vector<CommandWords> commands;
  collect(program, "", commands);
  if (shell == "fish")
    return "# fish: reprise completion fish > ~/.config/fish/completions/reprise.fish\n" + for_fish(commands);
  if (shell == "zsh")
    return "#compdef reprise\n# zsh: source <(reprise completion zsh), in ~/.zshrc after compinit\n"
           "autoload -Uz bashcompinit && bashcompinit\n"
           "(( $+builtins[mapfile] )) || mapfile() { shift; eval \"$1=(\\\"\\${(@f)$(cat)}\\\")\" }\n"
           "(( $+functions[compopt] )) || compopt() { : }\n" +
           for_bash(commands);
  return "# bash: source <(reprise completion bash), in ~/.bashrc\n" + for_bash(commands);
}

}  // namespace reprise::apps
