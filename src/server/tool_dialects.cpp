#include "server/tool_dialects.h"

#include <algorithm>
#include <charconv>

#include "server/harmony_reader.h"

namespace reprise::server {
namespace {

using Calls = std::optional<std::vector<NamedCall>>;

constexpr std::string_view kWhitespace = " \t\r\n";
constexpr std::string_view kDeepSeekCall = "<｜tool▁call▁begin｜>", kDeepSeekCallEnd = "<｜tool▁call▁end｜>",
                           kDeepSeekSeparator = "<｜tool▁sep｜>", kDeepSeekCalls = "<｜tool▁calls▁begin｜>",
                           kDeepSeekCallsEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kMistralCalls = "[TOOL_CALLS]", kMistralArguments = "[ARGS]";

struct FormatName {
  std::string_view name;
  ToolFormat format;
};
constexpr FormatName kFormats[] = {{"none", ToolFormat::None},
                                   {"hermes", ToolFormat::Hermes},
                                   {"qwen", ToolFormat::Hermes},
                                   {"qwen25", ToolFormat::Hermes},
                                   {"llama3", ToolFormat::Llama},
                                   {"deepseekv3", ToolFormat::DeepSeek},
                                   {"deepseekv31", ToolFormat::DeepSeek},
                                   {"mistral", ToolFormat::Mistral},
                                   {"qwen3_coder", ToolFormat::Qwen3Coder},
                                   {"pythonic", ToolFormat::Pythonic},
                                   {"gpt-oss", ToolFormat::Harmony}};

std::string_view stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(kWhitespace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhitespace) - first + 1);
}

// The text up to `mark`, which is taken away with it; nullopt when there is none.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view out = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return out;
}

std::optional<OrderedJson> object_of(std::string_view text) {
  auto json = parse_ordered_json(stripped(text), "a tool call");
  if (!json || !json->is_object()) return std::nullopt;
  return std::move(*json);
}

Calls read_deepseek(std::string_view text) {
  std::vector<NamedCall> out;
  while (take_until(text, kDeepSeekCall)) {
    const auto whole = take_until(text, kDeepSeekCallEnd);
    if (!whole) return std::nullopt;
    std::string_view call = *whole;
    const auto kind = take_until(call, kDeepSeekSeparator);
    if (!kind) return std::nullopt;
    std::string_view name = stripped(*kind);
    if (name == "function" && call.find("```") != std::string_view::npos) {
      const auto head = take_until(call, "```");
      name = stripped(*head);
      if (call.starts_with("json")) call.remove_prefix(4);
      const auto body = take_until(call, "```");
      if (!body) return std::nullopt;
      call = *body;
    }
    const auto arguments = object_of(call);
    if (name.empty() || !arguments) return std::nullopt;
    out.push_back({std::string(name), arguments->dump()});
  }
  if (out.empty()) return std::nullopt;
  return out;
}

// After the first mark: a list of objects, or NAME[ARGS]{...} with a mark between two of them.
Calls read_mistral(std::string_view text) {
  std::vector<NamedCall> out;
  if (stripped(text).starts_with('[')) {
    const auto list = parse_ordered_json(stripped(text), "tool calls");
    if (!list || !list->is_array() || list->empty()) return std::nullopt;
    for (const OrderedJson& c : *list) {
      if (!c.is_object() || !c.contains("name") || !c["name"].is_string()) return std::nullopt;
      out.push_back({c["name"].get<std::string>(), c.value("arguments", OrderedJson::object()).dump()});
    }
    return out;
  }
  while (!stripped(text).empty()) {
    std::string_view call = text.substr(0, text.find(kMistralCalls));
    text.remove_prefix(std::min(text.size(), call.size() + kMistralCalls.size()));
    const auto name = take_until(call, kMistralArguments);
    const auto arguments = object_of(call);
    if (!name || stripped(*name).empty() || !arguments) return std::nullopt;
    out.push_back({std::string(stripped(*name)), arguments->dump()});
  }
  if (out.empty()) return std::nullopt;
  return out;
}

