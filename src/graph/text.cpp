#include "graph/text.h"

#include <charconv>
#include <cmath>
#include <unordered_map>

namespace reprise {
namespace {

std::string quote(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string print_attr(const AttrValue& v) {
  if (auto* i = std::get_if<int64_t>(&v)) return fmt::format("{}", *i);
  if (auto* f = std::get_if<double>(&v)) return fmt::format("{}", *f);
  if (auto* s = std::get_if<std::string>(&v)) return quote(*s);
  std::string out = "[";
  for (double x : std::get<std::vector<double>>(v)) {
    if (out.size() > 1) out += ", ";
    out += fmt::format("{}", x);
  }
  return out + "]";
}

class Parser {
 public:
  Parser(std::string_view text, const OpRegistry& ops, const TextVariables& variables)
      : text_(text), ops_(ops), variables_(variables) {}

  Result<Graph> run() {
    RETURN_IF_ERROR(expect("graph"));
    ASSIGN_OR_RETURN(auto name, string());
    Graph g(std::move(name));
    RETURN_IF_ERROR(expect("{"));
    while (accept("symbol")) RETURN_IF_ERROR(symbol(g));
    while (peek() == '%' || at_hint()) RETURN_IF_ERROR(node(g));
    RETURN_IF_ERROR(expect("return"));
    while (peek() != '}') {
      ASSIGN_OR_RETURN(auto output, word());
      RETURN_IF_ERROR(expect("="));
      ASSIGN_OR_RETURN(Value * value, use());
      if (Status s = g.add_output(std::move(output), value); !s.is_ok()) return fail(s.message());
      if (!accept(",")) break;
    }
    RETURN_IF_ERROR(expect("}"));
    skip();
    if (at_ != text_.size()) return fail("nothing may follow the graph");
    RETURN_IF_ERROR(verify(g));
    return g;
  }

 private:
  Status symbol(Graph& g) {
    ASSIGN_OR_RETURN(auto name, word());
    RETURN_IF_ERROR(expect("<="));
    ASSIGN_OR_RETURN(int64_t bound, integer());
    auto id = g.add_symbol(name, bound);
    if (!id.is_ok()) return fail(id.status().message());
    symbols_[name] = *id;
    return Status::ok();
  }

  // A launch without results begins with its op.
  bool at_hint() {
    return std::isalpha(static_cast<unsigned char>(peek())) && !text_.substr(at_).starts_with("return");
  }

  Status node(Graph& g) {
    std::vector<uint32_t> ids;
    std::vector<TensorType> types;
    while (peek() == '%') {  // none of a hint
      ASSIGN_OR_RETURN(uint32_t id, value_id());
      if (values_.contains(id)) return fail(fmt::format("%{} is defined twice", id));
      for (uint32_t other : ids)
        if (other == id) return fail(fmt::format("%{} is defined twice", id));
      RETURN_IF_ERROR(expect(":"));
      ASSIGN_OR_RETURN(auto t, type());
      ids.push_back(id);
      types.push_back(t);
      if (!accept(",")) break;
    }
    if (!ids.empty()) RETURN_IF_ERROR(expect("="));
    ASSIGN_OR_RETURN(auto op_name, word());
    const OpSchema* op = ops_.find(op_name);
    if (!op) return fail(fmt::format("op \"{}\" is not known", op_name));
    if (static_cast<int>(ids.size()) != op->results)
      return fail(fmt::format("{} has {} results, {} are named", op_name, op->results, ids.size()));
    RETURN_IF_ERROR(expect("("));
    std::vector<Value*> in;
    Attrs attrs;
    while (peek() != ')') {
      if (peek() == '%') {
        if (!attrs.entries().empty()) return fail("operands come before attributes");
        ASSIGN_OR_RETURN(Value * v, use());
        in.push_back(v);
      } else {
        RETURN_IF_ERROR(attribute(*op, attrs));
      }
      if (!accept(",")) break;
    }
    RETURN_IF_ERROR(expect(")"));
    uint8_t stream = kMainStream;
    std::vector<const Node*> waits;
    RETURN_IF_ERROR(place(stream, waits));
    std::string made_by = "text";
    if (accept("from")) {
      ASSIGN_OR_RETURN(made_by, string());
    }
    auto made = g.add_with_ids(*op, std::move(in), std::move(attrs), std::move(types), ids, std::move(made_by));
    if (!made.is_ok()) return fail(made.status().message());
    (*made)->stream = stream;
    (*made)->waits = std::move(waits);
    for (size_t i = 0; i < ids.size(); ++i) values_[ids[i]] = (*made)->result(i);
    return Status::ok();
  }

  // The stream and what is waited for, where a line names them.
  Status place(uint8_t& stream, std::vector<const Node*>& waits) {
    if (accept("@")) {
      ASSIGN_OR_RETURN(auto name, word());
      if (name == stream_name(kSideStream))
        stream = kSideStream;
      else if (name == stream_name(kPrefetchStream))
        stream = kPrefetchStream;
      else
        return fail(fmt::format("stream \"{}\" is not known; allowed: side, prefetch", name));
    }
    if (!accept("after")) return Status::ok();
    do {
      ASSIGN_OR_RETURN(const Value* v, use());
      waits.push_back(v->def);
    } while (accept(","));
    return Status::ok();
  }

  Status attribute(const OpSchema& op, Attrs& attrs) {
    ASSIGN_OR_RETURN(auto name, word());
    RETURN_IF_ERROR(expect("="));
    for (const AttrSchema& a : op.attrs) {
      if (a.name != name) continue;
      switch (a.kind) {
        case AttrSchema::Kind::Int: {
          ASSIGN_OR_RETURN(int64_t v, integer());
          attrs.set(name, v);
          return Status::ok();
        }
        case AttrSchema::Kind::Float: {
          ASSIGN_OR_RETURN(double v, number());
          attrs.set(name, v);
          return Status::ok();
        }
        case AttrSchema::Kind::Str: {
          ASSIGN_OR_RETURN(auto v, string());
          attrs.set(name, std::move(v));
          return Status::ok();
        }
        case AttrSchema::Kind::Floats: {
          std::vector<double> list;
          RETURN_IF_ERROR(expect("["));
          while (peek() != ']') {
            ASSIGN_OR_RETURN(double v, number());
            list.push_back(v);
            if (!accept(",")) break;
          }
          RETURN_IF_ERROR(expect("]"));
          attrs.set(name, std::move(list));
          return Status::ok();
        }
      }
    }
    return fail(fmt::format("{} has no attribute \"{}\"; declared: {}", op.name, name, op.decl));
  }

  Result<TensorType> type() {
    ASSIGN_OR_RETURN(auto name, word());
    auto dtype = parse_dtype(name);
    if (!dtype.is_ok()) return fail(dtype.status().message());
    TensorType t{*dtype, {}};
    RETURN_IF_ERROR(expect("["));
    while (peek() != ']') {
      if (t.shape.rank() == Shape::kMaxRank) return fail(fmt::format("at most {} dimensions", Shape::kMaxRank));
      ASSIGN_OR_RETURN(Dim d, dim());
      t.shape.push_back(d);
      if (!accept(",")) break;
    }
    RETURN_IF_ERROR(expect("]"));
    return t;
  }

  Result<Dim> dim() {
    int64_t factor = 1;
    const char c = peek();
    if ((c >= '0' && c <= '9') || c == '-' || c == '$') {
      ASSIGN_OR_RETURN(factor, integer());
      if (factor < 0 || factor > (int64_t{1} << 40)) return fail("a size is between 0 and 2^40");
      if (!accept("*")) return Dim(factor);
    }
    ASSIGN_OR_RETURN(auto name, word());
    auto it = symbols_.find(name);
    if (it == symbols_.end()) return fail(fmt::format("symbol {} is not declared", name));
    return Dim(factor, it->second);
  }

  Result<uint32_t> value_id() {
    RETURN_IF_ERROR(expect("%"));
    ASSIGN_OR_RETURN(int64_t id, integer());
    if (id < 0 || id > 100'000'000) return fail("a value's number is between 0 and 100000000");
    return static_cast<uint32_t>(id);
  }

  Result<Value*> use() {
    ASSIGN_OR_RETURN(uint32_t id, value_id());
    auto it = values_.find(id);
    if (it == values_.end()) return fail(fmt::format("%{} is not defined yet", id));
    return it->second;
  }

  template <typename T>
  Result<T> variable() {
    ASSIGN_OR_RETURN(auto name, word());
    auto it = variables_.find(name);
    if (it == variables_.end()) return fail(fmt::format("variable ${} is not declared", name));
    if (auto* v = std::get_if<T>(&it->second)) return *v;
    return fail(fmt::format("variable ${} has another type than what stands here", name));
  }

  Result<int64_t> integer() {
    if (accept("$")) return variable<int64_t>();
    skip();
    int64_t v = 0;
    auto [end, ec] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (ec != std::errc()) return fail("expected an integer");
    at_ = static_cast<size_t>(end - text_.data());
    return v;
  }

  Result<double> number() {
    if (accept("$")) return variable<double>();
    skip();
    double v = 0;
    auto [end, ec] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (ec != std::errc()) return fail("expected a number");
    at_ = static_cast<size_t>(end - text_.data());
    return v;
  }

  Result<std::string> string() {
    if (accept("$")) return variable<std::string>();
    RETURN_IF_ERROR(expect("\""));
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c == '\\') {
        if (at_ == text_.size()) break;
        c = text_[at_++];
        if (c == 'n') c = '\n';
      }
      out += c;
    }
    if (at_ == text_.size()) return fail("the string does not end");
    ++at_;
    return out;
  }

