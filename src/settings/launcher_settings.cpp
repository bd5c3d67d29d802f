#include "settings/launcher_settings.h"

#include <fmt/ranges.h>

namespace reprise::settings {
namespace {

std::span<const Setting> launcher_table() { return rows(Group::Launcher); }

}  // namespace

LauncherSettings::LauncherSettings() : given_(launcher_table().size()) {}

std::vector<Binding> LauncherSettings::bindings() {
  std::vector<Binding> out;
  for (size_t i = 0; i < given_.size(); ++i) {
    const Setting& s = launcher_table()[i];
    Given& g = given_[i];
    out.push_back({s.key, s.kind == Kind::Switch                           ? Target(&g.on)
                          : s.kind == Kind::Integer                        ? Target(&g.number)
                          : s.kind == Kind::Real                           ? Target(&g.real)
                          : s.kind == Kind::Texts || s.kind == Kind::Words ? Target(&g.words)
                                                                           : Target(&g.text)});
  }
  return out;
}

Status LauncherSettings::check() const {
  for (size_t i = 0; i < given_.size(); ++i) {
    const Setting& s = launcher_table()[i];
    if (!s.refused) continue;
    if (given_[i].on) return invalid("`{}`: {}", s.key, s.help);
    if (!given_[i].words.empty()) return invalid("`{}` {}: {}", s.key, fmt::join(given_[i].words, " "), s.help);
    if (given_[i].text) return invalid("`{}` {}: {}", s.key, *given_[i].text, s.help);
  }
  return Status::ok();
}

std::vector<std::string> LauncherSettings::notices() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < given_.size(); ++i) {
    const Setting& s = launcher_table()[i];
    const Given& g = given_[i];
    if (g.on) out.push_back(fmt::format("`{}`: {}", s.key, s.help));
    if (g.text) out.push_back(fmt::format("`{}` {}: {}", s.key, *g.text, s.help));
    if (!g.words.empty()) out.push_back(fmt::format("`{}` {}: {}", s.key, fmt::join(g.words, " "), s.help));
    if (g.number) out.push_back(fmt::format("`{}` {}: {}", s.key, *g.number, s.help));
    if (g.real) out.push_back(fmt::format("`{}` {:g}: {}", s.key, *g.real, s.help));
  }
  return out;
}

}  // namespace reprise::settings
