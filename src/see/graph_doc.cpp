#include "see/graph_doc.h"

#include <algorithm>
#include <charconv>

#include "graph/graph.h"

namespace reprise::see {
namespace {

// The digits of the layer number in a name.
std::pair<size_t, size_t> layer_digits(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    if (!part.empty() && part.size() < 6 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return {begin, end};
    begin = end + 1;
  }
  return {0, 0};
}

// A node belongs to the layer of the parameter or cache that it uses, else to that of its latest operand.
Status finish_doc(GraphDoc& doc) {
  for (size_t i = 0; i < doc.nodes.size(); ++i) {
    DocNode& n = doc.nodes[i];
    if (n.is_source()) n.layer = layer_in(n.name());
    bool named = false;
    for (uint32_t id : n.in) {
      const auto it = doc.def.find(id);
      if (it == doc.def.end()) return invalid("%{} is used before it is defined", id);
      const DocNode& from = doc.nodes[it->second.node];
      if (from.is_param() || (from.is_source() && from.layer != DocNode::kNoLayer)) {
        n.layer = named ? std::max(n.layer, from.layer) : from.layer;
        named = true;
      } else if (!named && !from.is_source()) {
        n.layer = std::max(n.layer, from.layer);
      }
    }
    for (uint32_t id : n.waits)
      if (!doc.def.contains(id)) return invalid("%{} is waited for before it is defined", id);
    for (size_t r = 0; r < n.out.size(); ++r)
      if (!doc.def.emplace(n.out[r].id, GraphDoc::Definition{i, r}).second)
        return invalid("%{} is defined twice", n.out[r].id);
  }
  for (const auto& [name, id] : doc.outputs)
    if (!doc.def.contains(id)) return invalid("output {} is %{}, which is not defined", name, id);
  return Status::ok();
}

// Reads the text form line by line; unlike graph/text.h it needs no schemas.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<GraphDoc> run() {
    GraphDoc doc;
    RETURN_IF_ERROR(expect("graph"));
    ASSIGN_OR_RETURN(doc.name, string());
    RETURN_IF_ERROR(expect("{"));
    while (accept("symbol ")) {
      ASSIGN_OR_RETURN(std::string name, word());
      RETURN_IF_ERROR(expect("<="));
      ASSIGN_OR_RETURN(int64_t bound, integer());
      doc.symbols.emplace_back(name, bound);
    }
    while (peek() == '%' || at_hint()) RETURN_IF_ERROR(node(doc));
    RETURN_IF_ERROR(expect("return"));
    while (peek() != '}') {
      ASSIGN_OR_RETURN(std::string name, word());
      RETURN_IF_ERROR(expect("="));
      ASSIGN_OR_RETURN(uint32_t id, value());
      doc.outputs.emplace_back(name, id);
      if (!accept(",")) break;
    }
    RETURN_IF_ERROR(expect("}"));
    if (const Status s = finish_doc(doc); !s.is_ok()) return s.at("IR text");
    return doc;
  }

 private:
  bool at_hint() {
    return std::isalpha(static_cast<unsigned char>(peek())) && !text_.substr(at_).starts_with("return");
  }

  Status node(GraphDoc& doc) {
    DocNode n;
    while (peek() == '%') {  // none of a hint
      DocValue v;
      ASSIGN_OR_RETURN(v.id, value());
      RETURN_IF_ERROR(expect(":"));
      skip();
      const size_t end = text_.find(']', at_);
      if (end == std::string_view::npos) return fail("expected a type");
      v.type = std::string(text_.substr(at_, end + 1 - at_));
      at_ = end + 1;
      n.out.push_back(std::move(v));
      if (!accept(",")) break;
    }
    if (!n.out.empty()) RETURN_IF_ERROR(expect("="));
    ASSIGN_OR_RETURN(n.op, word());
    RETURN_IF_ERROR(expect("("));
    while (peek() != ')') {
      if (peek() == '%') {
        ASSIGN_OR_RETURN(uint32_t id, value());
        n.in.push_back(id);
      } else {
        ASSIGN_OR_RETURN(std::string name, word());
        RETURN_IF_ERROR(expect("="));
        ASSIGN_OR_RETURN(std::string printed, attribute());
        n.attrs.emplace_back(std::move(name), std::move(printed));
      }
      if (!accept(",")) break;
    }
    RETURN_IF_ERROR(expect(")"));
    if (accept("@")) {
      ASSIGN_OR_RETURN(n.stream, word());
    }
    if (accept("after")) {
      do {
        ASSIGN_OR_RETURN(uint32_t id, value());
        n.waits.push_back(id);
      } while (accept(","));
    }
    if (accept("from")) {
      ASSIGN_OR_RETURN(n.made_by, string());
    }
    doc.nodes.push_back(std::move(n));
    return Status::ok();
  }

  // An attribute's value as it is written.
  Result<std::string> attribute() {
    skip();
    const size_t begin = at_;
    if (peek() == '"') {
      RETURN_IF_ERROR(string().status());
    } else if (peek() == '[') {
      at_ = std::min(text_.find(']', at_), text_.size() - 1) + 1;
    } else {
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != ')' && text_[at_] != '\n') ++at_;
    }
    if (at_ == begin) return fail("expected a value");
    return std::string(text_.substr(begin, at_ - begin));
  }

  Result<uint32_t> value() {
    RETURN_IF_ERROR(expect("%"));
    ASSIGN_OR_RETURN(int64_t id, integer());
    return static_cast<uint32_t>(id);
  }
  Result<int64_t> integer() {
    skip();
    int64_t v = 0;
    const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (problem != std::errc() || v < 0) return fail("expected a number");
    at_ = static_cast<size_t>(end - text_.data());
    return v;
  }
  Result<std::string> word() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    if (at_ == begin) return fail("expected a name");
    return std::string(text_.substr(begin, at_ - begin));
  }
  Result<std::string> string() {
    RETURN_IF_ERROR(expect("\""));
    std::string out;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      out += text_[at_];
    }
    if (at_ >= text_.size()) return fail("the string does not end");
    ++at_;
    return out;
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
    const auto before = text_.substr(0, std::min(at_, text_.size()));
    return invalid("IR text, line {}: {}", 1 + std::count(before.begin(), before.end(), '\n'), what);
  }

  std::string_view text_;
  size_t at_ = 0;
};

