#include "common/help.h"

#include <CLI/CLI.hpp>

namespace reprise::apps {
namespace {

constexpr size_t kColumn = 34;

class ListedGroups final : public CLI::Formatter {
 public:
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    return group == kUnlisted ? "" : CLI::Formatter::make_group(group, is_positional, options);
  }
};

}  // namespace

void set_help_form(CLI::App& program) {
  auto form = std::make_shared<ListedGroups>();
  form->column_width(kColumn);
  program.formatter(form);
}

}  // namespace reprise::apps
