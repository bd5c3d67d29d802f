#include "server/python_calls.h"

#include <algorithm>

namespace reprise::server {
namespace {

using PythonCalls = std::optional<std::vector<NamedCall>>;

// Python's literals and calls with keyword arguments, as far as models write them.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  // [NAME(key=value, ...), ...]
  PythonCalls list_of_calls() {
    std::vector<NamedCall> out;
    if (!take('[')) return std::nullopt;
    do {
      if (!call(out)) return std::nullopt;
    } while (take(','));
    if (!take(']') || !without_blanks(text_).empty()) return std::nullopt;
    return out;
  }

  std::optional<OrderedJson> value() {
    OrderedJson out;
    if (!literal(out, 0) || !without_blanks(text_).empty()) return std::nullopt;
    return out;
  }

  // NAME(key=value, ...) on lines of their own.
  PythonCalls lines_of_calls() {
    std::vector<NamedCall> out;
    do {
      if (!call(out)) return std::nullopt;
      take(',');
    } while (!without_blanks(text_).empty());
    return out;
  }

 private:
  static constexpr int kDeepest = 32;

  bool call(std::vector<NamedCall>& out) {
    const std::string name = word();
    OrderedJson arguments = OrderedJson::object();
    if (name.empty() || !take('(')) return false;
    while (!take(')')) {
      if (!arguments.empty() && !take(',')) return false;
      const std::string key = word();
      OrderedJson value;
      if (key.empty() || !take('=') || !literal(value, 0)) return false;
      arguments[key] = std::move(value);
    }
    out.push_back({name, arguments.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)});
    return true;
  }

  bool take(char c) {
    text_.remove_prefix(std::min(text_.size(), text_.find_first_not_of(kCallBlanks)));
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::string word() {
    text_.remove_prefix(std::min(text_.size(), text_.find_first_not_of(kCallBlanks)));
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
    text_.remove_prefix(std::min(text_.size(), text_.find_first_not_of(kCallBlanks)));
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

}  // namespace

std::optional<std::vector<NamedCall>> read_python_list(std::string_view text) {
  return PythonReader(text).list_of_calls();
}

std::optional<std::vector<NamedCall>> read_python_lines(std::string_view text) {
  return PythonReader(text).lines_of_calls();
}

std::optional<OrderedJson> read_python_value(std::string_view text) { return PythonReader(text).value(); }

}  // namespace reprise::server
