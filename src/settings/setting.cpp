#include "settings/setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "settings/tables.h"

namespace reprise::settings {
namespace {

struct Heading {
  std::string_view title, commands;
};

// By Group.
constexpr Heading kHeadings[] = {
    {"Model", "every command that loads a model"},
    {"Engine", "every command that loads a model"},
    {"Graphs", "every command that loads a model"},
    {"Graphs, in the words of other systems", "every command that loads a model"},
    {"Speculative decoding", "every command that loads a model"},
    {"Sampling", "`generate` and `chat`"},
    {"Server", "`serve`"},
    {"Library", "the library"},
    {"Launch lines of other systems", "every command that loads a model"},
};
constexpr size_t kGroups = std::size(kHeadings);

struct Tables {
  std::vector<Setting> all;
  std::array<std::span<const Setting>, kGroups> groups;
  std::map<std::string_view, const Setting*> by_key;
};

std::vector<Setting> rows_of(Group group) {
  switch (group) {
    case Group::Model: return model_rows();
    case Group::Engine: return engine_rows();
    case Group::Graphs: return graph_rows();
    case Group::GraphAliases: return graph_alias_rows();
    case Group::Speculation: return speculation_rows();
    case Group::Sampling: return sampling_rows();
    case Group::Server: return server_rows();
    case Group::Library: return library_rows();
    case Group::Launcher: return launcher_rows();
  }
  return {};
}

const Tables& tables() {
  static const Tables made = [] {
    Tables t;
    std::array<size_t, kGroups> ends{};
    for (size_t g = 0; g < kGroups; ++g) {
      for (Setting& s : rows_of(static_cast<Group>(g))) {
        s.group = static_cast<Group>(g);
        t.all.push_back(std::move(s));
      }
      ends[g] = t.all.size();
    }
    for (size_t g = 0; g < kGroups; ++g) {
      const size_t begin = g == 0 ? 0 : ends[g - 1];
      t.groups[g] = std::span(t.all).subspan(begin, ends[g] - begin);
    }
    for (const Setting& s : t.all) t.by_key.emplace(s.key, &s);
    return t;
  }();
  return made;
}

}  // namespace

Setting flag(std::string_view key, std::string_view help) { return {.key = key, .kind = Kind::Switch, .help = help}; }
Setting text(std::string_view key, std::string_view value, std::string_view help, std::string_view initial) {
  return {.key = key, .initial = initial, .value = value, .help = help};
}
Setting texts(std::string_view key, std::string_view value, std::string_view help) {
  return {.key = key, .kind = Kind::Texts, .value = value, .help = help};
}
Setting words(std::string_view key, std::string_view value, std::string_view help) {
  return {.key = key, .kind = Kind::Words, .value = value, .help = help};
}
Setting choice(std::string_view key, std::vector<std::string> choices, std::string_view help,
               std::string_view initial) {
  return {.key = key, .kind = Kind::Choice, .initial = initial, .choices = std::move(choices), .help = help};
}
Setting integer(std::string_view key, IntegerRange range, std::string_view help, std::string_view initial) {
  return {.key = key, .kind = Kind::Integer, .initial = initial, .integers = range, .help = help};
}
Setting real(std::string_view key, RealRange range, std::string_view help, std::string_view initial) {
  return {.key = key, .kind = Kind::Real, .initial = initial, .reals = range, .help = help};
}
Setting also(std::string_view names, Setting row) {
  row.also = names;
  return row;
}
Setting refused(Setting row) {
  row.refused = true;
  return row;
}
Setting live(Setting row) {
  row.live = true;
  return row;
}
Setting secret(Setting row) {
  row.secret = true;
  return row;
}
Setting by_device(Setting row) {
  row.rule = Origin::Device;
  return row;
}
Setting by_model(Setting row) {
  row.rule = Origin::Model;
  return row;
}

std::span<const Setting> rows(Group group) { return tables().groups[static_cast<size_t>(group)]; }
std::span<const Setting> table() { return tables().all; }

const Setting* find(std::string_view key) {
  const auto it = tables().by_key.find(key);
  return it == tables().by_key.end() ? nullptr : it->second;
}

std::string name_of(std::string_view key) {
  std::string out(key);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

std::string key_of(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::string flag_of(std::string_view key) { return "--" + name_of(key); }

std::string flag_names(const Setting& s) {
  return s.also.empty() ? flag_of(s.key) : fmt::format("{},{}", flag_of(s.key), s.also);
}

std::string_view title_of(Group group) { return kHeadings[static_cast<size_t>(group)].title; }
std::string_view commands_of(Group group) { return kHeadings[static_cast<size_t>(group)].commands; }

namespace {

// Calls `key` with each key in backquotes and `other` with the text between them.
template <typename Key, typename Other>
void split(std::string_view message, const Key& key, const Other& other) {
  while (!message.empty()) {
    const size_t open = message.find('`');
    const size_t close = open == std::string_view::npos ? open : message.find('`', open + 1);
    if (close == std::string_view::npos) return other(message);
    const std::string_view word = message.substr(open + 1, close - open - 1);
    const bool known = find(word);
    // The second mark of another word may open the next one.
    other(message.substr(0, known ? open : close));
    if (known) key(word);
    message.remove_prefix(known ? close + 1 : close);
  }
}

}  // namespace

std::string as_flags(std::string_view message) {
  std::string out;
  split(
      message, [&](std::string_view key) { out += flag_of(key); }, [&](std::string_view text) { out += text; });
  return out;
}

std::vector<std::string> named_in(std::string_view message) {
  std::vector<std::string> out;
  split(
      message, [&](std::string_view key) { out.emplace_back(key); }, [](std::string_view) {});
  return out;
}

}  // namespace reprise::settings
