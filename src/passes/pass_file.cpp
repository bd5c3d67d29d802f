#include "passes/pass_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>

#include "base/file.h"
#include "graph/text.h"

namespace reprise {
namespace {

class FileParser {
 public:
  // `declare` takes the ops of the text; null where it may not have any.
  FileParser(std::string_view text, const OpRegistry& ops, OpRegistry* declare)
      : text_(text), ops_(ops), declare_(declare) {}

  Result<Declarations> run() {
    Declarations out;
    for (skip(); at_ < text_.size(); skip()) {
      if (declare_ && accept("op")) {
        ASSIGN_OR_RETURN(nn::FusedOp o, op());
        out.ops.push_back(std::move(o));
        continue;
      }
      ASSIGN_OR_RETURN(Rewrite r, rewrite());
      for (auto& other : out.rewrites)
        if (other.name == r.name) return fail(fmt::format("a second rewrite is named \"{}\"", r.name));
      out.rewrites.push_back(std::move(r));
    }
    if (out.ops.empty() && out.rewrites.empty()) return fail(declare_ ? "expected op or rewrite" : "expected rewrite");
    return out;
  }

 private:
  Result<Rewrite> rewrite() {
    RETURN_IF_ERROR(expect("rewrite"));
    ASSIGN_OR_RETURN(std::string name, string());
    RETURN_IF_ERROR(expect("{"));
    variables_.clear();
    Attrs attrs;
    while (accept("variable")) RETURN_IF_ERROR(variable(attrs));
    RETURN_IF_ERROR(expect("search"));
    ASSIGN_OR_RETURN(auto search, graph());
    const size_t search_end = at_;
    RETURN_IF_ERROR(expect("replace"));
    ASSIGN_OR_RETURN(auto replace, graph());
    auto made = make(std::move(name), std::move(attrs), search, replace);
    if (!made.is_ok()) {
      at_ = search_end;
      return fail(made.status().message());
    }
    RETURN_IF_ERROR(expect("}"));
    return made;
  }

  // The text after "op".
  Result<nn::FusedOp> op() {
    nn::FusedOp out;
    ASSIGN_OR_RETURN(out.decl, string());
    ASSIGN_OR_RETURN(const OpSchema schema, parse_schema(out.decl));
    if (ops_.find(schema.name)) return fail(fmt::format("op \"{}\" exists already", schema.name));
    RETURN_IF_ERROR(expect("{"));
    RETURN_IF_ERROR(expect("doc"));
    ASSIGN_OR_RETURN(out.doc, string());
    variables_.clear();
    Attrs attrs;
    while (accept("variable")) RETURN_IF_ERROR(variable(attrs));
    RETURN_IF_ERROR(expect("meaning"));
    ASSIGN_OR_RETURN(auto body, graph());
    auto made = complete(out, schema, std::move(attrs), body);
    if (!made.is_ok()) return fail(made.message());
    RETURN_IF_ERROR(expect("}"));
    nn::register_fused_op(*declare_, out);
    return out;
  }

  static Status complete(nn::FusedOp& op, const OpSchema& schema, Attrs attrs,
                         const std::shared_ptr<const Graph>& body) {
    RETURN_IF_ERROR(check_attrs(schema, attrs));
    if (schema.has(op_trait::kSource | op_trait::kView))
      return invalid("op \"{}\": a declared op computes something: it cannot be an input, a param or a view",
                     schema.name);
    nn::FusedExample e;
    std::vector<std::string> operands, outputs;
    for (auto& o : schema.operands) {
      const Node* input = body->find_input(o.name);
      if (o.optional) return invalid("op \"{}\": operands of a declared op cannot be optional", schema.name);
      if (!input) return invalid("op \"{}\": its meaning has no input named \"{}\"", schema.name, o.name);
      const std::vector<Use>& uses = input->result()->uses;
      if (o.role != OperandRole::Cache &&
          std::any_of(uses.begin(), uses.end(), [](const Use& u) { return u.declared().role == OperandRole::Cache; }))
        return invalid("op \"{}\": its meaning uses {} as a cache; declare \"Cache {}\"", schema.name, o.name, o.name);
      operands.push_back(o.name);
      e.in.push_back(input->result()->type);
    }
    if (operands.empty()) return invalid("op \"{}\" has no operands", schema.name);
    if (inputs_of(*body).size() != operands.size())
      return invalid("op \"{}\": its meaning has {} inputs, its declaration {} operands", schema.name,
                     inputs_of(*body).size(), operands.size());
    for (auto& o : body->outputs()) outputs.push_back(o.name);
    if (outputs.size() != static_cast<size_t>(schema.results))
      return invalid("op \"{}\": its meaning returns {} values, its declaration {}", schema.name, outputs.size(),
                     schema.results);
    e.symbols = body->symbols();
    e.attrs = attrs;
    op.meaning = meaning(body, std::move(attrs), std::move(operands), std::move(outputs));
    op.examples = {std::move(e)};
    return Status::ok();
  }

