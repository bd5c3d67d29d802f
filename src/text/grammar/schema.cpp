#include "text/grammar/schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "text/grammar/json_numbers.h"
#include "text/grammar/json_text.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema_merge.h"

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

std::string format_pattern(std::string_view format) {
  if (format == "date") return std::string(kDate);
  if (format == "time") return std::string(kTime);
  if (format == "date-time") return std::string(kDate) + "T" + std::string(kTime);
  if (format == "uuid") return std::string(kUuid);
  if (format == "email") return std::string(kEmail);
  if (format == "ipv4") return std::string(kIpv4);
  return {};
}

constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};

std::string dump(const OrderedJson& value) { return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

bool is_of_type(const OrderedJson& value, std::string_view type) {
  if (type == "integer")
    return value.is_number_integer() || (value.is_number() && std::trunc(value.get<double>()) == value.get<double>());
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "object" ? value.is_object() : value.is_array();
}

class Compiler {
 public:
  Compiler(const OrderedJson& schema, RuleBuilder* rules)
      : source_(schema, rules->limits()), rules_(*rules), text_(rules) {}

  Status run() {
    RETURN_IF_ERROR(source_.check_size());
    rule_of(source_.root());
    while (!todo_.empty() && !rules_.full()) {
      const auto [place, rule] = std::move(todo_.back());
      todo_.pop_back();
      RETURN_IF_ERROR(fill(place, rules_.start(rule), rules_.end(rule)));
    }
    return Status::ok();
  }

 private:
  // The rule of a schema, filled later: schemas may lead back to themselves.
  RuleId rule_of(const Place& place) {
    const auto [entry, is_new] = known_.try_emplace(place.json, 0);
    if (is_new) {
      entry->second = rules_.add_rule("json_schema: " + place.path);
      todo_.push_back({place, entry->second});
    }
    return entry->second;
  }
  void call(NodeId from, const Place& place, NodeId to) { rules_.call(from, rule_of(place), to); }

  Status fill(const Place& place, NodeId from, NodeId to) {
    RETURN_IF_ERROR(source_.check_keywords(place));
    if (place.json->is_boolean()) {
      if (place.json->get<bool>()) rules_.call(from, text_.value(), to);
      return Status::ok();
    }
    // A single reference keeps its rule, so that it may lead back here.
    if (place.find("$ref") != nullptr && !SchemaSource::says_more_than(place, {"$ref"})) {
      ASSIGN_OR_RETURN(const Place target, source_.follow(place));
      call(from, target, to);
      return Status::ok();
    }
    const OrderedJson* all = place.find("allOf");
    if (all != nullptr && all->is_array() && all->size() == 1 && !SchemaSource::says_more_than(place, {"allOf"})) {
      call(from, {&(*all)[0], place.path + "/allOf/0"}, to);
      return Status::ok();
    }
    ASSIGN_OR_RETURN(const Place flat, source_.flatten(place));
    if (flat.json->is_boolean()) return fill(flat, from, to);
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (flat.find(keyword) != nullptr) return branches(flat, keyword, from, to);
    }
    if (flat.find("enum") != nullptr || flat.find("const") != nullptr) return listed(flat, from, to);
    return typed(flat, from, to);
  }

  Status branches(const Place& place, const char* keyword, NodeId from, NodeId to) {
    const OrderedJson& list = *place.find(keyword);
    if (!list.is_array() || list.empty()) return place.error(fmt::format("{} must be a list of schemas", keyword));
    const bool alone = !SchemaSource::says_more_than(place, {keyword});
    OrderedJson without = alone ? OrderedJson::object() : *place.json;
    without.erase(keyword);
    const Place rest = source_.keep(std::move(without), place.path);
    for (size_t i = 0; i < list.size() && !rules_.full(); ++i) {
      Place branch{&list[i], fmt::format("{}/{}/{}", place.path, keyword, i)};
      if (!alone) {
        ASSIGN_OR_RETURN(branch, source_.flatten(branch));
        ASSIGN_OR_RETURN(branch, source_.merge(rest, branch));
      }
      call(from, branch, to);
    }
    return Status::ok();
  }

  Result<std::vector<std::string_view>> types_of(const Place& place) const {
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
            fmt::format("type {} is not one of object, array, string, number, integer, boolean, null", dump(name)));
      if (std::find(out.begin(), out.end(), *known) == out.end()) out.push_back(*known);
    }
    return out;
  }

  // enum and const; only a type may stand beside them.
  Status listed(const Place& place, NodeId from, NodeId to) {
    if (SchemaSource::says_more_than(place, {"enum", "const", "type"}))
      return place.error("beside enum or const only \"type\" is supported");
    const OrderedJson* list = place.find("enum");
    const OrderedJson* one = place.find("const");
    if (list != nullptr && !list->is_array()) return place.error("enum must be a list");
    ASSIGN_OR_RETURN(const auto types, types_of(place));
    const bool any_type = place.find("type") == nullptr;
    std::vector<std::string> texts;
    const auto add = [&](const OrderedJson& value) {
      const auto fits = [&](std::string_view type) { return is_of_type(value, type); };
      if (any_type || std::any_of(types.begin(), types.end(), fits)) texts.push_back(dump(value));
    };
    if (list == nullptr) {
      add(*one);
    } else {
      for (const OrderedJson& value : *list) {
        if (one == nullptr || value == *one) add(value);
      }
    }
    rules_.choices(from, std::move(texts), to);
    return Status::ok();
  }

  Status typed(const Place& place, NodeId from, NodeId to) {
    ASSIGN_OR_RETURN(const auto types, types_of(place));
    if (types.empty() && place.find("type") == nullptr) rules_.call(from, text_.value(), to);
    for (const std::string_view type : types) {
      if (type == "object") {
        RETURN_IF_ERROR(object(place, from, to));
      } else if (type == "array") {
        RETURN_IF_ERROR(array(place, from, to));
      } else if (type == "string") {
        RETURN_IF_ERROR(string(place, from, to));
      } else if (type == "number" || type == "integer") {
        RETURN_IF_ERROR(number(place, type == "integer", from, to));
      } else if (type == "null") {
        rules_.literal(from, "null", to);
      } else {
        rules_.literal(from, "true", to);
        rules_.literal(from, "false", to);
      }
    }
    return Status::ok();
  }

  Status object(const Place& place, NodeId from, NodeId to) {
    const OrderedJson* properties = place.find("properties");
    const OrderedJson* required = place.find("required");
    const OrderedJson* more = place.find("additionalProperties");
    if (properties != nullptr && !properties->is_object()) return place.error("properties must be an object");
    if (required != nullptr && !required->is_array()) return place.error("required must be a list of names");

    struct Member {
      std::string name;
      std::optional<Place> value;  // any without
      bool required;
    };
    std::unordered_set<std::string> needed;
    std::vector<std::string> needed_in_order;
    if (required != nullptr) {
      for (const OrderedJson& name : *required) {
        if (!name.is_string()) return place.error("required must be a list of names");
        if (needed.insert(name.get<std::string>()).second) needed_in_order.push_back(name.get<std::string>());
      }
    }
    std::vector<Member> members;
    std::vector<std::string> names;
    if (properties != nullptr) {
      for (const auto& [name, schema] : properties->items()) {
        names.push_back(name);
        members.push_back({name, place.member(schema, "properties", name), needed.erase(name) > 0});
      }
    }
    std::optional<Place> more_place;
    if (more != nullptr) more_place = Place{more, place.path + "/additionalProperties"};
    for (const std::string& name : needed_in_order) {
      if (needed.count(name) == 0) continue;
      names.push_back(name);
      members.push_back({name, more_place, true});
    }
    const bool open_ended = more != nullptr ? *more != false : properties == nullptr;

    const NodeId open = rules_.literal(from, "{");
    const NodeId close = rules_.node();
    NodeId next = rules_.node();
    text_.blank(open, next);
    size_t still_required =
        static_cast<size_t>(std::count_if(members.begin(), members.end(), [](const Member& m) { return m.required; }));
    if (still_required == 0) rules_.jump(open, close);
    for (const Member& member : members) {
      if (rules_.full()) return Status::ok();
      const NodeId name = next;
      const NodeId value = rules_.node();
      const NodeId after = rules_.node();
      next = rules_.node();
      text_.colon(rules_.literal(name, dump(member.name)), value);
      if (member.value) {
        call(value, *member.value, after);
      } else {
        rules_.call(value, text_.value(), after);
      }
      text_.comma(after, next);
      if (member.required) {
        --still_required;
      } else {
        rules_.jump(name, next);
      }
      if (still_required == 0) rules_.jump(after, close);
    }
    if (open_ended) {
      const NodeId value = rules_.node();
      const NodeId after = rules_.node();
      text_.other_name(next, std::move(names), value);
      if (more_place) {
        call(value, *more_place, after);
      } else {
        rules_.call(value, text_.value(), after);
      }
      text_.comma(after, next);
      rules_.jump(after, close);
    }
    const NodeId brace = rules_.node();
    text_.blank(close, brace);
    rules_.literal(brace, "}", to);
    return Status::ok();
  }

  Status array(const Place& place, NodeId from, NodeId to) {
    std::optional<size_t> min;
    std::optional<size_t> max;
    RETURN_IF_ERROR(size_keyword(place, "minItems", &min));
    RETURN_IF_ERROR(size_keyword(place, "maxItems", &max));
    const OrderedJson* items = place.find("items");
    const OrderedJson* prefix = place.find("prefixItems");
    if (prefix != nullptr && !prefix->is_array()) return place.error("prefixItems must be a list of schemas");
    if (items != nullptr && items->is_array())
      return place.error("items must be one schema; prefixItems takes a list of them");
    const size_t first = prefix != nullptr ? prefix->size() : 0;
    const auto item = [&](size_t index, NodeId before, NodeId after) {
      if (index < first) {
        call(before, {&(*prefix)[index], fmt::format("{}/prefixItems/{}", place.path, index)}, after);
      } else if (items != nullptr) {
        call(before, {items, place.path + "/items"}, after);
      } else {
        rules_.call(before, text_.value(), after);
      }
    };
    const size_t least = min.value_or(0);
    const NodeId open = rules_.literal(from, "[");
    const NodeId close = rules_.node();
    NodeId next = rules_.node();
    text_.blank(open, next);
    if (least == 0) rules_.jump(open, close);
    const size_t written_out = max ? *max : std::max(least, first);
    for (size_t i = 0; i < written_out && !rules_.full(); ++i) {
      const NodeId after = rules_.node();
      item(i, next, after);
      if (i + 1 >= least) rules_.jump(after, close);
      next = rules_.node();
      text_.comma(after, next);
    }
    if (!max) {
      const NodeId after = rules_.node();
      item(written_out, next, after);
      text_.comma(after, next);
      rules_.jump(after, close);
    }
    const NodeId bracket = rules_.node();
    text_.blank(close, bracket);
    rules_.literal(bracket, "]", to);
    return Status::ok();
  }

  Status string(const Place& place, NodeId from, NodeId to) {
    std::optional<size_t> min;
    std::optional<size_t> max;
    RETURN_IF_ERROR(size_keyword(place, "minLength", &min));
    RETURN_IF_ERROR(size_keyword(place, "maxLength", &max));
    const OrderedJson* pattern = place.find("pattern");
    const OrderedJson* format = place.find("format");
    if (pattern != nullptr && !pattern->is_string()) return place.error("pattern must be a string");
    if (format != nullptr && !format->is_string()) return place.error("format must be a string");
    const std::string of_format = format != nullptr ? format_pattern(format->get<std::string>()) : "";
    if (pattern != nullptr || !of_format.empty()) {
      if (min || max || (pattern != nullptr && !of_format.empty()))
        return place.error("of pattern, format, and minLength with maxLength, only one is supported at a time");
      const auto tree =
          parse_regex(pattern != nullptr ? pattern->get_ref<const std::string&>() : of_format, rules_.limits());
      if (!tree) return tree.status().at("json_schema: " + place.path + "/pattern");
      const NodeId inside = rules_.literal(from, "\"");
      const NodeId end = rules_.node();
      emit_regex(&rules_, inside, *tree, pattern != nullptr ? RegexUse::Search : RegexUse::Whole, emit_json_character,
                 end);
      rules_.literal(end, "\"", to);
      return Status::ok();
    }
    if (!min && !max) {
      rules_.call(from, text_.string(), to);
      return Status::ok();
    }
    NodeId at = rules_.literal(from, "\"");
    const size_t least = min.value_or(0);
    const NodeId end = rules_.node();
    for (size_t i = 0; i < max.value_or(least) && !rules_.full(); ++i) {
      if (i >= least) rules_.jump(at, end);
      const NodeId next = rules_.node();
      rules_.call(at, text_.character(), next);
      at = next;
    }
    if (!max) rules_.call(at, text_.character(), at);
    if (!max || least <= *max) rules_.jump(at, end);
    rules_.literal(end, "\"", to);
    return Status::ok();
  }

  // minLength and its like: whole numbers, which may be written 2.0.
  static Status size_keyword(const Place& place, const char* keyword, std::optional<size_t>* out) {
    const OrderedJson* value = place.find(keyword);
    if (value == nullptr) return Status::ok();
    const double number = value->is_number() ? value->get<double>() : -1;
    if (number < 0 || number > 1e9 || std::trunc(number) != number)
      return place.error(fmt::format("{} must be a whole number from 0 to 1000000000", keyword));
    *out = static_cast<size_t>(number);
    return Status::ok();
  }

  // The stricter of minimum and exclusiveMinimum, or of the others. For whole numbers the bound itself then belongs.
  static Status bound(const Place& place, bool low, bool whole, std::optional<NumberBound>* out) {
    for (const char* keyword : {low ? "minimum" : "maximum", low ? "exclusiveMinimum" : "exclusiveMaximum"}) {
      const OrderedJson* value = place.find(keyword);
      if (value == nullptr) continue;
      if (!value->is_number()) return place.error(fmt::format("{} must be a number", keyword));
      bool exclusive = std::string_view(keyword).starts_with("excl");
      int64_t number = 0;
      if (value->is_number_unsigned() ? value->get<uint64_t>() > uint64_t{1} << 62 : false)
        return place.error(fmt::format("{} {} is too large", keyword, dump(*value)));
      if (value->is_number_integer()) {
        number = value->get<int64_t>();
      } else {
        const double real = value->get<double>();
        if (!(std::fabs(real) < 9e15)) return place.error(fmt::format("{} {} is too large", keyword, dump(*value)));
        const bool is_whole = std::trunc(real) == real;
        if (!is_whole && !whole)
          return place.error(fmt::format("{} {} of a number must be a whole number", keyword, dump(*value)));
        number = static_cast<int64_t>(low ? std::ceil(real) : std::floor(real));
        exclusive = exclusive && is_whole;
      }
      if (number < -(int64_t{1} << 62)) return place.error(fmt::format("{} {} is too large", keyword, dump(*value)));
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

  Status number(const Place& place, bool whole, NodeId from, NodeId to) {
    std::optional<NumberBound> low;
    std::optional<NumberBound> high;
    RETURN_IF_ERROR(bound(place, true, whole, &low));
    RETURN_IF_ERROR(bound(place, false, whole, &high));
    if (!low && !high) {
      rules_.call(from, whole ? text_.integer() : text_.number(), to);
    } else if (whole) {
      emit_integer_between(&rules_, from, low ? std::optional(low->value) : std::nullopt,
                           high ? std::optional(high->value) : std::nullopt, to);
    } else {
      emit_number_between(&rules_, from, low, high, to);
    }
    return Status::ok();
  }

  SchemaSource source_;
  RuleBuilder& rules_;
  JsonText text_;
  std::unordered_map<const OrderedJson*, RuleId> known_;
  std::vector<std::pair<Place, RuleId>> todo_;
};

}  // namespace

Status add_schema_rules(const OrderedJson& schema, RuleBuilder* rules) { return Compiler(schema, rules).run(); }

}  // namespace reprise::text::grammar
