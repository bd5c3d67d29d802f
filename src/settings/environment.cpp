#include "settings/environment.h"

#include <algorithm>
#include <cctype>

#include "base/close_names.h"
#include "base/json.h"
#include "settings/values.h"

namespace reprise::settings {
namespace {

constexpr std::string_view kFront = "REPRISE_SET_";

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

// The setting that has a flag of this name besides its own.
const Setting* by_other_name(std::string_view variable) {
  for (const Setting& s : table())
    for (const std::string& flag : flags_of(s))
      if (flag.starts_with("--") && std::string(kFront) + upper(flag.substr(2)) == variable) return &s;
  return nullptr;
}

Status unknown_variable(std::string_view name) {
  if (const Setting* s = by_other_name(upper(name)))
    return invalid("{} is not a variable of a setting; that of `{}` is {}", name, name_of(s->key), variable_of(s->key));
  std::vector<std::string> names;
  for (const Setting& s : table()) names.push_back(upper(s.key));
  const std::vector<std::string_view> views(names.begin(), names.end());
  // What all of them begin with would make all of them alike.
  std::string close = close_names(name.substr(kFront.size()), views);
  for (const std::string_view between : {": ", ", "})
    for (size_t at = 0; (at = close.find(between, at)) != std::string::npos; at += kFront.size())
      close.insert(at += between.size(), kFront);
  return invalid("{} is not a variable of a setting{}; all settings: reprise help settings", name, close);
}

Result<std::vector<std::string>> list_in(const std::string& text) {
  ASSIGN_OR_RETURN(const OrderedJson list, parse_ordered_json(text, "the list"));
  std::vector<std::string> out;
  for (const OrderedJson& one : list) out.push_back(one.is_string() ? one.get<std::string>() : one.dump());
  return out;
}

}  // namespace

std::string variable_of(std::string_view key) { return std::string(kFront) + upper(key); }

Result<std::vector<Variable>> variables_of(const char* const* environment) {
  std::vector<Variable> out;
  for (; environment && *environment; ++environment) {
    const std::string_view all = *environment;
    if (!all.starts_with(kFront)) continue;
    const size_t end = std::min(all.find('='), all.size());
    Variable v{std::string(all.substr(0, end)), std::string(all.substr(std::min(end + 1, all.size())))};
    if (v.text.empty()) continue;
    const auto row =
        std::find_if(table().begin(), table().end(), [&](const Setting& s) { return variable_of(s.key) == v.name; });
    if (row == table().end()) return unknown_variable(v.name);
    v.row = &*row;
    out.push_back(std::move(v));
  }
  return out;
}

Result<std::vector<std::string>> values_of(const Variable& v) {
  const std::string place = fmt::format("{}: {}", v.name, name_of(v.row->key));
  const bool several = v.row->kind == Kind::Texts || v.row->kind == Kind::Words;
  if (several && v.text.starts_with('[')) {
    auto list = list_in(v.text);
    if (!list)
      return invalid("{}: {}; allowed: one value, or a JSON list like [\"a\", \"b\"]", place, list.status().message());
    return list;
  }
  RETURN_IF_ERROR(check(*v.row, v.text).at(place));
  return std::vector{v.text};
}

}  // namespace reprise::settings
