// Values of settings from text and back: what is out of range or not known is an error that names what is allowed. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "settings/setting.h"

namespace reprise::settings {

Result<int64_t> parse_integer(std::string_view text, IntegerRange range);
Result<std::vector<int64_t>> parse_integers(std::string_view text, IntegerRange range);
Result<double> parse_real(std::string_view text, RealRange range);
Result<bool> parse_switch(std::string_view text);  // true or false

// Whether the text is a value of the setting.
Status check(const Setting& setting, std::string_view text);
// What is allowed, in words: "1 to 4096", "auto, off"; empty where anything is.
std::string allowed(const Setting& setting);
// What stands for the value behind the flag: "N", "PATH"; empty of switches, and of choices, which list theirs.
std::string_view value_word(const Setting& setting);
// The names of the flag one by one, without the word of a positional argument: "-c", "--context-length".
std::vector<std::string> flags_of(const Setting& setting);

}  // namespace reprise::settings
