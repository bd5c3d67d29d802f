#include "server/call_grammar.h"

#include <algorithm>
#include <optional>

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

constexpr std::string_view kParameterEnd = "</parameter>";
const OrderedJson kAnyObject = {{"type", "object"}};

// Whether a grammar can be made of it, alone.
bool understood(const OrderedJson& schema) { return Grammar::from_json_schema(schema).is_ok(); }

bool refers(const OrderedJson& schema) {
  if (schema.is_object() && schema.contains("$ref")) return true;
  return schema.is_structured() && std::any_of(schema.begin(), schema.end(), refers);
}

class Calls {
 public:
  Calls(const CallForm& form, RuleBuilder* rules) : form_(form), rules_(*rules), json_(rules) {}

  Status add(NodeId from, NodeId to) {
    const RuleId call = rules_.add_rule("a tool call");
    const CallMarks marks = call_marks(form_.format);
    const NodeId opened = rules_.node(), done = rules_.node(), again = rules_.node();
    json_.blank(rules_.literal(rules_.start(call), marks.begin), opened);
    for (const OrderedJson& tool : form_.tools)
      RETURN_IF_ERROR(form_.format == ToolFormat::Hermes ? hermes(tool["function"], opened, done)
                                                         : qwen3_coder(tool["function"], opened, done));
    const NodeId closing = rules_.node();
    json_.blank(done, closing);
    rules_.literal(closing, marks.end, rules_.end(call));
    rules_.call(from, call, again);
    rules_.jump(again, to);
    if (!form_.several) return Status::ok();
    const NodeId next = rules_.node();
    json_.blank(again, next);
    rules_.call(next, call, again);
    return Status::ok();
  }

 private:
  // {"name": "NAME", "arguments": {...}}
  Status hermes(const OrderedJson& function, NodeId from, NodeId to) {
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

  // <function=NAME>, lines of parameters, </function>. A value is written as it is where it is a text, else as JSON.
  Status qwen3_coder(const OrderedJson& function, NodeId from, NodeId to) {
    const OrderedJson schema = parameters_of(function);
    const OrderedJson properties = schema.value("properties", OrderedJson());
    const OrderedJson required = schema.value("required", OrderedJson());
    NodeId at = rules_.literal(from, "<function=" + function["name"].get<std::string>() + ">\n");
    if (properties.is_object() && !properties.empty()) {
      for (const auto& [name, property] : properties.items()) {
        const NodeId next = rules_.node();
        const NodeId value = rules_.literal(at, "<parameter=" + name + ">\n");
        RETURN_IF_ERROR(parameter(property, value, next));
        const bool needed = required.is_array() && std::find(required.begin(), required.end(), name) != required.end();
        if (!needed) rules_.jump(at, next);
        at = next;
      }
    } else if (schema.value("additionalProperties", OrderedJson(true)) != false) {
      const NodeId named = rules_.node();
      RETURN_IF_ERROR(Grammar::add_regex("[A-Za-z0-9_.-]{1,64}", &rules_, rules_.literal(at, "<parameter="), named));
      words(rules_.literal(named, ">\n"), at);
    }
    rules_.literal(at, "</function>", to);
    return Status::ok();
  }

  Status parameter(const OrderedJson& property, NodeId from, NodeId to) {
    const OrderedJson type = property.is_object() ? property.value("type", OrderedJson()) : OrderedJson();
    const OrderedJson* listed = property.is_object() && property.contains("enum") ? &property["enum"] : nullptr;
    if (type == "string" || (listed && type.is_null())) {
      std::vector<std::string> texts;
      if (listed && listed->is_array())
        for (const OrderedJson& e : *listed)
          if (e.is_string()) texts.push_back(fmt::format("{}\n{}\n", e.get<std::string>(), kParameterEnd));
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
    rules_.literal(end, fmt::format("\n{}\n", kParameterEnd), to);
    return Status::ok();
  }

  // Any text up to the mark of its end. What begins the mark and does not go on so may be followed by its first byte,
  // which it has once.
  void words(NodeId from, NodeId to) {
    if (!words_) {
      words_ = rules_.add_rule("a text of a parameter");
      std::vector<NodeId> at(kParameterEnd.size());
      at[0] = rules_.start(*words_);
      for (size_t i = 1; i < at.size(); ++i) at[i] = rules_.node();
      const auto first = static_cast<uint8_t>(kParameterEnd[0]);
      for (size_t i = 0; i < at.size(); ++i) {
        const auto mark = static_cast<uint8_t>(kParameterEnd[i]);
        if (i > 0) rules_.bytes(at[i], first, first, at[1]);
        if (i + 1 < at.size())
          rules_.bytes(at[i], mark, mark, at[i + 1]);
        else
          rules_.literal(at[i], ">\n", rules_.end(*words_));
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
  RuleBuilder& rules_;
  JsonText json_;
  std::optional<RuleId> words_;
};

}  // namespace

std::string CallForm::key() const {
  return fmt::format("{}{}{}", static_cast<int>(format), several ? "+" : "1", tools.dump());
}

bool has_call_form(ToolFormat format) { return format == ToolFormat::Hermes || format == ToolFormat::Qwen3Coder; }

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
