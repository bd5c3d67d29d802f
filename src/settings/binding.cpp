#include "settings/binding.h"

#include "base/close_names.h"
#include "base/json.h"
#include "settings/values.h"

namespace reprise::settings {
namespace {

// The value as a target of that type holds it.
void store(const Setting& s, std::string_view text, bool* t) { *t = *parse_switch(text); }
void store(const Setting& s, std::string_view text, std::string* t) { *t = text; }
void store(const Setting& s, std::string_view text, std::optional<std::string>* t) { *t = std::string(text); }
void store(const Setting& s, std::string_view text, int64_t* t) { *t = *parse_integer(text, s.integers); }
void store(const Setting& s, std::string_view text, std::optional<int64_t>* t) {
  *t = *parse_integer(text, s.integers);
}
void store(const Setting& s, std::string_view text, double* t) { *t = *parse_real(text, s.reals); }
void store(const Setting& s, std::string_view text, std::optional<double>* t) { *t = *parse_real(text, s.reals); }
void store(const Setting& s, std::string_view text, std::vector<std::string>* t) { t->emplace_back(text); }
void store(const Setting& s, std::string_view text, std::vector<int64_t>* t) { *t = *parse_integers(text, s.integers); }

std::string text_of(const OrderedJson& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

const Setting& Binding::row() const {
  const Setting* s = find(key);
  CHECK(s, "\"{}\" is no row of the table of settings", key);
  return *s;
}

Status assign(const Setting& setting, std::string_view text, const Target& target) {
  RETURN_IF_ERROR(check(setting, text));
  std::visit([&](auto* t) { store(setting, text, t); }, target);
  return Status::ok();
}

void reset(std::span<const Binding> bindings) {
  for (const Binding& b : bindings) {
    const Setting& s = b.row();
    std::visit([](auto* t) { *t = {}; }, b.target);
    // A rule's initial value may lie outside of what can be asked for, like 0 for "by the device's memory".
    if (s.initial.empty()) continue;
    const Status ok = assign(s, s.initial, b.target);
    CHECK(ok.is_ok(), "the initial value of {}: {}", s.key, ok.message());
  }
}

Status set(std::span<const Binding> bindings, std::string_view key, std::string_view text) {
  std::vector<std::string_view> known;
  for (const Binding& b : bindings) {
    if (b.key == key) return assign(b.row(), text, b.target).at(fmt::format("`{}`", key));
    known.push_back(b.key);
  }
  return invalid("\"{}\" is not a setting here{}", key, close_names(key, known));
}

Result<std::vector<std::pair<std::string, std::string>>> values_of_json(std::string_view json) {
  ASSIGN_OR_RETURN(const OrderedJson object, parse_ordered_json(json, "settings"));
  if (!object.is_object()) return invalid("settings are a JSON object, like {{\"context_length\": 4096}}");
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_array()) out.emplace_back(key, text_of(value));
    if (value.is_array())
      for (const OrderedJson& one : value) out.emplace_back(key, text_of(one));
  }
  return out;
}

}  // namespace reprise::settings
