#include "server/call_grammar.h"

#include <algorithm>
#include <optional>

#include "server/dialect_readers.h"
#include "text/grammar/code_points.h"
#include "text/grammar/grammar.h"
#include "text/grammar/json_text.h"

namespace reprise::server {
namespace {

using text::grammar::CodePointSet;
using text::grammar::Grammar;
using text::grammar::JsonText;
using text::grammar::NodeId;
using text::grammar::RuleBuilder;
using text::grammar::RuleId;

const OrderedJson kAnyObject = {{"type", "object"}};

// Whether a grammar can be made of it, alone.
bool understood(const OrderedJson& schema) { return Grammar::from_json_schema(schema).is_ok(); }

// Calls are objects in a list.
bool is_list(ToolFormat format) { return format == ToolFormat::Hunyuan || format == ToolFormat::Nemotron; }

bool refers(const OrderedJson& schema) {
  if (schema.is_object() && schema.contains("$ref")) return true;
  return schema.is_structured() && std::any_of(schema.begin(), schema.end(), refers);
}

class Calls {
 public:
  Calls(const CallForm& form, RuleBuilder* rules)
      : form_(form), style_(tag_style(form.format)), rules_(*rules), json_(rules) {}

  Status add(NodeId from, NodeId to) {
    const RuleId call = rules_.add_rule("a tool call");
    const CallMarks marks = call_marks(form_.format).front();
    const NodeId opened = rules_.node(), done = rules_.node(), again = rules_.node();
    json_.blank(rules_.literal(rules_.start(call), marks.begin), opened);
    const bool list = is_list(form_.format);
    const NodeId first = list ? rules_.literal(opened, "[") : opened, last = list ? rules_.node() : done;
    for (const OrderedJson& tool : form_.tools)
      RETURN_IF_ERROR(style_ ? tags(tool["function"], first, last) : object(tool["function"], first, last));
    if (list) rules_.literal(last, "]", done);
    if (list && form_.several) json_.comma(last, first);
    if (style_ && style_->several_inside && form_.several) json_.blank(last, first);
    const NodeId closing = rules_.node();
    json_.blank(done, closing);
    rules_.literal(closing, marks.end, rules_.end(call));
    rules_.call(from, call, again);
    rules_.jump(again, to);
    if (!form_.several || list) return Status::ok();
    const NodeId next = rules_.node();
    json_.blank(again, next);
    rules_.call(next, call, again);
    return Status::ok();
  }

 private:
  // {"name": "NAME", "arguments": {...}}
  Status object(const OrderedJson& function, NodeId from, NodeId to) {
    const std::string name = function["name"].dump();
    const OrderedJson schema = parameters_of(function);
    NodeId at = key(string_of(from, "{", "\"name\""));
    at = rules_.literal(at, name);
    const NodeId arguments = rules_.node(), end = rules_.node();
    json_.comma(at, arguments);
    at = key(rules_.literal(arguments, "\"arguments\""));
    RETURN_IF_ERROR(Grammar::add_json_schema(understood(schema) ? schema : kAnyObject, &rules_, at, end));
    const NodeId last = rules_.node();
    json_.blank(end, last);
    rules_.literal(last, "}", to);
    return Status::ok();
  }

  // NAME, parameters each on a line, in the tags of the dialect. A value is written as it is where it is a text, else
  // as JSON.
  Status tags(const OrderedJson& function, NodeId from, NodeId to) {
    const OrderedJson schema = parameters_of(function);
    const OrderedJson properties = schema.value("properties", OrderedJson());
    const OrderedJson required = schema.value("required", OrderedJson());
    NodeId at = rules_.literal(
        from, fmt::format("{}{}{}\n", style_->function, function["name"].get<std::string>(), style_->after_name));
    if (properties.is_object() && !properties.empty()) {
      for (const auto& [name, property] : properties.items()) {
        const NodeId next = rules_.node();
        const NodeId value = rules_.literal(at, fmt::format("{}{}{}", style_->parameter, name, before_value()));
        RETURN_IF_ERROR(parameter(property, value, next));
        const bool needed = required.is_array() && std::find(required.begin(), required.end(), name) != required.end();
        if (!needed) rules_.jump(at, next);
        at = next;
      }
    } else if (schema.value("additionalProperties", OrderedJson(true)) != false) {
      const NodeId named = rules_.node();
      RETURN_IF_ERROR(
          Grammar::add_regex("[A-Za-z0-9_.-]{1,64}", &rules_, rules_.literal(at, style_->parameter), named));
      words(rules_.literal(named, before_value()), at);
    }
    if (style_->end.empty())
      rules_.jump(at, to);
    else
      rules_.literal(at, style_->end, to);
    return Status::ok();
  }

