// Binding: where the value of a setting lies. A struct of settings lists its bindings; flags, the library's setters and
// JSON all write through them. Plain values; the code that owns the targets keeps them alive and decides on threads.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "settings/setting.h"

namespace reprise::settings {

using Target = std::variant<bool*, std::string*, std::optional<std::string>*, int64_t*, std::optional<int64_t>*,
                            double*, std::optional<double>*, std::vector<std::string>*, std::vector<int64_t>*>;

struct Binding {
  std::string_view key;
  Target target;

  const Setting& row() const;  // it is there, or the program ends
};

// Writes a value; of Texts and Words, one more. A wrong one changes nothing.
Status assign(const Setting& setting, std::string_view text, const Target& target);
// Every target gets its row's initial value.
void reset(std::span<const Binding> bindings);

// By name; the error begins with the key in backquotes. An unknown key is an error with the close names.
Status set(std::span<const Binding> bindings, std::string_view key, std::string_view text);
// Names and values of a JSON object, {"max_running_requests": 32, "override": ["a=1", "b=2"]}: numbers, texts and truth
// values as they stand, a list as its elements one after the other.
Result<std::vector<std::pair<std::string, std::string>>> values_of_json(std::string_view json);

}  // namespace reprise::settings
