#include "settings/page.h"

#include <algorithm>
#include <utility>

#include "settings/values.h"

namespace reprise::settings {
namespace {

constexpr std::string_view kBegin = "<!-- settings: ", kBeginEnd = " -->\n", kEnd = "<!-- end of settings -->";
constexpr std::pair<std::string_view, Group> kNames[] = {{"model", Group::Model},
                                                         {"engine", Group::Engine},
                                                         {"graphs", Group::Graphs},
                                                         {"graph aliases", Group::GraphAliases},
                                                         {"sampling", Group::Sampling},
                                                         {"server", Group::Server},
                                                         {"library", Group::Library},
                                                         {"launcher", Group::Launcher},
                                                         {"speculation", Group::Speculation}};

std::string in_marks(std::string_view text) { return fmt::format("`{}`", text); }

std::string names_of(const Setting& s) {
  std::string out;
  for (const std::string& name : flags_of(s)) out += (out.empty() ? "" : ", ") + in_marks(name);
  return out;
}

// Flags in help are code.
std::string help_of(const Setting& s) {
  std::string out;
  for (size_t at = 0; at < s.help.size();) {
    const size_t open = std::min(s.help.find('`', at), s.help.size());
    const size_t close = open == s.help.size() ? open : s.help.find('`', open + 1);
    out += s.help.substr(at, open - at);
    if (open == s.help.size()) break;
    const std::string_view word = s.help.substr(open + 1, close - open - 1);
    out += in_marks(find(word) ? flag_of(word) : std::string(word));
    at = close + 1;
  }
  // Markdown takes what stands in angles for HTML.
  for (size_t at = 0; (at = out.find('<', at)) != std::string::npos; at += 4) out.replace(at, 1, "&lt;");
  return out;
}

std::string facts_of(const Setting& s) {
  std::string out;
  const auto add = [&](const std::string& fact) { out += (out.empty() ? "" : "; ") + fact; };
  if (s.kind == Kind::Choice) add(in_marks(allowed(s)));
  if (s.kind != Kind::Choice && !allowed(s).empty()) add(allowed(s));
  if (!s.initial.empty()) add("default " + in_marks(s.initial));
  if (s.live) add("live");
  return out.empty() ? out : " (" + out + ")";
}

// Words in lines of 120 columns, all but the first indented by two.
std::string wrapped(std::string_view text) {
  constexpr size_t kColumns = 120;
  std::string out, line;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) {
      out += line + "\n";
      line = "  " + std::string(word);
    } else {
      line += (line.empty() ? "" : " ") + std::string(word);
    }
  }
  return out + line + "\n";
}

}  // namespace

std::string list_of(Group group) {
  std::string out;
  for (const Setting& s : rows(group)) {
    const std::string value = value_word(s).empty() ? "" : " " + in_marks(value_word(s));
    out += wrapped(
        fmt::format("- {}{}{}: {}{}", names_of(s), value, facts_of(s), s.refused ? "refused; " : "", help_of(s)));
  }
  return out;
}

Result<std::string> with_lists(std::string_view page) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t begin = page.find(kBegin, at);
    if (begin == std::string_view::npos) return out.append(page.substr(at));
    const size_t name_end = page.find(kBeginEnd, begin), end = page.find(kEnd, begin);
    if (name_end == std::string_view::npos || end == std::string_view::npos || end < name_end)
      return invalid("a list of settings has no \"{}\"", kEnd);
    const std::string_view name = page.substr(begin + kBegin.size(), name_end - begin - kBegin.size());
    const auto known = std::find_if(std::begin(kNames), std::end(kNames), [&](auto& n) { return n.first == name; });
    if (known == std::end(kNames)) return invalid("\"{}\" is not a group of settings", name);
    out.append(page.substr(at, name_end + kBeginEnd.size() - at));
    out += "\n" + list_of(known->second) + "\n";
    at = end;
  }
}

}  // namespace reprise::settings