  Status variable(Attrs& attrs) {
    RETURN_IF_ERROR(expect("$"));
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    if (name.empty()) return fail("expected the variable's name");
    if (variables_.contains(name)) return fail(fmt::format("variable ${} is declared twice", name));
    RETURN_IF_ERROR(expect("="));
    skip();
    AttrValue value;
    if (at_ < text_.size() && text_[at_] == '"') {
      ASSIGN_OR_RETURN(value, string());
    } else {
      ASSIGN_OR_RETURN(value, number());
    }
    for (auto& [other, taken] : attrs.entries())
      if (taken == value) return fail(fmt::format("variables ${} and ${} need different examples", other, name));
    attrs.set(name, value);
    variables_[name] = std::move(value);
    return Status::ok();
  }

  // A whole number is an int, anything with a point or an exponent a float.
  Result<AttrValue> number() {
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    int64_t whole = 0;
    double real = 0;
    auto as_int = std::from_chars(begin, end, whole);
    auto as_real = std::from_chars(begin, end, real);
    if (as_real.ec != std::errc()) return fail("expected a number or a string");
    at_ = static_cast<size_t>(as_real.ptr - text_.data());
    if (as_int.ec == std::errc() && as_int.ptr == as_real.ptr) return AttrValue(whole);
    return AttrValue(real);
  }

  // Everything but the graph is blanked out, so that lines and columns of its parser are those of the file.
  Result<std::shared_ptr<const Graph>> graph() {
    skip();
    const size_t begin = at_;
    size_t end = begin;
    bool quoted = false, comment = false;
    int open = 0;
    for (; end < text_.size(); ++end) {
      const char c = text_[end];
      if (comment)
        comment = c != '\n';
      else if (quoted && c == '\\')
        ++end;
      else if (c == '"')
        quoted = !quoted;
      else if (quoted)
        continue;
      else if (c == '#')
        comment = true;
      else if (c == '{')
        ++open;
      else if (c == '}' && --open <= 0)
        break;
    }
    std::string alone(text_.substr(0, std::min(end + 1, text_.size())));
    for (size_t i = 0; i < begin; ++i)
      if (alone[i] != '\n') alone[i] = ' ';
    ASSIGN_OR_RETURN(Graph g, parse_graph(alone, ops_, variables_));
    for (const Node* n = g.first(); n; n = n->next)
      if (n->is_param()) return fail("a rewrite takes weights as inputs, not as param");
    at_ = end + 1;
    return std::make_shared<const Graph>(std::move(g));
  }

  static std::vector<std::string> inputs_of(const Graph& g) {
    std::vector<std::string> names;
    for (const Node* n = g.first(); n; n = n->next)
      if (n->is_input()) names.push_back(n->attrs.text("name"));
    return names;
  }