// The type that the schema of a tool gives to a parameter; "" when it gives none.
std::string type_of(const OrderedJson& tools, std::string_view function, std::string_view parameter) {
  if (!tools.is_array()) return {};
  for (const OrderedJson& t : tools) {
    const OrderedJson f = t.is_object() ? t.value("function", OrderedJson()) : OrderedJson();
    if (!f.is_object() || f.value("name", "") != function) continue;
    const OrderedJson schema = f.value("parameters", OrderedJson());
    const OrderedJson properties = schema.is_object() ? schema.value("properties", OrderedJson()) : OrderedJson();
    const auto found = properties.find(std::string(parameter));
    if (!properties.is_object() || found == properties.end() || !found->is_object()) return {};
    const OrderedJson type = found->value("type", OrderedJson());
    return type.is_string() ? type.get<std::string>() : std::string(found->contains("enum") ? "string" : "any");
  }
  return {};
}

// Text as the schema wants it: JSON where it is no string, as long as it parses.
OrderedJson value_of(std::string_view text, const std::string& type) {
  if (text == "null") return nullptr;
  if (type.empty() || type == "string") return std::string(text);
  std::string word(stripped(text));
  if (type == "boolean") {
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    if (word == "true" || word == "false") return word == "true";
    return std::string(text);
  }
  auto json = parse_ordered_json(word, "a value");
  return json ? std::move(*json) : OrderedJson(std::string(text));
}

Calls read_qwen3_coder(std::string_view text, const OrderedJson& tools) {
  if (!take_until(text, "<function=")) return std::nullopt;
  const auto name = take_until(text, ">");
  const auto body = take_until(text, "</function>");
  if (!name || !body || stripped(*name).empty()) return std::nullopt;
  OrderedJson arguments = OrderedJson::object();
  for (std::string_view rest = *body; take_until(rest, "<parameter=");) {
    const auto key = take_until(rest, ">");
    auto value = key ? take_until(rest, "</parameter>") : std::nullopt;
    if (!value) return std::nullopt;
    // The template writes the value on lines of its own.
    if (value->starts_with('\n')) value->remove_prefix(1);
    if (value->ends_with('\n')) value->remove_suffix(1);
    arguments[std::string(*key)] = value_of(*value, type_of(tools, *name, *key));
  }
  return std::vector<NamedCall>{{std::string(stripped(*name)), arguments.dump()}};
}

// Python's literals and calls with keyword arguments, as far as models write them.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  Calls calls() {
    std::vector<NamedCall> out;
    if (!take('[')) return std::nullopt;
    do {
      const std::string name = word();
      OrderedJson arguments = OrderedJson::object();
      if (name.empty() || !take('(')) return std::nullopt;
      while (!take(')')) {
        if (!arguments.empty() && !take(',')) return std::nullopt;
        const std::string key = word();
        OrderedJson value;
        if (key.empty() || !take('=') || !literal(value, 0)) return std::nullopt;
        arguments[key] = std::move(value);
      }
      out.push_back({name, arguments.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)});
    } while (take(','));
    if (!take(']') || !stripped(text_).empty()) return std::nullopt;
    return out;
  }

 private:
  static constexpr int kDeepest = 32;

  bool take(char c) {
    text_.remove_prefix(std::min(text_.size(), text_.find_first_not_of(kWhitespace)));
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::string word() {
    text_.remove_prefix(std::min(text_.size(), text_.find_first_not_of(kWhitespace)));
    size_t n = 0;
    while (n < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[n])) || text_[n] == '_' ||
                                text_[n] == '.' || text_[n] == '-' || static_cast<unsigned char>(text_[n]) > 127))
      ++n;
    const std::string out(text_.substr(0, n));
    text_.remove_prefix(n);
    return out;
  }
  bool text(OrderedJson& out) {
    const char quote = text_[0];
    std::string s;
    for (size_t i = 1; i < text_.size(); ++i) {
      if (text_[i] == quote) {
        text_.remove_prefix(i + 1);
        out = std::move(s);
        return true;
      }
      if (text_[i] != '\\' || i + 1 == text_.size()) {
        s += text_[i];
        continue;
      }
      const char c = text_[++i];
      if (c == 'n' || c == 't' || c == 'r')
        s += c == 'n' ? '\n' : c == 't' ? '\t' : '\r';
      else if (c == '\\' || c == '\'' || c == '"')
        s += c;
      else
        s += {'\\', c};  // as Python keeps what it does not know
    }
    return false;
  }
  bool list(OrderedJson& out, char end, int depth) {
    out = OrderedJson::array();
    while (!take(end)) {
      if (!out.empty() && !take(',')) return false;
      if (take(end)) break;
      OrderedJson value;
      if (!literal(value, depth)) return false;
      out.push_back(std::move(value));
    }
    return true;
  }
  bool dict(OrderedJson& out, int depth) {
    out = OrderedJson::object();
    while (!take('}')) {
      OrderedJson key, value;
      if (!out.empty() && !take(',')) return false;
      if (take('}')) break;
      if (!literal(key, depth) || !key.is_string() || !take(':') || !literal(value, depth)) return false;
      out[key.get<std::string>()] = std::move(value);
    }
    return true;
  }
  bool literal(OrderedJson& out, int depth) {
    if (depth > kDeepest) return false;
    text_.remove_prefix(std::min(text_.size(), text_.find_first_not_of(kWhitespace)));
    if (text_.empty()) return false;
    if (text_[0] == '"' || text_[0] == '\'') return text(out);
    if (take('[')) return list(out, ']', depth + 1);
    if (take('(')) return list(out, ')', depth + 1);
    if (take('{')) return dict(out, depth + 1);
    const size_t n = std::min(text_.size(), text_.find_first_of(" \t\r\n,)]}:="));
    const std::string_view w = text_.substr(0, n);
    text_.remove_prefix(n);
    if (w == "True" || w == "true" || w == "False" || w == "false")
      out = w == "True" || w == "true";
    else if (w == "None" || w == "null")
      out = nullptr;
    else
      return number(w, out);
    return true;
  }
  static bool number(std::string_view w, OrderedJson& out) {
    auto json = parse_ordered_json(w, "a number");
    if (!json || !json->is_number()) return false;
    out = std::move(*json);
    return true;
  }

  std::string_view text_;
};

