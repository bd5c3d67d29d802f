// --override key=value: changes to config.json before it is parsed.
#include <algorithm>

#include "base/close_names.h"
#include "checkpoint/config.h"
#include "checkpoint/config_keys.h"
#include "checkpoint/config_rope.h"

namespace reprise::checkpoint {
namespace {

bool contains(std::span<const std::string_view> list, std::string_view name) {
  for (std::string_view s : list)
    if (s == name) return true;
  return false;
}

Status unknown(std::string_view what, std::string_view key, const Json& object,
               std::span<const std::string_view> known) {
  std::vector<std::string_view> names(known.begin(), known.end());
  if (object.is_object())
    for (const auto& [k, v] : object.items())
      if (!contains(known, k)) names.push_back(k);
  std::string close = close_names(key, names);
  if (close.empty()) {
    close = "; allowed: ";
    constexpr size_t kShown = 50;  // families have many more
    for (size_t i = 0; i < std::min(kShown, names.size()); ++i) close += fmt::format("{}{}", i ? ", " : "", names[i]);
    if (names.size() > kShown) close += fmt::format(" and {} more", names.size() - kShown);
  }
  return invalid("`override`: {} has no key \"{}\"{}", what, key, close);
}

// A value may be spelt in two places, of which the parser reads one; an override must reach that one.
void redirect(const Json& config, std::string& key, std::string& inner) {
  const std::string rope(rope_object_in_effect(config));
  if ((key == "rope_scaling" || key == "rope_parameters") && !rope.empty()) key = rope;
  if ((key == "rope_theta" || key == "partial_rotary_factor") && inner.empty() && !rope.empty() &&
      config[rope].is_object() && config[rope].contains(key)) {
    inner = key;
    key = rope;
    return;
  }
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  if (inner == kOriginal && config.contains(kOriginal) && !config[kOriginal].is_null()) {
    key = kOriginal;
    inner.clear();
  }
  if (key == "torch_dtype" && config.contains("dtype")) key = "dtype";
  if (key == "dtype" && !config.contains("dtype") && config.contains("torch_dtype")) key = "torch_dtype";
}

// `known_keys` may be set although the file lacks them.
Status apply(Json& config, const std::string& text, std::span<const std::string_view> known_keys) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return invalid("`override`: \"{}\" is not of the form key=value", text);
  std::string key = text.substr(0, equals), inner;
  const std::string value_text = text.substr(equals + 1);
  if (const size_t dot = key.find('.'); dot != std::string::npos) {
    inner = key.substr(dot + 1);
    key.resize(dot);
    if (inner.empty() || inner.find('.') != std::string::npos)
      return invalid("`override`: \"{}\": a key has at most two parts", text);
  }
  if (!contains(known_keys, key) && !config.contains(key)) return unknown("the config", key, config, known_keys);
  redirect(config, key, inner);

  Result<Json> parsed = parse_json(value_text, "`override`");
  Json value = parsed.is_ok() ? std::move(*parsed) : Json(value_text);
  if (inner.empty()) {
    // The new spelling keeps the base frequency inside; replacing the rest must not lose it.
    const auto old = config.find(key);
    if ((key == "rope_parameters" || key == "rope_scaling") && value.is_object() && old != config.end() &&
        old->is_object() && old->contains("rope_theta") && !value.contains("rope_theta"))
      value["rope_theta"] = (*old)["rope_theta"];
    config[key] = std::move(value);
    return Status::ok();
  }
  const bool is_rope = key == "rope_scaling" || key == "rope_parameters";
  Json& object = config[key];
  if (object.is_null() && is_rope) object = Json::object();
  if (!object.is_object()) return invalid("`override`: {} has no keys of its own, so \"{}\" cannot be set", key, text);
  const std::span<const std::string_view> known = is_rope ? known_rope_keys() : std::span<const std::string_view>();
  if (!contains(known, inner) && !object.contains(inner)) return unknown(key, inner, object, known);
  object[inner] = std::move(value);
  return Status::ok();
}

}  // namespace

Status apply_overrides(Json& config, std::span<const std::string> overrides, const Families& families) {
  if (!config.is_object()) return invalid("`override`: the config is not a JSON object");
  std::vector<std::string_view> keys(known_config_keys().begin(), known_config_keys().end());
  for (const Family* f : families.list)
    for (const std::string_view key : f->fields)
      if (!contains(keys, key)) keys.push_back(key);
  for (const std::string& text : overrides) RETURN_IF_ERROR(apply(config, text, keys));
  return Status::ok();
}

}  // namespace reprise::checkpoint
