#include "settings/effects.h"

#include <algorithm>
#include <array>
#include <utility>

namespace reprise::settings {
namespace {

constexpr const char* kHidden = "(hidden)";

std::string one_text(bool v) { return v ? "true" : "false"; }
std::string one_text(const std::string& v) { return v; }
std::string one_text(int64_t v) { return fmt::format("{}", v); }
std::string one_text(double v) { return fmt::format("{}", v); }

bool is_list(const Setting& s) { return s.kind == Kind::Texts || s.kind == Kind::Words; }

std::string in_words(const Setting& s, const Given& g) {
  if (g.values.empty()) return "-";
  return s.secret ? kHidden : fmt::format("{}", fmt::join(g.values, " "));
}

std::string origin_in_words(const Given& g) {
  return g.place.empty() ? std::string(name_of(g.origin)) : fmt::format("{} {}", name_of(g.origin), g.place);
}

OrderedJson value_of_given(const Setting& s, const Given& g) {
  if (g.values.empty() && !is_list(s)) return {};
  if (s.secret) return kHidden;
  return is_list(s) ? OrderedJson(g.values) : OrderedJson(g.values.front());
}

OrderedJson given_as_json(const Setting& s, const Given& g) {
  OrderedJson out{{"value", value_of_given(s, g)}, {"origin", std::string(name_of(g.origin))}};
  if (!g.place.empty()) out["place"] = g.place;
  return out;
}

bool is_shown(const Effect& e) {
  const bool of_others = e.row->group == Group::Launcher || e.row->group == Group::GraphAliases;
  return !of_others || e.given.origin >= Origin::File;
}

}  // namespace

std::vector<std::string> values_in(const Target& target) {
  return std::visit(
      [](const auto* t) -> std::vector<std::string> {
        using Value = std::decay_t<decltype(*t)>;
        if constexpr (requires { t->has_value(); }) {
          if (!t->has_value()) return {};
          return {one_text(**t)};
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return *t;
        } else if constexpr (std::is_same_v<Value, std::vector<int64_t>>) {
          if (t->empty()) return {};
          return {fmt::format("{}", fmt::join(*t, ","))};
        } else if constexpr (std::is_same_v<Value, std::string>) {
          if (t->empty()) return {};
          return {*t};
        } else {
          return {one_text(*t)};
        }
      },
      target);
}

Given default_of(const Setting& row, std::vector<std::string> initial) {
  // Where a number has no default in the table, zero says that a rule decides.
  if (row.initial.empty() && row.rule != Origin::Default) initial.clear();
  return {row.rule, std::move(initial)};
}

Effect effect_of(const Setting& row, Given initial, const Precedence& given) {
  std::vector<Given> all = given.all_of(row.key);
  all.push_back(std::move(initial));
  Effect out{&row, std::move(all.front())};
  out.outranked.assign(std::make_move_iterator(all.begin() + 1), std::make_move_iterator(all.end()));
  return out;
}

std::string effects_as_text(std::span<const Effect> effects) {
  constexpr size_t kColumns = 3;
  constexpr size_t kWidest = 40;  // a long value moves what follows in its own line alone
  using Line = std::array<std::string, kColumns + 1>;
  std::vector<Line> lines{{"setting", "value", "origin", "outranked"}};
  for (const Effect& e : effects) {
    if (!is_shown(e)) continue;
    Line line{name_of(e.row->key), in_words(*e.row, e.given), origin_in_words(e.given), ""};
    for (const Given& g : e.outranked)
      if (!g.values.empty())
        line[kColumns] +=
            fmt::format("{}{} ({})", line[kColumns].empty() ? "" : ", ", in_words(*e.row, g), origin_in_words(g));
    lines.push_back(std::move(line));
  }
  std::array<size_t, kColumns> widths{};
  for (const Line& line : lines)
    for (size_t i = 0; i < kColumns; ++i)
      if (line[i].size() <= kWidest) widths[i] = std::max(widths[i], line[i].size());
  std::string out;
  for (const Line& line : lines) {
    std::string text;
    for (size_t i = 0; i < kColumns; ++i) text += fmt::format("{:<{}}  ", line[i], widths[i]);
    text += line[kColumns];
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

OrderedJson effects_as_json(std::span<const Effect> effects) {
  OrderedJson out = OrderedJson::object();
  for (const Effect& e : effects) {
    OrderedJson& one = out[name_of(e.row->key)] = given_as_json(*e.row, e.given);
    if (e.outranked.empty()) continue;
    OrderedJson& list = one["outranked"] = OrderedJson::array();
    for (const Given& g : e.outranked) list.push_back(given_as_json(*e.row, g));
  }
  return out;
}

}  // namespace reprise::settings
