// Effects: the settings of a command as they are in effect, each with who set it and what that outranked, for
// --print-settings and for reprise_describe(). Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "settings/binding.h"
#include "settings/precedence.h"

namespace reprise::settings {

struct Effect {
  const Setting* row = nullptr;
  Given given;  // no values: nothing is set, and a rule may decide later
  std::vector<Given> outranked = {};
};

// What the target holds, as text: one value, the elements of a list, or nothing.
std::vector<std::string> values_in(const Target& target);
// The default of a setting where its target holds `initial`: the device's or the model's where they decide.
Given default_of(const Setting& row, std::vector<std::string> initial);
// `initial` as default_of() has it.
Effect effect_of(const Setting& row, Given initial, const Precedence& given);

// One line a setting, in columns; secret values are hidden. Those of other systems' launch lines are left out unless
// they are given.
std::string effects_as_text(std::span<const Effect> effects);
// {"max-running-requests": {"value", "origin", "place", "outranked": [{"value", "origin", "place"}]}}: a text, a list
// of texts or null.
OrderedJson effects_as_json(std::span<const Effect> effects);

}  // namespace reprise::settings
