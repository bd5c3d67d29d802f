#include "text/grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace reprise::text::grammar {
namespace {

using Place = SchemaSource::Place;

constexpr std::string_view kDate =
    "[1-9]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))";
constexpr std::string_view kTime = "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
constexpr std::string_view kUuid = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
constexpr std::string_view kEmail =
    "[\\w%+-]+(\\.[\\w%+-]+)*@([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\\.)+[A-Za-z]{2,24}";
constexpr std::string_view kIpv4 = "((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";

constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};

}  // namespace

std::string format_pattern(std::string_view format) {
  if (format == "date") return std::string(kDate);
  if (format == "time") return std::string(kTime);
  if (format == "date-time") return std::string(kDate) + "T" + std::string(kTime);
  if (format == "uuid") return std::string(kUuid);
  if (format == "email") return std::string(kEmail);
  if (format == "ipv4") return std::string(kIpv4);
  return {};
}

std::string dump_json(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

bool is_of_type(const OrderedJson& value, std::string_view type) {
  if (type == "integer")
    return value.is_number_integer() || (value.is_number() && std::trunc(value.get<double>()) == value.get<double>());
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "object" ? value.is_object() : value.is_array();
}

Result<std::vector<std::string_view>> types_of(const Place& place) {
  std::vector<std::string_view> out;
  const OrderedJson* type = place.find("type");
  if (type == nullptr) {
    const auto any = [&](std::initializer_list<const char*> keywords) {
      return std::any_of(keywords.begin(), keywords.end(), [&](const char* k) { return place.find(k) != nullptr; });
    };
    if (any({"properties", "required", "additionalProperties"})) out.push_back("object");
    if (any({"items", "prefixItems", "minItems", "maxItems"})) out.push_back("array");
    if (any({"minLength", "maxLength", "pattern", "format"})) out.push_back("string");
    if (any({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) out.push_back("number");
    return out;
  }
  const OrderedJson list = type->is_array() ? *type : OrderedJson::array({*type});
  for (const OrderedJson& name : list) {
    const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&](std::string_view t) { return name == t; });
    if (known == kTypes.end())
      return place.error(
          fmt::format("type {} is not one of object, array, string, number, integer, boolean, null", dump_json(name)));
    if (std::find(out.begin(), out.end(), *known) == out.end()) out.push_back(*known);
  }
  return out;
}

Status read_size(const Place& place, const char* keyword, std::optional<size_t>* out) {
  const OrderedJson* value = place.find(keyword);
  if (value == nullptr) return Status::ok();
  const double number = value->is_number() ? value->get<double>() : -1;
  if (number < 0 || number > 1e9 || std::trunc(number) != number)
    return place.error(fmt::format("{} must be a whole number from 0 to 1000000000", keyword));
  *out = static_cast<size_t>(number);
  return Status::ok();
}

Status read_bound(const Place& place, bool low, bool whole, std::optional<NumberBound>* out) {
  for (const char* keyword : {low ? "minimum" : "maximum", low ? "exclusiveMinimum" : "exclusiveMaximum"}) {
    const OrderedJson* value = place.find(keyword);
    if (value == nullptr) continue;
    if (!value->is_number()) return place.error(fmt::format("{} must be a number", keyword));
    bool exclusive = std::string_view(keyword).starts_with("excl");
    int64_t number = 0;
    if (value->is_number_unsigned() ? value->get<uint64_t>() > uint64_t{1} << 62 : false)
      return place.error(fmt::format("{} {} is too large", keyword, dump_json(*value)));
    if (value->is_number_integer()) {
      number = value->get<int64_t>();
    } else {
      const double real = value->get<double>();
      if (!(std::fabs(real) < 9e15)) return place.error(fmt::format("{} {} is too large", keyword, dump_json(*value)));
      const bool is_whole = std::trunc(real) == real;
      if (!is_whole && !whole)
        return place.error(fmt::format("{} {} of a number must be a whole number", keyword, dump_json(*value)));
      number = static_cast<int64_t>(low ? std::ceil(real) : std::floor(real));
      exclusive = exclusive && is_whole;
    }
    if (number < -(int64_t{1} << 62)) return place.error(fmt::format("{} {} is too large", keyword, dump_json(*value)));
    if (whole && exclusive) {
      number += low ? 1 : -1;
      exclusive = false;
    }
    const bool stricter =
        !*out || (low ? number > (*out)->value : number < (*out)->value) || (number == (*out)->value && exclusive);
    if (stricter) *out = NumberBound{number, exclusive};
  }
  return Status::ok();
}

}  // namespace reprise::text::grammar