  std::string before_value() const { return fmt::format("{}{}", style_->after_key, style_->value_lines ? "\n" : ""); }
  // What stands between a value that is no free text and the next parameter.
  std::string behind_value() const {
    return fmt::format("{}{}\n", style_->value_lines ? "\n" : "", style_->after_value);
  }

  Status parameter(const OrderedJson& property, NodeId from, NodeId to) {
    const OrderedJson type = property.is_object() ? property.value("type", OrderedJson()) : OrderedJson();
    const OrderedJson* listed = property.is_object() && property.contains("enum") ? &property["enum"] : nullptr;
    if (type == "string" || (listed && type.is_null())) {
      std::vector<std::string> texts;
      if (listed && listed->is_array())
        for (const OrderedJson& e : *listed)
          if (e.is_string()) texts.push_back(e.get<std::string>() + behind_value());
      if (texts.empty()) {
        words(from, to);
        return Status::ok();
      }
      return Grammar::add_choices(texts, &rules_, from, to);
    }
    const NodeId end = rules_.node();
    // A reference would lead into the whole schema of the tool.
    const bool taken = !refers(property) && understood(property);
    RETURN_IF_ERROR(Grammar::add_json_schema(taken ? property : OrderedJson(true), &rules_, from, end));
    rules_.literal(end, behind_value(), to);
    return Status::ok();
  }

  // Any text up to the mark of its end, and a line end. What begins the mark and does not go on so may be followed by
  // its first byte, which it has once.
  void words(NodeId from, NodeId to) {
    if (!words_) {
      words_ = rules_.add_rule("a text of a parameter");
      const std::string_view mark_of_end = style_->after_value;
      std::vector<NodeId> at(mark_of_end.size());
      at[0] = rules_.start(*words_);
      for (size_t i = 1; i < at.size(); ++i) at[i] = rules_.node();
      const auto first = static_cast<uint8_t>(mark_of_end[0]);
      for (size_t i = 0; i < at.size(); ++i) {
        const auto mark = static_cast<uint8_t>(mark_of_end[i]);
        if (i > 0) rules_.bytes(at[i], first, first, at[1]);
        if (i + 1 < at.size())
          rules_.bytes(at[i], mark, mark, at[i + 1]);
        else
          rules_.literal(at[i], fmt::format("{}\n", mark_of_end.substr(i)), rules_.end(*words_));
        const CodePointSet all{{0, CodePointSet::kLast}};
        emit_utf8(&rules_, at[i], all.without({{first, first}, {mark, mark}}), at[0]);
      }
    }
    rules_.call(from, *words_, to);
  }

  NodeId string_of(NodeId from, std::string_view bracket, std::string_view text) {
    const NodeId after = rules_.node();
    json_.blank(rules_.literal(from, bracket), after);
    return rules_.literal(after, text);
  }
  NodeId key(NodeId from) {
    const NodeId to = rules_.node();
    json_.colon(from, to);
    return to;
  }

  const CallForm& form_;
  const TagStyle* style_;  // null: calls are JSON objects
  RuleBuilder& rules_;
  JsonText json_;
  std::optional<RuleId> words_;
};

}  // namespace

std::string CallForm::key() const {
  return fmt::format("{}{}{}", static_cast<int>(format), several ? "+" : "1", tools.dump());
}

bool has_call_form(ToolFormat format) { return format == ToolFormat::Hermes || is_list(format) || tag_style(format); }

OrderedJson parameters_of(const OrderedJson& function) {
  const auto it = function.find("parameters");
  if (it != function.end() && it->is_object() && !it->empty()) {
    OrderedJson schema = *it;
    schema["type"] = "object";  // clients may leave it out, or allow a null beside
    return schema;
  }
  return {{"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
}

Status add_calls(const CallForm& form, RuleBuilder* rules, NodeId from, NodeId to) {
  return Calls(form, rules).add(from, to);
}

}  // namespace reprise::server
