#include "settings/forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "settings/environment.h"
#include "settings/page.h"
#include "settings/values.h"

namespace reprise::settings {
namespace {

constexpr Group kAll[] = {Group::Model,    Group::Engine, Group::Graphs,  Group::GraphAliases, Group::Speculation,
                          Group::Sampling, Group::Server, Group::Library, Group::Launcher};
constexpr Group kOfFiles[] = {Group::Model, Group::Engine, Group::Graphs, Group::Speculation, Group::Server};
// Files leave out settings that concern one start, second names, and settings of other commands.
constexpr std::string_view kNotInFiles[] = {"config", "check", "enable_metrics", "log_requests", "verbose"};

const char* type_of(Kind kind) {
  switch (kind) {
    case Kind::Switch: return "switch";
    case Kind::Text: return "text";
    case Kind::Texts:
    case Kind::Words: return "list";
    case Kind::Choice: return "choice";
    case Kind::Integer: return "integer";
    case Kind::Integers: return "integers";
    case Kind::Real: return "real";
  }
  return "";
}

// "--context-length N", with all names of the flag.
std::string flags_with_value(const Setting& s) {
  std::string out;
  for (const std::string& name : flags_of(s)) out += (out.empty() ? "" : ", ") + name;
  const std::string_view value = s.kind == Kind::Choice ? "WORD" : value_word(s);
  return value.empty() ? out : fmt::format("{} {}", out, value);
}

// What is allowed, and the default, in words.
std::string remarks_of(const Setting& s) {
  std::string out;
  if (!allowed(s).empty()) out = "allowed: " + allowed(s);
  if (!s.initial.empty()) out += fmt::format("{}default: {}", out.empty() ? "" : "; ", s.initial);
  if (s.live) out += fmt::format("{}live", out.empty() ? "" : "; ");
  return out;
}

std::string sentence_of(const Setting& s) { return (s.refused ? "refused; " : "") + as_flags(s.help); }

// Words in lines of so many columns, each after `prefix`.
std::string wrapped(std::string_view text, std::string_view prefix, size_t columns) {
  std::string out, line;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (!line.empty() && prefix.size() + line.size() + 1 + word.size() > columns)
      out += fmt::format("{}{}\n", prefix, std::exchange(line, {}));
    line += (line.empty() ? "" : " ") + std::string(word);
  }
  return line.empty() ? out : out + fmt::format("{}{}\n", prefix, line);
}

// The default as JSON; nothing where there is none.
std::string json_value(const Setting& s) {
  if (s.kind == Kind::Switch) return s.initial.empty() ? "false" : std::string(s.initial);
  if (s.kind == Kind::Texts || s.kind == Kind::Words) return "[]";
  if (s.initial.empty()) return {};
  if (s.kind == Kind::Integer || s.kind == Kind::Real) return std::string(s.initial);
  return OrderedJson(std::string(s.initial)).dump();
}

}  // namespace

OrderedJson json_of(const Setting& s) {
  return {{"name", name_of(s.key)},
          {"aliases", std::string(s.also)},
          {"variable", variable_of(s.key)},
          {"group", std::string(title_of(s.group))},
          {"type", type_of(s.kind)},
          {"default", s.initial.empty() ? OrderedJson() : OrderedJson(std::string(s.initial))},
          {"allowed", allowed(s)},
          {"live", s.live},
          {"secret", s.secret},
          {"help", as_flags(s.help)}};
}

OrderedJson table_as_json() {
  OrderedJson out = OrderedJson::array();
  for (const Setting& s : table()) out.push_back(json_of(s));
  return out;
}

std::string table_as_text() {
  constexpr size_t kColumns = 100;
  std::string out;
  for (const Group group : kAll) {
    out += fmt::format("{}{} ({})\n\n", out.empty() ? "" : "\n", title_of(group), as_flags(commands_of(group)));
    for (const Setting& s : rows(group)) {
      out += wrapped(flags_with_value(s), "  ", kColumns) + wrapped(sentence_of(s), "      ", kColumns);
      if (!remarks_of(s).empty()) out += wrapped(remarks_of(s), "      ", kColumns);
    }
  }
  return out;
}

std::string table_as_markdown() {
  std::string out;
  for (const Group group : kAll)
    out += fmt::format("{}## {}\n\nFor {}.\n\n{}", out.empty() ? "" : "\n", title_of(group), commands_of(group),
                       list_of(group));
  return out;
}

std::string for_roff(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool first = at == 0 || text[at - 1] == '\n';
    if (first && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '`')
      out += "\\(ga";
    else if (c == '^')
      out += "\\(ha";
    else if (c == '~')
      out += "\\(ti";
    else
      out += c;
  }
  return out;
}

std::string table_as_manual(std::string_view version) {
  std::string out = fmt::format(".TH REPRISE\\-SETTINGS 7 \"\" \"{}\" \"Reprise\"\n", for_roff(version));
  out += ".SH NAME\nreprise\\-settings \\- settings of models, engines and servers\n.SH DESCRIPTION\n";
  out += for_roff(
      "A setting is a flag of a command, a member of the file that serve --config reads, and a name of the library: "
      "--max-running-requests 32 on a command line is {\"max-running-requests\": 32} in the file, and "
      "REPRISE_SET_MAX_RUNNING_REQUESTS=32 in the environment. Flags outrank the environment, which outranks the file. "
      "A server takes those that are marked live anew at SIGHUP.\n");
  for (const Group group : kAll) {
    std::string title(title_of(group));
    std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
    out += fmt::format(".SH {}\n{}\n", for_roff(title), for_roff(fmt::format("For {}.", as_flags(commands_of(group)))));
    for (const Setting& s : rows(group)) {
      out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", for_roff(flags_with_value(s)), for_roff(sentence_of(s)));
      if (!remarks_of(s).empty()) out += fmt::format(".br\n({})\n", for_roff(remarks_of(s)));
    }
  }
  return out + ".SH SEE ALSO\n.BR reprise (1),\n.BR reprise\\-serve (1)\n";
}

std::string table_as_config() {
  constexpr size_t kColumns = 120;
  std::string out =
      "// Settings of `reprise serve --config FILE`: JSON, in which a line that begins with // is a comment.\n"
      "// Flags of the command line and variables (REPRISE_SET_PORT=8000) outrank this file. `reprise serve --check "
      "--config\n"
      "// FILE` reads it and starts nothing.\n"
      "// Every setting stands here with its default; where that follows from a rule, its comment says so.\n"
      "{\n"
      "  // \"include\": [\"more.json\"],\n";
  for (const Group group : kOfFiles) {
    out += fmt::format("\n  // ---- {}\n", title_of(group));
    for (const Setting& s : rows(group)) {
      if (s.refused || std::find(std::begin(kNotInFiles), std::end(kNotInFiles), s.key) != std::end(kNotInFiles))
        continue;
      const std::string known = allowed(s).empty() || !s.live ? allowed(s) : allowed(s) + "; live";
      const std::string facts = known.empty() && !s.live ? "" : fmt::format(" ({})", known.empty() ? "live" : known);
      out += "\n" + wrapped(as_flags(s.help) + facts, "  // ", kColumns);
      const std::string value = json_value(s);
      // The last of them is no comment, so that every line above it may end with a comma.
      if (s.key == "log_format") continue;
      out += fmt::format("  // \"{}\": {},\n", name_of(s.key), value.empty() ? "..." : value);
    }
  }
  return out + "\n  \"log-format\": \"text\"\n}\n";
}

}  // namespace reprise::settings