  Result<std::string> word() {
    skip();
    size_t end = at_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_' || text_[end] == '.'))
      ++end;
    if (end == at_) return fail("expected a name");
    std::string out(text_.substr(at_, end - at_));
    at_ = end;
    return out;
  }

  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
        ++at_;
      } else {
        break;
      }
    }
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(std::string_view s) {
    skip();
    if (!text_.substr(at_).starts_with(s)) return false;
    at_ += s.size();
    return true;
  }
  Status expect(std::string_view s) { return accept(s) ? Status::ok() : fail(fmt::format("expected {}", s)); }

  Status fail(std::string_view what) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      }
    }
    return invalid("IR text, line {}, column {}: {}", line, column, what);
  }

  std::string_view text_;
  const OpRegistry& ops_;
  const TextVariables& variables_;
  size_t at_ = 0;
  std::unordered_map<std::string, SymbolId> symbols_;
  std::unordered_map<uint32_t, Value*> values_;
};

}  // namespace

std::string print(const Graph& g, const TensorType& type) {
  std::string out = fmt::format("{}[", dtype_name(type.dtype));
  for (int i = 0; i < type.shape.rank(); ++i) {
    if (i) out += ", ";
    const Dim d = type.shape[i];
    if (d.is_constant())
      out += fmt::format("{}", d.factor);
    else if (d.factor == 1)
      out += g.symbols()[d.symbol - 1].name;
    else
      out += fmt::format("{}*{}", d.factor, g.symbols()[d.symbol - 1].name);
  }
  return out + "]";
}

