#include "common/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "common/help.h"
#include "settings/forms.h"

namespace reprise::apps {
namespace {

using settings::for_roff;

std::vector<const CLI::App*> commands_below(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "reprise bench one-batch", with what stands between its words.
std::string path_of(const CLI::App& app, const char* between) {
  std::string path = app.get_name();
  for (const CLI::App* up = app.get_parent(); up; up = up->get_parent()) path = up->get_name() + between + path;
  return path;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::vector<const CLI::Option*> shown_options(const CLI::App& app) {
  return app.get_options([](const CLI::Option* o) { return o->get_group() != kUnlisted && !o->get_group().empty(); });
}

bool is_positional(const CLI::Option& o) { return o.get_lnames().empty() && o.get_snames().empty(); }

// The flag's names in bold, its value in italics, then its help.
std::string entry_of(const CLI::Option& o) {
  std::vector<std::string> names;
  for (const std::string& s : o.get_snames()) names.push_back("-" + s);
  for (const std::string& l : o.get_lnames()) names.push_back("--" + l);
  if (names.empty()) names.push_back(upper(o.get_name(true)));
  std::string head;
  for (const std::string& name : names) head += fmt::format("{}\\fB{}\\fR", head.empty() ? "" : ", ", for_roff(name));
  const std::string value = o.get_type_name();
  if (!value.empty() && o.get_type_size() != 0) head += fmt::format(" \\fI{}\\fR", for_roff(value));
  return fmt::format(".TP\n{}\n{}{}\n", head, for_roff(o.get_description()), o.get_required() ? " (required)" : "");
}

std::string options_of(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const CLI::Option* o : shown_options(app))
    if (std::find(groups.begin(), groups.end(), o->get_group()) == groups.end()) groups.push_back(o->get_group());
  std::string out;
  for (const std::string& group : groups) {
    out += fmt::format(".SH {}\n", for_roff(upper(group)));
    for (const CLI::Option* o : shown_options(app))
      if (o->get_group() == group) out += entry_of(*o);
  }
  return out;
}

std::string commands_of(const CLI::App& app) {
  const auto commands = commands_below(app);
  if (commands.empty()) return {};
  std::string out = ".SH COMMANDS\n";
  for (const CLI::App* c : commands)
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", for_roff(path_of(*c, " ")), for_roff(c->get_description()));
  return out;
}

// Pages next to this one.
std::string see_also(const CLI::App& app) {
  std::string out = ".SH SEE ALSO\n";
  const auto add = [&](const CLI::App& other) { out += fmt::format(".BR {} (1),\n", for_roff(path_of(other, "-"))); };
  if (app.get_parent()) add(*app.get_parent());
  for (const CLI::App* c : commands_below(app)) add(*c);
  return out + ".BR reprise\\-settings (7)\n";
}

constexpr const char* kStatus =
    ".SH EXIT STATUS\n.TP\n0\nit went well\n.TP\n1\nthe work failed; one line says why\n.TP\n2\nthe command line is "
    "wrong\n";

}  // namespace

Result<const CLI::App*> command_at(const CLI::App& program, std::span<const std::string> words) {
  const CLI::App* app = &program;
  for (const std::string& word : words) {
    const auto below = commands_below(*app);
    const auto found =
        std::find_if(below.begin(), below.end(), [&](const CLI::App* c) { return c->get_name() == word; });
    if (found != below.end()) {
      app = *found;
      continue;
    }
    std::vector<std::string> names;
    for (const CLI::App* c : below) names.push_back(c->get_name());
    return invalid("\"{}\" is not a command of \"{}\"; allowed: {}", word, app->get_name(), fmt::join(names, ", "));
  }
  return app;
}

std::string manual_of(const CLI::App& app, std::string_view version) {
  const std::string page = path_of(app, "-"), path = path_of(app, " ");
  std::string out = fmt::format(".TH {} 1 \"\" \"{}\" \"Reprise\"\n", for_roff(upper(page)), for_roff(version));
  std::string summary = app.get_description();
  // The program's own text begins with its name, which this line has already.
  if (const size_t name = summary.find("Reprise: "); name == 0) summary.erase(0, 9);
  if (!summary.empty()) summary[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(summary[0])));
  while (summary.ends_with('.')) summary.pop_back();
  out += fmt::format(".SH NAME\n{} \\- {}\n", for_roff(page), for_roff(summary));
  out += fmt::format(".SH SYNOPSIS\n.B {}\n", for_roff(path));
  if (!commands_below(app).empty()) out += ".I COMMAND\n";
  out += "[\\fIOPTIONS\\fR]\n";
  for (const CLI::Option* o : shown_options(app))
    if (is_positional(*o)) out += fmt::format(".I {}\n", for_roff(upper(o->get_name(true))));
  out += commands_of(app) + options_of(app) + kStatus;
  if (!app.get_footer().empty()) out += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", for_roff(app.get_footer()));
  return out + see_also(app);
}

}  // namespace reprise::apps