Calls read_pythonic(std::string_view text) {
  text = stripped(text);
  for (const std::string_view mark : {"<|python_start|>", "<|python_end|>"}) {
    if (text.starts_with(mark)) text = stripped(text.substr(mark.size()));
    if (text.ends_with(mark)) text = stripped(text.substr(0, text.size() - mark.size()));
  }
  return PythonReader(text).calls();
}

}  // namespace

Result<ToolFormat> parse_tool_format(std::string_view name) {
  for (const FormatName& f : kFormats)
    if (f.name == name) return f.format;
  return invalid("\"{}\" is not a tool call parser; allowed: auto, {}", name,
                 fmt::format("{}", fmt::join(tool_format_names(), ", ")));
}

std::vector<std::string> tool_format_names() {
  std::vector<std::string> out;
  for (const FormatName& f : kFormats) out.emplace_back(f.name);
  return out;
}

ToolFormat tool_format_of_template(std::string_view t) {
  const auto shows = [&](std::string_view mark) { return t.find(mark) != std::string_view::npos; };
  if (shows_harmony(t)) return ToolFormat::Harmony;
  if (shows(kDeepSeekCalls)) return ToolFormat::DeepSeek;
  if (shows("<function=")) return ToolFormat::Qwen3Coder;
  if (shows("<tool_call>")) return ToolFormat::Hermes;
  if (shows(kMistralCalls)) return ToolFormat::Mistral;
  if (shows("<|python_tag|>") && shows("parameters")) return ToolFormat::Llama;
  return ToolFormat::None;
}

const std::vector<ReasoningParser>& reasoning_parsers() {
  static const std::vector<ReasoningParser> list{{"qwen3", false},      {"qwen3-thinking", true},
                                                 {"deepseek-r1", true}, {"deepseek-v3", false},
                                                 {"glm45", false},      {"gpt-oss", false, true}};
  return list;
}

CallMarks call_marks(ToolFormat format) {
  switch (format) {
    case ToolFormat::Hermes:
    case ToolFormat::Qwen3Coder: return {"<tool_call>", "</tool_call>"};
    case ToolFormat::DeepSeek: return {kDeepSeekCalls, kDeepSeekCallsEnd};
    case ToolFormat::Mistral: return {kMistralCalls, ""};
    default: return {};
  }
}

bool marks_are_special(ToolFormat format) { return format == ToolFormat::DeepSeek || format == ToolFormat::Mistral; }

Calls read_dialect(ToolFormat format, std::string_view text, const OrderedJson& tools) {
  switch (format) {
    case ToolFormat::DeepSeek: return read_deepseek(text);
    case ToolFormat::Mistral: return read_mistral(text);
    case ToolFormat::Qwen3Coder: return read_qwen3_coder(text, tools);
    case ToolFormat::Pythonic: return read_pythonic(text);
    default: return std::nullopt;
  }
}

}  // namespace reprise::server