std::string print(const Graph& g, const Node& n) {
  std::string out;
  for (size_t i = 0; i < n.out.size(); ++i)
    out += fmt::format("{}%{}: {}", i ? ", " : "", n.out[i]->id, print(g, n.out[i]->type));
  out += fmt::format("{}{}(", n.out.empty() ? "" : " = ", n.op->name);
  bool comma = false;
  for (const Value* v : n.in) {
    out += fmt::format("{}%{}", comma ? ", " : "", v->id);
    comma = true;
  }
  for (auto& [name, value] : n.attrs.entries()) {
    out += fmt::format("{}{}={}", comma ? ", " : "", name, print_attr(value));
    comma = true;
  }
  out += ")";
  if (n.stream != kMainStream) out += fmt::format(" @{}", stream_name(n.stream));
  for (size_t i = 0; i < n.waits.size(); ++i)
    out += fmt::format("{} %{}", i ? "," : " after", n.waits[i]->result()->id);
  return out;
}

std::string print(const Graph& g) {
  std::string out = fmt::format("graph {} {{\n", quote(g.name()));
  for (auto& s : g.symbols()) out += fmt::format("  symbol {} <= {}\n", s.name, s.bound);
  for (const Node* n = g.first(); n; n = n->next) out += fmt::format("  {} from {}\n", print(g, *n), quote(n->made_by));
  out += "  return";
  for (size_t i = 0; i < g.outputs().size(); ++i)
    out += fmt::format("{} {}=%{}", i ? "," : "", g.outputs()[i].name, g.outputs()[i].value->id);
  return out + "\n}\n";
}

Result<Graph> parse_graph(std::string_view text, const OpRegistry& ops, const TextVariables& variables) {
  return Parser(text, ops, variables).run();
}

}  // namespace reprise
