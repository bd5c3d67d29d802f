#include "text/grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace reprise::text::grammar {
namespace {

constexpr int kMaxFlattening = 32;

constexpr std::array<std::string_view, 15> kNotes = {
    "title", "description", "default",    "examples",         "example",         "$schema",  "$id",      "$comment",
    "$defs", "definitions", "deprecated", "contentMediaType", "contentEncoding", "readOnly", "writeOnly"};

constexpr std::array<std::string_view, 22> kKeywords = {"type",
                                                        "enum",
                                                        "const",
                                                        "anyOf",
                                                        "oneOf",
                                                        "allOf",
                                                        "$ref",
                                                        "properties",
                                                        "required",
                                                        "additionalProperties",
                                                        "items",
                                                        "minItems",
                                                        "maxItems",
                                                        "minLength",
                                                        "maxLength",
                                                        "pattern",
                                                        "format",
                                                        "minimum",
                                                        "maximum",
                                                        "exclusiveMinimum",
                                                        "exclusiveMaximum",
                                                        "prefixItems"};

template <typename List>
bool has(const List& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

std::string escaped(const std::string& key) {
  std::string out;
  for (const char c : key) {
    if (c == '~' || c == '/') {
      out += c == '~' ? "~0" : "~1";
    } else {
      out += c;
    }
  }
  return out;
}

// One step of a JSON pointer in a URI: %25, then ~1 and ~0.
std::string unescaped(std::string_view step) {
  std::string bytes;
  for (size_t i = 0; i < step.size(); ++i) {
    const auto hex = [&](size_t at) {
      const char c = at < step.size() ? static_cast<char>(step[at] | 0x20) : ' ';
      return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    if (step[i] == '%' && hex(i + 1) >= 0 && hex(i + 2) >= 0) {
      bytes += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
      i += 2;
    } else {
      bytes += step[i];
    }
  }
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool tilde = bytes[i] == '~' && i + 1 < bytes.size() && (bytes[i + 1] == '0' || bytes[i + 1] == '1');
    out += tilde ? (bytes[++i] == '0' ? '~' : '/') : bytes[i];
  }
  return out;
}

OrderedJson both(const OrderedJson& a, const OrderedJson& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  return OrderedJson{{"allOf", OrderedJson::array({a, b})}};
}

}  // namespace

SchemaSource::Place SchemaSource::Place::member(const OrderedJson& value, const char* keyword,
                                                const std::string& name) const {
  return {&value, fmt::format("{}/{}/{}", path, keyword, escaped(name))};
}

const OrderedJson* SchemaSource::Place::find(const char* keyword) const {
  if (!json->is_object()) return nullptr;
  const auto it = json->find(keyword);
  return it == json->end() ? nullptr : &*it;
}

Status SchemaSource::count(const OrderedJson& json, int depth) {
  if (depth > kMaxJsonDepth) return invalid("json_schema: nested more than {} deep", kMaxJsonDepth);
  if (++values_ > limits_.max_schema_values)
    return invalid("json_schema: more than {} values, with merged copies (GrammarLimits::max_schema_values)",
                   limits_.max_schema_values);
  if (!json.is_structured()) return Status::ok();
  for (const OrderedJson& inner : json) RETURN_IF_ERROR(count(inner, depth + 1));
  return Status::ok();
}

Status SchemaSource::check_size() { return count(*root_.json, 0); }

Status SchemaSource::check_keywords(const Place& place) const {
  if (place.json->is_boolean()) return Status::ok();
  if (!place.json->is_object()) return place.error("a schema must be an object, true or false");
  for (const auto& [key, value] : place.json->items()) {
    if (has(kKeywords, key) || has(kNotes, key) || key.starts_with("x-")) continue;
    if (key == "uniqueItems" && value == false) continue;
    return place.error(fmt::format("keyword \"{}\" is not supported", key));
  }
  return Status::ok();
}

bool SchemaSource::says_more_than(const Place& place, std::initializer_list<std::string_view> keywords) {
  for (const auto& [key, value] : place.json->items()) {
    if (has(kKeywords, key) && !has(keywords, key)) return true;
  }
  return false;
}

Result<SchemaSource::Place> SchemaSource::follow(const Place& place) const {
  const OrderedJson& ref = *place.find("$ref");
  if (!ref.is_string()) return place.error("$ref must be a string");
  const std::string& target = ref.get_ref<const std::string&>();
  if (!target.starts_with("#")) return place.error("$ref can only lead into the schema itself (\"#/$defs/name\")");
  const OrderedJson* at = root_.json;
  std::string_view rest = std::string_view(target).substr(1);
  while (!rest.empty()) {
    if (rest[0] != '/') return place.error(fmt::format("$ref \"{}\" is not a JSON pointer", target));
    const size_t end = std::min(rest.find('/', 1), rest.size());
    const std::string key = unescaped(rest.substr(1, end - 1));
    rest.remove_prefix(end);
    const OrderedJson* next = nullptr;
    if (at->is_object()) {
      if (const auto it = at->find(key); it != at->end()) next = &*it;
    } else if (at->is_array() && !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == key.npos) {
      const size_t index = std::stoul(key);
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) return place.error(fmt::format("$ref \"{}\" leads nowhere", target));
    at = next;
  }
  return Place{at, target};
}

SchemaSource::Place SchemaSource::keep(OrderedJson json, std::string path) {
  made_.push_back(std::move(json));
  return {&made_.back(), std::move(path)};
}

Result<SchemaSource::Place> SchemaSource::flatten(const Place& place, int depth) {
  RETURN_IF_ERROR(check_keywords(place));
  if (depth > kMaxFlattening)
    return place.error("more than 32 $ref and allOf within each other, or one that leads back to itself");
  const OrderedJson* all = place.find("allOf");
  const bool has_ref = place.find("$ref") != nullptr;
  if (all == nullptr && !has_ref) return place;
  RETURN_IF_ERROR(count(*place.json, 0));
  OrderedJson rest = *place.json;
  for (const char* key : {"allOf", "$ref", "$defs", "definitions"}) rest.erase(key);
  Place out = keep(std::move(rest), place.path);
  if (has_ref) {
    ASSIGN_OR_RETURN(const Place target, follow(place));
    ASSIGN_OR_RETURN(const Place flat, flatten(target, depth + 1));
    ASSIGN_OR_RETURN(out, merge(out, flat));
  }
  if (all == nullptr) return out;
  if (!all->is_array() || all->empty()) return place.error("allOf must be a list of schemas");
  for (size_t i = 0; i < all->size(); ++i) {
    ASSIGN_OR_RETURN(const Place flat, flatten({&(*all)[i], fmt::format("{}/allOf/{}", place.path, i)}, depth + 1));
    ASSIGN_OR_RETURN(out, merge(out, flat));
  }
  return out;
}

Result<SchemaSource::Place> SchemaSource::merge(const Place& a, const Place& b) {
  RETURN_IF_ERROR(count(*a.json, 0));
  RETURN_IF_ERROR(count(*b.json, 0));
  if (a.json->is_boolean()) return a.json->get<bool>() ? b : a;
  if (b.json->is_boolean()) return b.json->get<bool>() ? a : b;
  OrderedJson out = OrderedJson::object();
  // Keywords that depend on each other are merged as a whole.
  const auto together = [](const std::string& key) {
    return key == "properties" || key == "additionalProperties" || key == "items" || key == "prefixItems";
  };
  for (const auto& [key, value] : a.json->items()) {
    if (!together(key) && has(kKeywords, key)) out[key] = value;
  }
  for (const auto& [key, value] : b.json->items()) {
    if (together(key) || !has(kKeywords, key)) continue;
    const auto known = out.find(key);
    if (known == out.end()) {
      out[key] = value;
    } else if (*known != value) {
      ASSIGN_OR_RETURN(*known, merge_keyword(key, *known, value, b));
    }
  }
  for (const Place* place : {&a, &b}) {
    const OrderedJson* properties = place->find("properties");
    if (properties != nullptr && !properties->is_object()) return place->error("properties must be an object");
    const OrderedJson* first = place->find("prefixItems");
    if (first != nullptr && !first->is_array()) return place->error("prefixItems must be a list of schemas");
  }
  merge_objects(*a.json, *b.json, &out);
  merge_lists(a, b, &out);
  return keep(std::move(out), a.path);
}

Result<OrderedJson> SchemaSource::merge_keyword(const std::string& key, const OrderedJson& a, const OrderedJson& b,
                                                const Place& place) const {
  const bool numbers = a.is_number() && b.is_number();
  if (key.starts_with("min") || key == "exclusiveMinimum") {
    if (numbers) return a < b ? b : a;
  } else if (key.starts_with("max") || key == "exclusiveMaximum") {
    if (numbers) return a < b ? a : b;
  } else if (key == "required" && a.is_array() && b.is_array()) {
    OrderedJson out = a;
    for (const OrderedJson& name : b) out.push_back(name);
    return out;
  } else if (key == "type" || key == "enum") {
    const OrderedJson list_a = a.is_array() ? a : OrderedJson::array({a});
    const OrderedJson list_b = b.is_array() ? b : OrderedJson::array({b});
    OrderedJson out = OrderedJson::array();
    const auto is_in = [](const OrderedJson& list, const OrderedJson& value) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    for (const OrderedJson& value : list_a) {
      if (is_in(list_b, value) || (key == "type" && value == "integer" && is_in(list_b, "number")))
        out.push_back(value);
    }
    if (key == "type" && is_in(list_b, "integer") && is_in(list_a, "number") && !is_in(out, "integer"))
      out.push_back("integer");
    return out;
  }
  return place.error(fmt::format("\"{}\" cannot be merged with what stands beside it", key));
}

// A name that one side knows is for the other an additional one. Without additionalProperties a side allows any.
void SchemaSource::merge_objects(const OrderedJson& a, const OrderedJson& b, OrderedJson* out) {
  const OrderedJson anything = true;
  const auto get = [&](const OrderedJson& side, const char* key) -> const OrderedJson* {
    const auto it = side.find(key);
    return it == side.end() ? nullptr : &*it;
  };
  const OrderedJson* more_a = get(a, "additionalProperties");
  const OrderedJson* more_b = get(b, "additionalProperties");
  std::unordered_map<std::string, OrderedJson> of_b;
  OrderedJson properties = OrderedJson::object();
  if (const OrderedJson* list = get(b, "properties")) {
    for (const auto& [name, schema] : list->items()) of_b[name] = schema;
  }
  std::unordered_map<std::string, bool> of_a;
  // Written directly, as a look for the name at each would take a square of time.
  auto& entries = properties.get_ref<OrderedJson::object_t&>();
  if (const OrderedJson* list = get(a, "properties")) {
    for (const auto& [name, schema] : list->items()) {
      of_a[name] = true;
      const auto it = of_b.find(name);
      const OrderedJson& other = it != of_b.end() ? it->second : more_b != nullptr ? *more_b : anything;
      entries.push_back({name, both(schema, other)});
    }
  }
  if (const OrderedJson* list = get(b, "properties")) {
    for (const auto& [name, schema] : list->items()) {
      if (of_a.count(name) == 0) entries.push_back({name, both(more_a != nullptr ? *more_a : anything, schema)});
    }
  }
  if (get(a, "properties") != nullptr || get(b, "properties") != nullptr) (*out)["properties"] = std::move(properties);
  if (more_a != nullptr || more_b != nullptr)
    (*out)["additionalProperties"] =
        both(more_a != nullptr ? *more_a : anything, more_b != nullptr ? *more_b : anything);
}

// An item that stands first on one side is for the other perhaps one of the rest.
void SchemaSource::merge_lists(const Place& a, const Place& b, OrderedJson* out) {
  const OrderedJson anything = true;
  const auto rest = [&](const Place& side) -> const OrderedJson& {
    const OrderedJson* items = side.find("items");
    return items != nullptr ? *items : anything;
  };
  const auto first = [](const Place& side) {
    const OrderedJson* list = side.find("prefixItems");
    return list != nullptr ? list->size() : 0;
  };
  const auto item = [&](const Place& side, size_t index) -> const OrderedJson& {
    return index < first(side) ? (*side.find("prefixItems"))[index] : rest(side);
  };
  const size_t count = std::max(first(a), first(b));
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < count; ++i) list.push_back(both(item(a, i), item(b, i)));
  if (count > 0) (*out)["prefixItems"] = std::move(list);
  if (a.find("items") != nullptr || b.find("items") != nullptr) (*out)["items"] = both(rest(a), rest(b));
}

}  // namespace reprise::text::grammar
