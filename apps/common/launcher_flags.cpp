#include "common/launcher_flags.h"

#include <CLI/CLI.hpp>

#include "common/flags.h"

namespace reprise::apps {
namespace {

std::span<const settings::Setting> launcher_table() { return settings::rows(settings::Group::Launcher); }

}  // namespace

LauncherFlags::LauncherFlags() : given_(launcher_table().size()) {}

void LauncherFlags::add_to(CLI::App& app) {
  for (size_t i = 0; i < given_.size(); ++i) {
    const settings::Setting& s = launcher_table()[i];
    Given& g = given_[i];
    using settings::Kind;
    const settings::Target target = s.kind == Kind::Switch                           ? settings::Target(&g.on)
                                    : s.kind == Kind::Integer                        ? settings::Target(&g.number)
                                    : s.kind == Kind::Real                           ? settings::Target(&g.real)
                                    : s.kind == Kind::Texts || s.kind == Kind::Words ? settings::Target(&g.words)
                                                                                     : settings::Target(&g.text);
    add_setting(app, {s.key, target});
  }
}

Status LauncherFlags::check() const {
  for (size_t i = 0; i < given_.size(); ++i) {
    const settings::Setting& s = launcher_table()[i];
    if (!s.refused) continue;
    if (given_[i].on) return invalid("`{}`: {}", s.key, s.help);
    if (!given_[i].words.empty()) return invalid("`{}` {}: {}", s.key, fmt::join(given_[i].words, " "), s.help);
    if (given_[i].text) return invalid("`{}` {}: {}", s.key, *given_[i].text, s.help);
  }
  return Status::ok();
}

std::vector<std::string> LauncherFlags::notices() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < given_.size(); ++i) {
    const settings::Setting& s = launcher_table()[i];
    const Given& g = given_[i];
    if (g.on) out.push_back(fmt::format("`{}`: {}", s.key, s.help));
    if (g.text) out.push_back(fmt::format("`{}` {}: {}", s.key, *g.text, s.help));
    if (!g.words.empty()) out.push_back(fmt::format("`{}` {}: {}", s.key, fmt::join(g.words, " "), s.help));
    if (g.number) out.push_back(fmt::format("`{}` {}: {}", s.key, *g.number, s.help));
    if (g.real) out.push_back(fmt::format("`{}` {:g}: {}", s.key, *g.real, s.help));
  }
  return out;
}

}  // namespace reprise::apps
