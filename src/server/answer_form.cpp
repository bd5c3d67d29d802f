#include "server/answer_form.h"

namespace reprise::server {
namespace {

// A schema as an object, or as the text of one.
std::optional<AnswerForm> schema_of(Fields& f, const std::string& name, const OrderedJson& value) {
  if (value.is_object() || value.is_boolean()) return AnswerForm{AnswerForm::Schema{value}};
  if (value.is_string()) {
    auto parsed = parse_ordered_json(value.get<std::string>(), name);
    if (parsed) return AnswerForm{AnswerForm::Schema{std::move(*parsed)}};
    f.fail(name, parsed.status().message());
    return std::nullopt;
  }
  f.fail(name, "a JSON schema is expected");
  return std::nullopt;
}

std::optional<AnswerForm> pattern_of(Fields& f, const std::string& name, const OrderedJson& value) {
  if (value.is_string()) return AnswerForm{AnswerForm::Regex{value.get<std::string>()}};
  f.fail(name, "a regular expression is expected");
  return std::nullopt;
}

std::optional<AnswerForm> choice_of(Fields& f, const std::string& name, const OrderedJson& value) {
  AnswerForm::Choice out;
  bool good = value.is_array() && !value.empty();
  if (good)
    for (const OrderedJson& e : value) {
      good &= e.is_string();
      if (good) out.texts.push_back(e.get<std::string>());
    }
  if (good) return AnswerForm{std::move(out)};
  f.fail(name, "a list of at least one string is expected");
  return std::nullopt;
}

std::optional<AnswerForm> response_format(Fields& f, const OrderedJson& value) {
  const OrderedJson* named = given(value, "type");
  const std::string type = named && named->is_string() ? named->get<std::string>() : std::string();
  if (type == "text") return std::nullopt;
  if (type == "json_object") return AnswerForm{AnswerForm::AnyObject{}};
  if (type == "json_schema") {
    const OrderedJson* outer = given(value, "json_schema");
    if (const OrderedJson* schema = outer ? given(*outer, "schema") : nullptr)
      return schema_of(f, "response_format.json_schema.schema", *schema);
    f.fail("response_format.json_schema", "an object with a \"schema\" is expected");
    return std::nullopt;
  }
  if (const OrderedJson* pattern = given(value, "pattern"); pattern && type == "regex")
    return pattern_of(f, "response_format.pattern", *pattern);
  f.fail("response_format", "an object with \"type\": \"text\", \"json_object\" or \"json_schema\" is expected");
  return std::nullopt;
}

std::optional<AnswerForm> structured(Fields& f, const OrderedJson& value) {
  std::string key;
  const OrderedJson* what = nullptr;
  bool good = value.is_object();
  for (const auto& [k, v] : value.items()) {
    if (v.is_null()) continue;
    good &= what == nullptr;
    key = k;
    what = &v;
  }
  if (!good) {
    f.fail("structured_outputs", "an object with one of \"json\", \"regex\" and \"choice\" is expected");
    return std::nullopt;
  }
  if (!what) return std::nullopt;  // clients write null for each that they do not mean
  const std::string name = "structured_outputs." + key;
  if (key == "json") return schema_of(f, name, *what);
  if (key == "regex") return pattern_of(f, name, *what);
  if (key == "choice") return choice_of(f, name, *what);
  f.fail(name, "it is not supported; there are json, regex and choice");
  return std::nullopt;
}

}  // namespace

std::optional<AnswerForm> read_answer_form(Fields& f, const OrderedJson& ordered) {
  std::optional<AnswerForm> form;
  std::string said;
  for (const auto& [name, value] : ordered.items()) {
    if (value.is_null()) continue;
    std::optional<AnswerForm> this_one;
    if (name == "response_format")
      this_one = response_format(f, value);
    else if (name == "json_schema" || name == "guided_json")
      this_one = schema_of(f, name, value);
    else if (name == "regex" || name == "guided_regex")
      this_one = pattern_of(f, name, value);
    else if (name == "guided_choice")
      this_one = choice_of(f, name, value);
    else if (name == "structured_outputs")
      this_one = structured(f, value);
    else if (name == "ebnf" || name == "guided_grammar")
      f.fail(name, "grammars in this form are not supported; there are regex and json_schema");
    if (!this_one) continue;
    if (form) f.fail(name, fmt::format("{} says already what the answer may be", said));
    form = std::move(this_one);
    said = name;
  }
  return f.error() ? std::nullopt : std::move(form);
}

}  // namespace reprise::server