  static Result<Rewrite> make(std::string name, Attrs attrs, const std::shared_ptr<const Graph>& search,
                              const std::shared_ptr<const Graph>& replace) {
    Rewrite r;
    r.name = std::move(name);
    nn::FusedExample e;
    e.symbols = search->symbols();
    const std::vector<std::string> inputs = inputs_of(*search);
    for (auto& input : inputs) e.in.push_back(search->find_input(input)->result()->type);
    e.attrs = attrs;
    r.operands = inputs.size();
    r.examples = {std::move(e)};
    for (auto& input : inputs_of(*replace))
      if (std::find(inputs.begin(), inputs.end(), input) == inputs.end())
        return invalid("rewrite \"{}\": the replacement's input \"{}\" is not one of the search graph", r.name, input);
    std::vector<std::string> outputs;
    for (auto& o : search->outputs()) outputs.push_back(o.name);
    if (outputs.empty()) return invalid("rewrite \"{}\": the search graph returns nothing", r.name);
    bool same = outputs.size() == replace->outputs().size();
    for (auto& o : replace->outputs())
      same = same && std::find(outputs.begin(), outputs.end(), o.name) != outputs.end();
    if (!same) return invalid("rewrite \"{}\": both graphs must return {}", r.name, fmt::join(outputs, ", "));
    r.search = meaning(search, attrs, inputs, outputs);
    r.replace = meaning(replace, attrs, inputs, outputs);
    return r;
  }

  // Repeats the graph's calls on other operands, with the variables' present values.
  static nn::Meaning meaning(std::shared_ptr<const Graph> graph, Attrs example, std::vector<std::string> inputs,
                             std::vector<std::string> outputs) {
    return [=](std::span<const Tensor> in, const Attrs& attrs) {
      std::unordered_map<const Value*, Tensor> value;
      for (const Node* n = graph->first(); n; n = n->next) {
        if (n->is_input()) {
          const auto at = std::find(inputs.begin(), inputs.end(), n->attrs.text("name")) - inputs.begin();
          value[n->result()] = in[static_cast<size_t>(at)];
          continue;
        }
        std::vector<Tensor> operands;
        for (const Value* v : n->in) operands.push_back(value.at(v));
        Attrs actual = n->attrs;
        for (auto& [name, v] : actual.entries())
          for (auto& [variable, shown] : example.entries())
            if (v == shown) {
              v = *attrs.find(variable);
              break;
            }
        const std::vector<Tensor> out = in[0].tracer()->call(n->op->name, std::move(operands), std::move(actual));
        for (size_t i = 0; i < n->out.size(); ++i) value[n->result(i)] = out[i];
      }
      std::vector<Tensor> results;
      for (auto& name : outputs)
        for (auto& o : graph->outputs())
          if (o.name == name) results.push_back(value.at(o.value));
      return results;
    };
  }

  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#')
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      else if (std::isspace(static_cast<unsigned char>(text_[at_])))
        ++at_;
      else
        break;
    }
  }
  bool accept(std::string_view word) {
    skip();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  Status expect(std::string_view word) { return accept(word) ? Status::ok() : fail(fmt::format("expected {}", word)); }
  Result<std::string> string() {
    RETURN_IF_ERROR(expect("\""));
    const size_t end = text_.find_first_of("\"\n", at_);
    if (end == std::string_view::npos || text_[end] != '"') return fail("the string does not end");
    std::string out(text_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }
  Status fail(std::string_view what) const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t newline = before.rfind('\n');
    return invalid("{}, line {}, column {}: {}", declare_ ? "declarations" : "pass file", line,
                   newline == std::string_view::npos ? before.size() + 1 : before.size() - newline, what);
  }

  std::string_view text_;
  const OpRegistry& ops_;
  OpRegistry* declare_;
  size_t at_ = 0;
  TextVariables variables_;
};

}  // namespace

Result<PassFile> PassFile::read(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, read_file(path));
  return PassFile{path, std::move(text)};
}

Result<std::vector<Rewrite>> parse_rewrites(std::string_view text, const OpRegistry& ops) {
  ASSIGN_OR_RETURN(Declarations found, FileParser(text, ops, nullptr).run());
  // A pattern that cannot work is found here and not when it first meets a model.
  for (auto& r : found.rewrites) RETURN_IF_ERROR(pass_from(r, ops).status());
  return std::move(found.rewrites);
}

Result<Declarations> parse_declarations(std::string_view text, OpRegistry& ops) {
  ASSIGN_OR_RETURN(Declarations found, FileParser(text, ops, &ops).run());
  for (auto& op : found.ops) RETURN_IF_ERROR(pass_from(rewrite_from(op, ops), ops).status());
  for (auto& r : found.rewrites) RETURN_IF_ERROR(pass_from(r, ops).status());
  return found;
}

}  // namespace reprise
