#include "text/tokenizer_json.h"

#include <algorithm>

namespace reprise::text {
namespace {

// A short rendering of a value for an error.
std::string shown(const Json& json) {
  if (json.is_object()) return "an object";
  if (json.is_array()) return "an array";
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

}  // namespace

std::string join_names(std::initializer_list<std::string_view> names) {
  return fmt::format("{}", fmt::join(names.begin(), names.end(), ", "));
}

std::string JsonPlace::path_of(std::string_view key) const {
  return fmt::format("{}{}{}", path_, path_.ends_with(": ") ? "" : ".", key);
}

Status JsonPlace::missing(std::string_view key, std::string_view kind) const {
  const auto it = json_->is_object() ? json_->find(key) : json_->end();
  if (!json_->is_object()) return error("must be an object, not {}", shown(*json_));
  if (it == json_->end()) return error("{} is missing (it must be {})", key, kind);
  return invalid("{}: must be {}, not {}", path_of(key), kind, shown(*it));
}

Status JsonPlace::expect_object(std::initializer_list<std::string_view> keys) const {
  if (!json_->is_object()) return error("must be an object, not {}", shown(*json_));
  for (const auto& [key, value] : json_->items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      return error("unknown key \"{}\"; known are {}", key, join_names(keys));
  }
  return Status::ok();
}

Result<std::string> JsonPlace::type(std::initializer_list<std::string_view> known) const {
  ASSIGN_OR_RETURN(std::string name, string("type"));
  if (std::find(known.begin(), known.end(), name) == known.end())
    return Status(Code::Unsupported,
                  fmt::format("{}.type: \"{}\" is not supported; supported are {}", path_, name, join_names(known)));
  return name;
}

bool JsonPlace::has(std::string_view key) const {
  if (!json_->is_object()) return false;
  const auto it = json_->find(key);
  return it != json_->end() && !it->is_null();
}

JsonPlace JsonPlace::operator[](std::string_view key) const { return {*json_->find(key), path_of(key)}; }

Result<std::vector<JsonPlace>> JsonPlace::array(std::string_view key) const {
  if (!has(key) || !(*this)[key].json().is_array()) return missing(key, "an array");
  std::vector<JsonPlace> out;
  const JsonPlace place = (*this)[key];
  out.reserve(place.json().size());
  for (size_t i = 0; i < place.json().size(); ++i)
    out.emplace_back(place.json()[i], fmt::format("{}[{}]", place.path(), i));
  return out;
}

Result<std::string> JsonPlace::string(std::string_view key) const {
  if (!has(key) || !(*this)[key].json().is_string()) return missing(key, "a string");
  return (*this)[key].json().get<std::string>();
}

Result<std::string> JsonPlace::string_or(std::string_view key, std::string_view fallback) const {
  if (!has(key)) return std::string(fallback);
  return string(key);
}

Result<bool> JsonPlace::boolean_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!(*this)[key].json().is_boolean()) return missing(key, "true or false");
  return (*this)[key].json().get<bool>();
}

Result<int64_t> JsonPlace::integer(std::string_view key, int64_t low, int64_t high) const {
  const std::string kind = fmt::format("a whole number between {} and {}", low, high);
  if (!has(key) || !(*this)[key].json().is_number_integer()) return missing(key, kind);
  const Json& value = (*this)[key].json();
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(high)) return missing(key, kind);
  const auto number = value.get<int64_t>();
  if (number < low || number > high) return missing(key, kind);
  return number;
}

Result<size_t> JsonPlace::choice(std::string_view key, std::initializer_list<std::string_view> known,
                                 std::optional<size_t> fallback) const {
  if (!has(key) && fallback) return *fallback;
  ASSIGN_OR_RETURN(const std::string name, string(key));
  const auto it = std::find(known.begin(), known.end(), name);
  if (it == known.end()) return missing(key, "one of " + join_names(known));
  return static_cast<size_t>(it - known.begin());
}

}  // namespace reprise::text
