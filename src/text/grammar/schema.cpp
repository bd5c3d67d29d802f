#include "text/grammar/schema.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "text/grammar/json_numbers.h"
#include "text/grammar/json_text.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema_keywords.h"
#include "text/grammar/schema_merge.h"

namespace reprise::text::grammar {
namespace {

using Place = SchemaSource::Place;

class Compiler {
 public:
  Compiler(const OrderedJson& schema, RuleBuilder* rules)
      : source_(schema, rules->limits()), rules_(*rules), text_(rules) {}

  Result<RuleId> run() {
    RETURN_IF_ERROR(source_.check_size());
    const RuleId root = rule_of(source_.root());
    while (!todo_.empty() && !rules_.full()) {
      const auto [place, rule] = std::move(todo_.back());
      todo_.pop_back();
      RETURN_IF_ERROR(fill(place, rules_.start(rule), rules_.end(rule)));
    }
    return root;
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

  // enum and const; only a type may stand next to them.
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
      if (any_type || std::any_of(types.begin(), types.end(), fits)) texts.push_back(dump_json(value));
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

  // The members of an object: those of `properties`, then those that are required besides.
  struct Member {
    std::string name;
    std::optional<Place> value;  // any without
    bool required;
  };
  struct Object {
    std::vector<Member> members;
    std::vector<std::string> names;
    std::optional<Place> more;  // what others are
    bool open_ended = false;
  };
  static Result<Object> members_of(const Place& place) {
    const OrderedJson* properties = place.find("properties");
    const OrderedJson* required = place.find("required");
    const OrderedJson* more = place.find("additionalProperties");
    if (properties != nullptr && !properties->is_object()) return place.error("properties must be an object");
    if (required != nullptr && !required->is_array()) return place.error("required must be a list of names");

    Object object;
    std::unordered_set<std::string> needed;
    std::vector<std::string> needed_in_order;
    if (required != nullptr) {
      for (const OrderedJson& name : *required) {
        if (!name.is_string()) return place.error("required must be a list of names");
        if (needed.insert(name.get<std::string>()).second) needed_in_order.push_back(name.get<std::string>());
      }
    }
    if (properties != nullptr) {
      for (const auto& [name, schema] : properties->items()) {
        object.names.push_back(name);
        object.members.push_back({name, place.member(schema, "properties", name), needed.erase(name) > 0});
      }
    }
    if (more != nullptr) object.more = Place{more, place.path + "/additionalProperties"};
    for (const std::string& name : needed_in_order) {
      if (needed.count(name) == 0) continue;
      object.names.push_back(name);
      object.members.push_back({name, object.more, true});
    }
    object.open_ended = more != nullptr ? *more != false : properties == nullptr;
    return object;
  }

  Status object(const Place& place, NodeId from, NodeId to) {
    ASSIGN_OR_RETURN(Object object, members_of(place));
    const NodeId open = rules_.literal(from, "{");
    const NodeId close = rules_.node();
    NodeId next = rules_.node();
    text_.blank(open, next);
    size_t still_required = static_cast<size_t>(
        std::count_if(object.members.begin(), object.members.end(), [](const Member& m) { return m.required; }));
    if (still_required == 0) rules_.jump(open, close);
    for (const Member& member : object.members) {
      if (rules_.full()) return Status::ok();
      const NodeId name = next;
      const NodeId value = rules_.node();
      const NodeId after = rules_.node();
      next = rules_.node();
      text_.colon(rules_.literal(name, dump_json(member.name)), value);
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
    if (object.open_ended) {
      const NodeId value = rules_.node();
      const NodeId after = rules_.node();
      text_.other_name(next, std::move(object.names), value);
      if (object.more) {
        call(value, *object.more, after);
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
    RETURN_IF_ERROR(read_size(place, "minItems", &min));
    RETURN_IF_ERROR(read_size(place, "maxItems", &max));
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
    RETURN_IF_ERROR(read_size(place, "minLength", &min));
    RETURN_IF_ERROR(read_size(place, "maxLength", &max));
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

  Status number(const Place& place, bool whole, NodeId from, NodeId to) {
    std::optional<NumberBound> low;
    std::optional<NumberBound> high;
    RETURN_IF_ERROR(read_bound(place, true, whole, &low));
    RETURN_IF_ERROR(read_bound(place, false, whole, &high));
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

Result<RuleId> add_schema_rules(const OrderedJson& schema, RuleBuilder* rules) { return Compiler(schema, rules).run(); }

}  // namespace reprise::text::grammar
