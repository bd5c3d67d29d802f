#include "common/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/close_names.h"

namespace reprise::apps {
namespace {

std::string words(IntegerRange r) {
  if (r.low == r.high) return fmt::format("{}", r.low);
  if (r.high == INT64_MAX) return fmt::format("{} or more", r.low);
  return fmt::format("{} to {}", r.low, r.high);
}

std::string words(RealRange r) {
  const std::string low = r.low_excluded ? fmt::format("above {}", r.low) : fmt::format("{}", r.low);
  if (std::isinf(r.high)) return r.low_excluded ? low : low + " or more";
  return fmt::format("{}{} {}", low, r.low_excluded ? ", up to" : " to", r.high);
}

Result<double> parse_real(std::string_view text, RealRange range) {
  double v = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || problem != std::errc() || end != text.data() + text.size())
    return invalid("\"{}\" is not a number; allowed: {}", text, words(range));
  if (!(v >= range.low && v <= range.high) || std::isinf(v) || (range.low_excluded && v == range.low))
    return invalid("{} is out of range; allowed: {}", text, words(range));
  return v;
}

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
template <typename Target>
std::string with_default(const std::string& help, const Target& target) {
  if (help.find("default") != std::string::npos) return help;
  const std::string value = shown(target);
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

// An option whose text goes through `parse`; what parse complains about is the usage error.
template <typename Target, typename Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& names, Target& target, const std::string& help,
                        const std::string& value, Parse parse) {
  auto check = [parse](const std::string& text) {
    auto parsed = parse(text);
    return parsed.is_ok() ? std::string() : parsed.status().message();
  };
  auto store = [parse, &target](const std::string& text) {
    if (auto parsed = parse(text); parsed.is_ok()) target = std::move(parsed).value();
  };
  return app.add_option_function<std::string>(untaken(app, names), store, with_default(help, target))
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

auto one_of(std::vector<std::string> allowed) {
  return [allowed = std::move(allowed)](const std::string& s) -> Result<std::string> {
    if (std::find(allowed.begin(), allowed.end(), s) != allowed.end()) return s;
    const std::vector<std::string_view> views(allowed.begin(), allowed.end());
    return invalid("\"{}\" is not known{}; allowed: {}", s, close_names(s, views), listed(allowed));
  };
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

}  // namespace

void add_switch(CLI::App& app, const std::string& names, bool& target, const std::string& help) {
  app.add_flag(untaken(app, names), target, help);
}

void add_text(CLI::App& app, const std::string& names, std::string& target, const std::string& help,
              const std::string& value) {
  add_parsed(app, names, target, help, value, [](const std::string& s) { return Result<std::string>(s); });
}

void add_text(CLI::App& app, const std::string& names, std::optional<std::string>& target, const std::string& help,
              const std::string& value) {
  add_parsed(app, names, target, help, value, [](const std::string& s) { return Result<std::string>(s); });
}

void add_texts(CLI::App& app, const std::string& names, std::vector<std::string>& target, const std::string& help,
               const std::string& value) {
  app.add_option(untaken(app, names), target, with_default(help, target))->type_name(value)->allow_extra_args(false);
}

void add_words(CLI::App& app, const std::string& names, std::vector<std::string>& target, const std::string& help,
               const std::string& value) {
  app.add_option(untaken(app, names), target, with_default(help, target))->type_name(value)->expected(1, 1 << 16);
}

void add_choice(CLI::App& app, const std::string& names, std::string& target, std::vector<std::string> allowed,
                const std::string& help) {
  add_parsed(app, names, target, help, fmt::format("{{{}}}", listed(allowed)), one_of(allowed));
}

void add_choice(CLI::App& app, const std::string& names, std::optional<std::string>& target,
                std::vector<std::string> allowed, const std::string& help) {
  add_parsed(app, names, target, help, fmt::format("{{{}}}", listed(allowed)), one_of(allowed));
}

void add_integer(CLI::App& app, const std::string& names, int64_t& target, IntegerRange range,
                 const std::string& help) {
  add_parsed(app, names, target, help, "N", [range](const std::string& s) { return parse_integer(s, range); });
}

void add_integer(CLI::App& app, const std::string& names, std::optional<int64_t>& target, IntegerRange range,
                 const std::string& help) {
  add_parsed(app, names, target, help, "N", [range](const std::string& s) { return parse_integer(s, range); });
}

void add_integers(CLI::App& app, const std::string& names, std::vector<int64_t>& target, IntegerRange range,
                  const std::string& help) {
  add_parsed(app, names, target, help, "N,N,...", [range](const std::string& s) { return parse_integers(s, range); });
}

void add_real(CLI::App& app, const std::string& names, double& target, RealRange range, const std::string& help) {
  add_parsed(app, names, target, help, "X", [range](const std::string& s) { return parse_real(s, range); });
}

void add_real(CLI::App& app, const std::string& names, std::optional<double>& target, RealRange range,
              const std::string& help) {
  add_parsed(app, names, target, help, "X", [range](const std::string& s) { return parse_real(s, range); });
}

Result<int64_t> parse_integer(std::string_view text, IntegerRange range) {
  int64_t v = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || end != text.data() + text.size() || problem == std::errc::invalid_argument)
    return invalid("\"{}\" is not a whole number; allowed: {}", text, words(range));
  if (problem != std::errc() || v < range.low || v > range.high)
    return invalid("{} is out of range; allowed: {}", text, words(range));
  return v;
}

Result<std::vector<int64_t>> parse_integers(std::string_view text, IntegerRange range) {
  std::vector<int64_t> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    ASSIGN_OR_RETURN(int64_t v, parse_integer(text.substr(begin, end - begin), range));
    out.push_back(v);
    begin = end + 1;
  }
  return out;
}

std::optional<int> parse_arguments(CLI::App& app, const std::vector<std::string>& words) {
  std::string problem;
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    app.parse(static_cast<int>(argv.size()), argv.data());
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
