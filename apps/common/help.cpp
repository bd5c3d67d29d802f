#include "common/help.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>

namespace reprise::apps {
namespace {

constexpr size_t kColumn = 34;
constexpr size_t kFew = 24;  // so many flags are shown all

constexpr std::string_view kEveryday[] = {
    "help", "help-all", "version", "verbose", "json",
    // Model and engine
    "model-path", "dtype", "kv-cache-dtype", "quantization", "context-length", "device", "threads",
    "max-running-requests", "mem-fraction-static", "graph",
    // Text
    "prompt", "prompts-file", "apply-chat-template", "system", "chat-template", "summary", "max-new-tokens",
    "temperature", "top-p", "top-k", "seed", "stop",
    // Server
    "host", "port", "served-model-name", "api-key", "cors-origins", "access-log", "log-format",
    // Measuring, looking inside
    "text-file", "data-path", "num-questions", "batch-size", "input-len", "output-len", "repeat", "output", "format",
    "calibration-file", "quick", "case", "phase", "batch", "context"};
// The commands below `graph`.
constexpr std::string_view kEverydayOfGraphs[] = {"pass-file", "passes", "disable-pass", "print-after", "dump-dir"};

bool is_everyday_name(std::string_view name, bool of_graphs) {
  const auto has = [&](const auto& list) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  return has(kEveryday) || (of_graphs && has(kEverydayOfGraphs));
}

std::vector<const CLI::Option*> listed(const CLI::App& app) {
  return app.get_options([](const CLI::Option* o) { return o->get_group() != kUnlisted && !o->get_group().empty(); });
}

size_t columns() {
  constexpr size_t kUsual = 100, kNarrowest = 60, kWidest = 120;
  winsize w{};
  const bool known = ::isatty(STDOUT_FILENO) && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
  return std::clamp<size_t>(known ? w.ws_col : kUsual, kNarrowest, kWidest);
}

class HelpForm final : public CLI::Formatter {
 public:
  bool all = false;

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    const auto options = listed(*app);
    short_ = !all && options.size() > kFew;
    hidden_ = 0;
    of_graphs_ = app->get_parent() && app->get_parent()->get_name() == "graph";
    for (const CLI::Option* o : options) hidden_ += short_ && !is_everyday(*o);
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    // What groups without an option leave.
    for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
    return text;
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    if (group == kUnlisted) return "";
    if (short_) std::erase_if(options, [&](const CLI::Option* o) { return !is_everyday(*o); });
    // What is positional has a flag as well, which is shown.
    if (is_positional) std::erase_if(options, [](const CLI::Option* o) { return !o->get_lnames().empty(); });
    return options.empty() ? "" : CLI::Formatter::make_group(group, is_positional, options);
  }
  std::string make_footer(const CLI::App* app) const override {
    std::string more;
    if (hidden_ > 0) {
      std::string path = app->get_name();
      for (const CLI::App* up = app->get_parent(); up; up = up->get_parent()) path = up->get_name() + " " + path;
      more = fmt::format("\n{} more flags: {} --help-all\n", hidden_, path);
    }
    std::istringstream lines(CLI::Formatter::make_footer(app));
    for (std::string line; std::getline(lines, line);)
      more += (line.size() > columns() ? wrapped(line, 0, columns()) : line) + "\n";
    return more;
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = "  " + names_of(*option, is_positional);
    const std::string value = option->get_type_name();
    if (!value.empty() && option->get_type_size() != 0) name += " " + value;
    const size_t width = columns();
    std::string out = wrapped(name, 6, width);
    const size_t last = out.size() - (out.rfind('\n') == std::string::npos ? 0 : out.rfind('\n') + 1);
    out += last + 2 > kColumn ? "\n" + std::string(kColumn, ' ') : std::string(kColumn - last, ' ');
    std::string text = option->get_description();
    if (option->get_required()) text += " (required)";
    return out + wrapped(text, kColumn, width - kColumn) + "\n";
  }

 private:
  bool is_everyday(const CLI::Option& option) const {
    const auto& names = option.get_lnames();
    return option.get_positional() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
             return is_everyday_name(name, of_graphs_);
           });
  }

  std::string names_of(const CLI::Option& option, bool is_positional) const {
    if (is_positional) return option.get_name(true);
    std::vector<std::string> names;
    for (const std::string& s : option.get_snames()) names.push_back("-" + s);
    for (const std::string& l : option.get_lnames())
      if (all || names.empty() || names.back()[1] != '-') names.push_back("--" + l);
    return fmt::format("{}", fmt::join(names, ", "));
  }

  // Lines of `width`, all but the first indented.
  static std::string wrapped(const std::string& text, size_t indent, size_t width) {
    std::istringstream in(text);
    std::string out, line;
    const bool leads = !text.empty() && text[0] == ' ';
    for (std::string word; in >> word;) {
      if (!line.empty() && line.size() + 1 + word.size() > width) {
        out += line + "\n" + std::string(indent, ' ');
        line = word;
      } else {
        line += (line.empty() ? (leads && out.empty() ? "  " : "") : " ") + word;
      }
    }
    return out + line;
  }

  mutable bool short_ = false, of_graphs_ = false;
  mutable size_t hidden_ = 0;
};

void add_to_commands(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    add_to_commands(*command);
    if (listed(*command).size() <= kFew) continue;
    const auto form = std::dynamic_pointer_cast<HelpForm>(command->get_formatter());
    command->add_flag_callback(
        "--help-all",
        [form] {
          form->all = true;
          throw CLI::CallForHelp();
        },
        "all flags, with every spelling");
  }
}

}  // namespace

void set_help_form(CLI::App& program) {
  auto form = std::make_shared<HelpForm>();
  form->column_width(kColumn);
  program.formatter(form);
}

void add_help_all(CLI::App& program) { add_to_commands(program); }

}  // namespace reprise::apps
