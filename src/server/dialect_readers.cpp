#include "server/dialect_readers.h"

#include <algorithm>

#include "base/lower_case.h"
#include "server/ids.h"
#include "server/python_calls.h"

namespace reprise::server {
namespace {

using ReadCalls = std::optional<std::vector<NamedCall>>;

constexpr std::string_view kDeepSeekCall = "<｜tool▁call▁begin｜>", kDeepSeekCallEnd = "<｜tool▁call▁end｜>",
                           kDeepSeekSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kMistralCall = "[TOOL_CALLS]", kMistralId = "[CALL_ID]", kMistralArguments = "[ARGS]";
constexpr std::string_view kKimiCall = "<|tool_call_begin|>", kKimiArguments = "<|tool_call_argument_begin|>",
                           kKimiCallEnd = "<|tool_call_end|>", kKimiFunctions = "functions.";

// The text up to `mark`, which is taken away with it; nullopt when there is none.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view out = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return out;
}

// What stands before the mark is nothing.
bool take_mark(std::string_view& text, std::string_view mark) {
  const std::string_view rest = without_blanks(text);
  if (!rest.starts_with(mark)) return false;
  text = rest.substr(mark.size());
  return true;
}

std::optional<OrderedJson> object_of(std::string_view text) {
  auto json = parse_ordered_json(without_blanks(text), "a tool call");
  if (!json || !json->is_object()) return std::nullopt;
  return std::move(*json);
}

ReadCalls or_none(std::vector<NamedCall> calls) {
  if (calls.empty()) return std::nullopt;
  return calls;
}

ReadCalls read_deepseek(std::string_view text) {
  std::vector<NamedCall> out;
  while (take_until(text, kDeepSeekCall)) {
    const auto whole = take_until(text, kDeepSeekCallEnd);
    if (!whole) return std::nullopt;
    std::string_view call = *whole;
    const auto kind = take_until(call, kDeepSeekSeparator);
    if (!kind) return std::nullopt;
    std::string_view name = without_blanks(*kind);
    if (name == "function" && call.find("```") != std::string_view::npos) {
      const auto head = take_until(call, "```");
      name = without_blanks(*head);
      if (call.starts_with("json")) call.remove_prefix(4);
      const auto body = take_until(call, "```");
      if (!body) return std::nullopt;
      call = *body;
    }
    const auto arguments = object_of(call);
    if (name.empty() || !arguments) return std::nullopt;
    out.push_back({std::string(name), arguments->dump()});
  }
  return or_none(std::move(out));
}

// The id that a call has in Mistral's forms; "" where its template would not take it back.
std::string short_id_in(std::string_view id) { return is_short_id(id) ? std::string(id) : std::string(); }

// A list of objects or one object, by OpenAI's names of the members or by Cohere's.
ReadCalls read_list(std::string_view text, bool with_ids = false) {
  auto json = parse_ordered_json(without_blanks(text), "tool calls");
  if (!json) return std::nullopt;
  if (json->is_object()) json = OrderedJson::array({*json});
  if (!json->is_array()) return std::nullopt;
  std::vector<NamedCall> out;
  for (const OrderedJson& entry : *json) {
    if (!entry.is_object()) return std::nullopt;
    // As OpenAI writes a call; so does Falcon3's template, and the model after it.
    const bool within = entry.contains("function") && entry["function"].is_object();
    const OrderedJson& c = within ? entry["function"] : entry;
    const char* name = c.contains("name") ? "name" : "tool_name";
    const char* arguments = c.contains("arguments") ? "arguments" : "parameters";
    if (!c.contains(name) || !c[name].is_string()) return std::nullopt;
    std::optional<OrderedJson> values = c.value(arguments, OrderedJson::object());
    if (values->is_string()) values = object_of(values->get<std::string>());
    if (!values || !values->is_object()) return std::nullopt;
    out.push_back({c[name].get<std::string>(), values->dump()});
    if (with_ids && entry.contains("id") && entry["id"].is_string())
      out.back().id = short_id_in(entry["id"].get<std::string>());
  }
  return or_none(std::move(out));
}

// After the first mark: a list of objects, or NAME[ARGS]{...} with a mark between two of them. Tokenizers of version 11
// have [CALL_ID]ID behind the name; other versions leave it out.
ReadCalls read_mistral(std::string_view text) {
  if (without_blanks(text).starts_with('[')) return read_list(text, true);
  std::vector<NamedCall> out;
  while (!without_blanks(text).empty()) {
    std::string_view call = text.substr(0, text.find(kMistralCall));
    text.remove_prefix(std::min(text.size(), call.size() + kMistralCall.size()));
    const auto head = take_until(call, kMistralArguments);
    const auto arguments = object_of(call);
    if (!head || !arguments) return std::nullopt;
    std::string_view id = *head, name = id;
    if (const auto before = take_until(id, kMistralId))
      name = *before;
    else
      id = {};
    name = without_blanks(name);
    if (name.empty()) return std::nullopt;
    out.push_back({std::string(name), arguments->dump(), short_id_in(without_blanks(id))});
  }
  return or_none(std::move(out));
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// functions.NAME:INDEX is the name of a call to the model, which finds its result by it.
// Some answers only count: that is clear where there is one tool.
ReadCalls read_kimi(std::string_view text, const OrderedJson& tools) {
  std::vector<NamedCall> out;
  while (take_mark(text, kKimiCall)) {
    const auto whole = take_until(text, kKimiCallEnd);
    if (!whole) return std::nullopt;
    std::string_view call = *whole;
    const auto head = take_until(call, kKimiArguments);
    const auto arguments = object_of(call);
    if (!head || !arguments) return std::nullopt;
    const std::string_view id = without_blanks(*head);
    std::string_view name = id;
    if (name.starts_with(kKimiFunctions)) name.remove_prefix(kKimiFunctions.size());
    if (all_digits(name) && tools.is_array() && tools.size() == 1) {
      out.push_back({tools[0]["function"]["name"].get<std::string>(), arguments->dump(), std::string(id)});
      continue;
    }
    const size_t colon = name.rfind(':');
    if (colon == std::string_view::npos || colon == 0 || !all_digits(name.substr(colon + 1))) return std::nullopt;
    out.push_back({std::string(name.substr(0, colon)), arguments->dump(), std::string(id)});
  }
  return without_blanks(text).empty() ? or_none(std::move(out)) : std::nullopt;
}

// The schema that a tool gives to a parameter; null when it gives none.
OrderedJson parameter_schema(const OrderedJson& tools, std::string_view function, std::string_view parameter) {
  if (!tools.is_array()) return nullptr;
  for (const OrderedJson& t : tools) {
    const OrderedJson f = t.is_object() ? t.value("function", OrderedJson()) : OrderedJson();
    if (!f.is_object() || f.value("name", "") != function) continue;
    const OrderedJson schema = f.value("parameters", OrderedJson());
    const OrderedJson properties = schema.is_object() ? schema.value("properties", OrderedJson()) : OrderedJson();
    if (!properties.is_object()) return nullptr;
    const auto found = properties.find(std::string(parameter));
    return found != properties.end() && found->is_object() ? *found : OrderedJson();
  }
  return nullptr;
}

void add_kind(const OrderedJson& value, std::vector<std::string>& out) {
  out.push_back(value.is_string()           ? "string"
                : value.is_boolean()        ? "boolean"
                : value.is_null()           ? "null"
                : value.is_number_integer() ? "integer"
                : value.is_number()         ? "number"
                : value.is_array()          ? "array"
                                            : "object");
}

// What a schema allows, by JSON Schema's names of types; "any" where it says so in another way. Empty: it says nothing.
std::vector<std::string> types_of(const OrderedJson& schema) {
  std::vector<std::string> out;
  if (!schema.is_object()) return out;
  const auto type = schema.find("type");
  if (type != schema.end()) {
    for (const OrderedJson& t : type->is_array() ? *type : OrderedJson::array({*type}))
      if (t.is_string()) out.push_back(t.get<std::string>());
  } else if (const auto listed = schema.find("enum"); listed != schema.end() && listed->is_array()) {
    for (const OrderedJson& e : *listed) add_kind(e, out);
  } else if (const auto one = schema.find("const"); one != schema.end()) {
    add_kind(*one, out);
  } else {
    for (const char* of : {"anyOf", "oneOf"})
      if (const auto several = schema.find(of); several != schema.end() && several->is_array())
        for (const OrderedJson& s : *several)
          for (std::string& t : types_of(s)) out.push_back(std::move(t));
  }
  if (out.empty()) out.emplace_back("any");
  return out;
}

// Text as the schema wants it: JSON of a type that is allowed, else the text.
OrderedJson schema_value(std::string_view text, const std::vector<std::string>& types) {
  const auto allowed = [&](std::string_view t) { return std::find(types.begin(), types.end(), t) != types.end(); };
  if (types == std::vector<std::string>{"string"}) return std::string(text);
  std::string word(without_blanks(text));
  if (allowed("boolean")) {
    const std::string small = lower_case(word);
    if (small == "true" || small == "false") return small == "true";
  }
  auto json = parse_ordered_json(word, "a value");
  if (!json) return std::string(text);
  if (!allowed("string")) return std::move(*json);
  std::vector<std::string> kind;
  add_kind(*json, kind);
  const bool fits = kind[0] != "string" && (allowed(kind[0]) || (kind[0] == "integer" && allowed("number")));
  return fits ? std::move(*json) : OrderedJson(std::string(text));
}

// A parameter that no schema knows is a text, and Qwen3-Coder's and Seed's models write null for any type.
OrderedJson tag_value(ToolFormat format, std::string_view text, std::vector<std::string> types) {
  if (format != ToolFormat::MiniMax && text == "null") return nullptr;
  if (types.empty()) types.emplace_back("string");
  // Seed's template writes lists and objects as Python does.
  OrderedJson out = schema_value(text, types);
  if (format == ToolFormat::SeedOss && out.is_string() && types != std::vector<std::string>{"string"})
    if (auto literal = read_python_value(text)) return std::move(*literal);
  return out;
}

ReadCalls read_tags(ToolFormat format, std::string_view text, const OrderedJson& tools) {
  const TagStyle& style = *tag_style(format);
  std::vector<NamedCall> out;
  while (take_mark(text, style.function)) {
    const auto name = take_until(text, style.after_name);
    if (!name || without_blanks(*name).empty()) return std::nullopt;
    const std::string function(without_blanks(*name));
    OrderedJson arguments = OrderedJson::object();
    while (take_mark(text, style.parameter)) {
      const auto key = take_until(text, style.after_key);
      auto value = key ? take_until(text, style.after_value) : std::nullopt;
      if (!value) return std::nullopt;
      if (style.value_lines && value->starts_with('\n')) value->remove_prefix(1);
      if (style.value_lines && value->ends_with('\n')) value->remove_suffix(1);
      arguments[std::string(*key)] = tag_value(format, *value, types_of(parameter_schema(tools, function, *key)));
    }
    if (!take_mark(text, style.end)) return std::nullopt;
    out.push_back({function, arguments.dump()});
  }
  return without_blanks(text).empty() ? or_none(std::move(out)) : std::nullopt;
}

// NAME, then keys and values, in GLM's tags or in Hunyuan's, where a name ends with a tag of its own. Newer tokenizers
// of Hunyuan have tags with a suffix, <arg_key:opensource>.
class ArgumentTags {
 public:
  ArgumentTags(std::string_view text, const OrderedJson& tools) : text_(text), tools_(tools) {}

  // Up to the end of the text.
  ReadCalls one() {
    const size_t end = std::min(text_.size(), text_.find("<arg_key"));
    return call(text_.substr(0, end), text_.substr(end)) ? or_none(std::move(out_)) : std::nullopt;
  }
  // Each between <tool_call> and </tool_call>.
  ReadCalls several() {
    while (tag("<tool_call")) {
      const auto name = take_until(text_, "<tool_sep");
      if (!name || !take_until(text_, ">")) return std::nullopt;
      const auto body = take_until(text_, "</tool_call");
      if (!body || !take_until(text_, ">") || !call(*name, *body)) return std::nullopt;
    }
    return without_blanks(text_).empty() ? or_none(std::move(out_)) : std::nullopt;
  }

 private:
  bool tag(std::string_view begin) { return take_mark(text_, begin) && take_until(text_, ">"); }

  bool call(std::string_view name, std::string_view body) {
    name = without_blanks(name);
    if (name.empty() || name.find('<') != std::string_view::npos) return false;
    OrderedJson arguments = OrderedJson::object();
    while (take_mark(body, "<arg_key")) {
      if (!take_until(body, ">")) return false;
      const auto key = take_until(body, "</arg_key");
      if (!key || !take_until(body, ">") || !take_mark(body, "<arg_value") || !take_until(body, ">")) return false;
      const auto value = take_until(body, "</arg_value");
      if (!value || !take_until(body, ">")) return false;
      const std::string_view word = without_blanks(*key);
      arguments[std::string(word)] = schema_value(*value, types_of(parameter_schema(tools_, name, word)));
    }
    if (!without_blanks(body).empty()) return false;
    out_.push_back({std::string(name), arguments.dump()});
    return true;
  }

  std::string_view text_;
  const OrderedJson& tools_;
  std::vector<NamedCall> out_;
};

ReadCalls read_hunyuan(std::string_view text, const OrderedJson& tools) {
  if (without_blanks(text).starts_with('[')) return read_list(text);
  return ArgumentTags(text, tools).several();
}

// The mark functools[ has taken the bracket of its list.
ReadCalls read_phi4(std::string_view text) {
  const std::string_view head = without_blanks(text);
  if (head.starts_with('[')) return read_list(text);
  if (auto one = head.ends_with(']') ? std::nullopt : read_list(text)) return one;
  return read_list("[" + std::string(text));
}

// The list goes on to the end of the answer; some answers close it.
ReadCalls read_granite(std::string_view text) {
  constexpr std::string_view kEnd = "</tool_call>";
  text = without_blanks(text);
  if (text.ends_with(kEnd)) text.remove_suffix(kEnd.size());
  return read_list(text);
}

ReadCalls read_pythonic(std::string_view text) {
  text = without_blanks(text);
  for (const std::string_view mark : {"<|python_start|>", "<|python_end|>"}) {
    if (text.starts_with(mark)) text = without_blanks(text.substr(mark.size()));
    if (text.ends_with(mark)) text = without_blanks(text.substr(0, text.size() - mark.size()));
  }
  return read_python_list(text);
}

}  // namespace

const TagStyle* tag_style(ToolFormat format) {
  static constexpr TagStyle qwen{"<function=", ">", "<parameter=", ">", "</parameter>", "</function>", true, false},
      seed{"<function=", ">", "<parameter=", ">", "</parameter>", "</function>", false, false},
      minimax{"<invoke name=\"", "\">", "<parameter name=\"", "\">", "</parameter>", "</invoke>", false, true},
      glm{"", "", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", "", false, false};
  switch (format) {
    case ToolFormat::Qwen3Coder: return &qwen;
    case ToolFormat::SeedOss: return &seed;
    case ToolFormat::MiniMax: return &minimax;
    case ToolFormat::Glm: return &glm;
    default: return nullptr;
  }
}

ReadCalls read_dialect(ToolFormat format, std::string_view text, const OrderedJson& tools) {
  switch (format) {
    case ToolFormat::DeepSeek: return read_deepseek(text);
    case ToolFormat::Mistral: return read_mistral(text);
    case ToolFormat::Pythonic: return read_pythonic(text);
    case ToolFormat::Qwen3Coder:
    case ToolFormat::SeedOss:
    case ToolFormat::MiniMax: return read_tags(format, text, tools);
    case ToolFormat::Glm: return ArgumentTags(text, tools).one();
    case ToolFormat::Kimi: return read_kimi(text, tools);
    case ToolFormat::Hermes:
    case ToolFormat::Cohere:
    case ToolFormat::Nemotron: return read_list(text);
    case ToolFormat::Granite: return read_granite(text);
    case ToolFormat::Phi4: return read_phi4(text);
    case ToolFormat::Hunyuan: return read_hunyuan(text, tools);
    case ToolFormat::Olmo3:
      return without_blanks(text).starts_with('[') ? read_python_list(text) : read_python_lines(text);
    default: return std::nullopt;
  }
}

}  // namespace reprise::server
