#include "common/flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/close_names.h"
#include "common/command_settings.h"
#include "common/help.h"
#include "settings/values.h"

namespace reprise::apps {

using settings::Kind;
using settings::Setting;
using settings::Target;

namespace {

std::string shown(bool v) { return v ? "true" : "false"; }
std::string shown(int64_t v) { return fmt::format("{}", v); }
std::string shown(double v) { return fmt::format("{:g}", v); }
std::string shown(const std::string& v) { return v; }
std::string shown(const std::vector<int64_t>& v) { return fmt::format("{}", fmt::join(v, ",")); }

template <typename Value>
std::string shown(const std::optional<Value>& v) {
  return v ? shown(*v) : std::string();
}
std::string shown(const std::vector<std::string>& v) { return fmt::format("{}", fmt::join(v, ",")); }

// What is in effect without the flag stands in its help: there already, or by its target's value.
std::string with_default(std::string_view help, const Target& target) {
  if (help.find("default") != std::string::npos) return std::string(help);
  const std::string value = std::visit([](const auto* t) { return shown(*t); }, target);
  return fmt::format("{} (default{} {})", help, value.empty() ? ":" : "", value.empty() ? "none" : value);
}

// The names without those that a flag of the command has taken already: another program's spelling gives way. The
// first long name stays, so that declaring a flag twice is still an error.
std::string untaken(const CLI::App& app, const std::string& names) {
  std::string out;
  bool first = true;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    const bool keeps = name.starts_with("--") && std::exchange(first, false);
    if (keeps || !app.get_option_no_throw(name)) out += (out.empty() ? "" : ",") + name;
  }
  return out;
}

// The option of a row; what is wrong with a value is the usage error.
CLI::Option* add_option(CLI::App& app, const std::string& all_names, const Setting& s, const Target& target,
                        std::string_view help) {
  const std::string names = untaken(app, all_names);
  const auto check = [s](const std::string& text) { return settings::check(s, text).message(); };
  if (s.kind == Kind::Switch)
    return app.add_flag(names, *std::get<bool*>(target), std::string(help))->check(CLI::Validator(check, ""));
  if (s.kind == Kind::Texts || s.kind == Kind::Words) {
    CLI::Option* o = app.add_option(names, *std::get<std::vector<std::string>*>(target), with_default(help, target));
    o->type_name(std::string(settings::value_word(s)));
    if (s.kind == Kind::Texts) {
      o->allow_extra_args(false);
    } else {
      o->expected(1, 1 << 16);
    }
    return o;
  }
  const std::string value =
      s.kind == Kind::Choice ? fmt::format("{{{}}}", settings::allowed(s)) : std::string(settings::value_word(s));
  const auto store = [s, target](const std::string& text) { static_cast<void>(settings::assign(s, text, target)); };
  return app.add_option_function<std::string>(names, store, with_default(help, target))
      ->check(CLI::Validator(check, ""))
      ->type_name(value)
      ->expected(1);
}

// Every long name of the command and of those above it.
std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
  return out;
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// CLI11's words for a flag with too many values, or too few, in the house's.
std::string wrong_count(std::string words) {
  const std::string name = words.substr(0, words.find(": "));
  if (words.find("At Most 1 ") != std::string::npos)
    return fmt::format("{} is given more than once, and takes one value", name);
  if (words.ends_with(" missing")) return fmt::format("{} needs a value", name);
  return words;
}

// What to say about words that no option took.
std::string unknown_words(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  const auto left = root.remaining(true);
  for (const std::string& word : left) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string name = word.substr(0, word.find('='));
    const auto known = flag_names(*app);
    const std::vector<std::string_view> views(known.begin(), known.end());
    return fmt::format("{} is not a flag of \"{}\"{}; all of them: {} --help", name, app->get_name(),
                       close_names(name, views), app->get_name());
  }
  const std::string word = left.empty() ? std::string() : left.front();
  std::vector<std::string> commands;
  for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(sub->get_name());
  if (!commands.empty())
    return fmt::format("\"{}\" is not a command of \"{}\"; allowed: {}", word, app->get_name(), listed(commands));
  return fmt::format("\"{}\" was not expected; values follow a flag, and text with spaces needs quotes", word);
}