const OrderedJson* field(const OrderedJson& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  return it == j.end() ? nullptr : &*it;
}

std::string text_field(const OrderedJson& j, const char* key) {
  const OrderedJson* f = field(j, key);
  return f && f->is_string() ? f->get<std::string>() : std::string();
}

// As the IR prints it, so that a JSON dump equals a text dump.
std::string attribute_text(const OrderedJson& j) {
  if (j.is_string()) {
    std::string out = "\"";
    for (char c : j.get<std::string>()) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + "\"";
  }
  if (j.is_number_float()) return fmt::format("{}", j.get<double>());
  if (!j.is_array()) return j.dump();
  std::string out = "[";
  for (const auto& x : j) out += fmt::format("{}{}", out.size() > 1 ? ", " : "", x.is_number() ? x.get<double>() : 0);
  return out + "]";
}

Result<uint32_t> value_number(const OrderedJson* j, std::string_view what) {
  if (!j || !j->is_number_unsigned()) return invalid("{} is not a value's number", what);
  return j->get<uint32_t>();
}

}  // namespace

std::string DocNode::name() const {
  for (const auto& [key, value] : attrs)
    if (key == "name" && value.size() >= 2) return value.substr(1, value.size() - 2);
  return {};
}

int layer_in(std::string_view name) {
  const auto [begin, end] = layer_digits(name);
  int layer = DocNode::kNoLayer;
  std::from_chars(name.data() + begin, name.data() + end, layer);
  return layer;
}

std::string without_layer(const std::string& name) {
  const auto [begin, end] = layer_digits(name);
  return begin == end ? name : name.substr(0, begin) + "*" + name.substr(end);
}

Result<GraphDoc> doc_from_text(std::string_view text) { return Reader(text).run(); }

Result<GraphDoc> doc_from_json(const OrderedJson& json) {
  const OrderedJson* nodes = field(json, "nodes");
  if (!nodes || !nodes->is_array()) return invalid("\"nodes\" is missing: not a dump of `reprise graph dump`");
  GraphDoc doc;
  doc.name = text_field(json, "graph");
  if (const OrderedJson* symbols = field(json, "symbols"); symbols && symbols->is_array())
    for (const auto& s : *symbols) {
      const OrderedJson* bound = field(s, "bound");
      if (!bound || !bound->is_number_integer()) return invalid("symbol {} has no bound", text_field(s, "name"));
      doc.symbols.emplace_back(text_field(s, "name"), bound->get<int64_t>());
    }
  for (const auto& j : *nodes) {
    DocNode n;
    n.op = text_field(j, "op");
    n.made_by = text_field(j, "made_by");
    n.stream = text_field(j, "stream");
    if (!n.stream.empty() && n.stream != stream_name(kSideStream) && n.stream != stream_name(kPrefetchStream))
      return invalid("{} is on stream \"{}\"; allowed: \"side\", \"prefetch\", or none", n.op, n.stream);
    if (const OrderedJson* after = field(j, "after"); after && after->is_array())
      for (const auto& id : *after) {
        ASSIGN_OR_RETURN(uint32_t w, value_number(&id, fmt::format("after of {}", n.op)));
        n.waits.push_back(w);
      }
    if (n.op.empty()) return invalid("node {} has no op", doc.nodes.size());
    for (const char* key : {"results", "operands"}) {
      const OrderedJson* list = field(j, key);
      if (!list || !list->is_array()) return invalid("node {} ({}) has no {}", doc.nodes.size(), n.op, key);
      for (const auto& v : *list) {
        ASSIGN_OR_RETURN(uint32_t id, value_number(field(v, "value"), fmt::format("{} of {}", key, n.op)));
        if (*key == 'r')
          n.out.push_back({id, text_field(v, "type")});
        else
          n.in.push_back(id);
      }
    }
    if (const OrderedJson* attrs = field(j, "attrs"); attrs && attrs->is_object())
      for (const auto& [key, value] : attrs->items()) n.attrs.emplace_back(key, attribute_text(value));
    doc.nodes.push_back(std::move(n));
  }
  if (const OrderedJson* outputs = field(json, "outputs"); outputs && outputs->is_array())
    for (const auto& o : *outputs) {
      ASSIGN_OR_RETURN(uint32_t id, value_number(field(o, "value"), "an output"));
      doc.outputs.emplace_back(text_field(o, "name"), id);
    }
  RETURN_IF_ERROR(finish_doc(doc));
  return doc;
}

Result<GraphDoc> doc_from(std::string_view text, std::string_view source) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return invalid("{}: empty; expected IR text or a JSON dump", source);
  if (text[first] != '{') {
    auto doc = doc_from_text(text);
    return doc.is_ok() ? std::move(doc) : Result<GraphDoc>(doc.status().at(std::string(source)));
  }
  ASSIGN_OR_RETURN(const OrderedJson json, parse_ordered_json(text, source));
  auto doc = doc_from_json(json);
  return doc.is_ok() ? std::move(doc) : Result<GraphDoc>(doc.status().at(std::string(source)));
}

}  // namespace reprise::see