// What the command line does not say, the environment and the file may.
void take_settings(CLI::App& root) {
  CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  const auto settings = CommandSettings::find(*app);
  if (!settings) return;
  if (const Status taken = settings->take(environ); !taken.is_ok())
    throw CLI::RuntimeError(settings::as_flags(taken.message()), kExitUsage);
}

}  // namespace

void add_setting(CLI::App& app, const settings::Binding& binding, std::string_view help, std::string_view group) {
  const Setting& s = binding.row();
  if (group.empty()) group = s.group == settings::Group::Launcher ? kUnlisted : settings::title_of(s.group);
  app.option_defaults()->group(std::string(group));
  CLI::Option* option =
      add_option(app, settings::flag_names(s), s, binding.target, settings::as_flags(help.empty() ? s.help : help));
  app.option_defaults()->group("Options");
  CommandSettings::of(app)->add(binding, option);
}

void add_settings(CLI::App& app, std::span<const settings::Binding> bindings, std::string_view group) {
  for (const settings::Binding& b : bindings) add_setting(app, b, {}, group);
}

void add_switch(CLI::App& app, const std::string& names, bool& target, const std::string& help) {
  add_option(app, names, {.kind = Kind::Switch}, &target, help);
}

void add_text(CLI::App& app, const std::string& names, Place place, const std::string& help, const char* value) {
  add_option(app, names, {.value = value}, place.target, help);
}

void add_texts(CLI::App& app, const std::string& names, std::vector<std::string>& target, const std::string& help,
               const char* value) {
  add_option(app, names, {.kind = Kind::Texts, .value = value}, &target, help);
}

void add_choice(CLI::App& app, const std::string& names, Place place, std::vector<std::string> allowed,
                const std::string& help) {
  add_option(app, names, {.kind = Kind::Choice, .choices = std::move(allowed)}, place.target, help);
}

void add_integer(CLI::App& app, const std::string& names, Place place, IntegerRange range, const std::string& help) {
  add_option(app, names, {.kind = Kind::Integer, .integers = range}, place.target, help);
}

void add_integers(CLI::App& app, const std::string& names, std::vector<int64_t>& target, IntegerRange range,
                  const std::string& help) {
  add_option(app, names, {.kind = Kind::Integers, .integers = range}, &target, help);
}

void add_real(CLI::App& app, const std::string& names, Place place, RealRange range, const std::string& help) {
  add_option(app, names, {.kind = Kind::Real, .reals = range}, place.target, help);
}

std::optional<int> parse_arguments(CLI::App& app, const std::vector<std::string>& words) {
  std::string problem;
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    app.parse(static_cast<int>(argv.size()), argv.data());
    take_settings(app);
    return std::nullopt;
  } catch (const CLI::Success& e) {  // help or version
    if (!app.get_subcommands().empty() || app.remaining_size() == 0) return app.exit(e);
    problem = unknown_words(app);
  } catch (const CLI::ExtrasError&) {
    problem = unknown_words(app);
  } catch (const CLI::RequiredError& e) {
    if (words.size() <= 1) {
      std::fputs(app.help().c_str(), stderr);
      return kExitUsage;
    }
    // An unknown flag in place of a command is the better thing to say.
    problem = app.remaining_size(true) > 0 ? unknown_words(app) : std::string(e.what());
  } catch (const CLI::ArgumentMismatch& e) {
    problem = wrong_count(e.what());
  } catch (const CLI::Error& e) {
    problem = e.what();
  }
  std::fprintf(stderr, "error: %s\n", problem.c_str());
  return kExitUsage;
}

}  // namespace reprise::apps
