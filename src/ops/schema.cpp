#include "ops/schema.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "ops/mutation.h"

namespace reprise {
namespace {

struct RoleWord {
  std::string_view word;
  OperandRole role;
};
constexpr RoleWord kRoleWords[] = {{"Tensor", OperandRole::Tensor}, {"Rows", OperandRole::Rows},
                                   {"Weight", OperandRole::Weight}, {"Table", OperandRole::Table},
                                   {"Cache", OperandRole::Cache},   {"Index", OperandRole::Index},
                                   {"Starts", OperandRole::Starts}, {"Slots", OperandRole::Slots}};

struct TraitWord {
  std::string_view word;
  uint32_t trait;
};
constexpr TraitWord kTraitWords[] = {{"commutes", op_trait::kCommutes},
                                     {"split_point", op_trait::kSplitPoint},
                                     {"input", op_trait::kInput},
                                     {"param", op_trait::kParam},
                                     {"view", op_trait::kView},
                                     {"own_bytes", op_trait::kOwnBytes},
                                     {"linear", op_trait::kLinear},
                                     {"routes", op_trait::kRoutes},
                                     {"device_form", op_trait::kDeviceForm},
                                     {"collective", op_trait::kCollective},
                                     {"columns", op_trait::kColumns},
                                     {"vectors", op_trait::kVectors},
                                     {"per_head", op_trait::kHeads},
                                     {"hint", op_trait::kHint},
                                     {"dispatches", op_trait::kDispatches},
                                     {"combines", op_trait::kCombines},
                                     {"gathers", op_trait::kGathers},
                                     {"row_scales", op_trait::kRowScales},
                                     {"attends", op_trait::kAttends},
                                     {"expands", op_trait::kExpands},
                                     {"divides", op_trait::kDivides},
                                     {"corrects", op_trait::kCorrects}};

// A cursor over a declaration line.
class DeclParser {
 public:
  explicit DeclParser(std::string_view text) : text_(text) {}

  Result<OpSchema> parse() {
    OpSchema s;
    s.decl = std::string(text_);
    ASSIGN_OR_RETURN(s.name, identifier());
    RETURN_IF_ERROR(expect("("));
    bool attributes = false;
    while (!accept(")")) {
      if (!s.operands.empty() || attributes) RETURN_IF_ERROR(expect(","));
      if (accept("*")) {
        attributes = true;
        RETURN_IF_ERROR(expect(","));
      }
      if (const auto role = attributes ? std::nullopt : accept_role()) {
        ASSIGN_OR_RETURN(auto operand, parse_operand(*role));
        if (!s.operands.empty() && s.operands.back().optional && !operand.optional)
          return fail("an optional operand must come last");
        s.operands.push_back(std::move(operand));
      } else {
        attributes = true;
        ASSIGN_OR_RETURN(auto attr, parse_attr());
        s.attrs.push_back(std::move(attr));
      }
    }
    RETURN_IF_ERROR(expect("->"));
    s.results = 0;
    int continued = 0;
    const bool list = accept("("), none = list && accept(")");
    for (bool more = !none; more; more = list && accept(",")) {
      RETURN_IF_ERROR(expect("Tensor"));
      if (accept("(")) {
        RETURN_IF_ERROR(expect(std::string{letter(continued), ')'}));
        if (continued++ != s.results) return fail("results that continue operands first");
      }
      ++s.results;
    }
    if (list && !none) RETURN_IF_ERROR(expect(")"));
    if (accept(":")) RETURN_IF_ERROR(parse_traits(s));
    if (continued != written_) return fail("one result for each operand that is written");
    skip();
    if (at_ != text_.size()) return fail("nothing more");
    RETURN_IF_ERROR(check_traits(s));
    return s;
  }

 private:
  // (a!), (b!), ... in order, as the results (a), (b), ...
  static char letter(int i) { return static_cast<char>('a' + i); }

  std::optional<OperandRole> accept_role() {
    for (const auto& [word, role] : kRoleWords)
      if (accept(word)) return role;
    return std::nullopt;
  }

  // Words behind the colon, to the end.
  Status parse_traits(OpSchema& s) {
    for (skip(); at_ < text_.size(); skip()) {
      const auto* known = std::find_if(std::begin(kTraitWords), std::end(kTraitWords),
                                       [&](const TraitWord& t) { return accept(t.word); });
      if (known == std::end(kTraitWords)) {
        std::string words;
        for (const TraitWord& t : kTraitWords) words += fmt::format("{}{}", words.empty() ? "" : ", ", t.word);
        return fail(words);
      }
      s.traits |= known->trait;
    }
    return s.traits != 0 ? Status::ok() : fail("a trait");
  }

  // What the traits say must fit the operands.
  Status check_traits(const OpSchema& s) const {
    if (s.has(op_trait::kSource) && !s.operands.empty()) return fail("no operands of an input or param");
    if (s.has(op_trait::kHint) != (s.results == 0)) return fail("no results of a hint, and of nothing else");
    if (s.has(op_trait::kView) && (s.operands.size() != 1 || s.results != 1))
      return fail("one operand and one result of a view");
    if (s.has(op_trait::kCommutes) && s.operands.size() < 2) return fail("two operands with the trait commutes");
    if (s.has(op_trait::kLinear) && !s.has(OperandRole::Weight)) return fail("a Weight with the trait linear");
    if (s.has(op_trait::kDispatches) && (s.operands.size() != 1 || s.results != 3))
      return fail("one operand and three results of an op that dispatches");
    if (s.has(op_trait::kGathers) && !(reads_with_index(s, 1) && s.attrs.empty()))
      return fail("(x, Index), no attribute and one result with the trait gathers");
    if (s.has(op_trait::kCombines) && !reads_with_index(s, 2))
      return fail("(y, weights, Index) and one result with the trait combines");
    if (s.has(op_trait::kRowScales) && s.results != 2) return fail("two results with the trait row_scales");
    if (s.has(OperandRole::Rows) && s.results != 1) return fail("one result of an op that reads Rows");
    if (s.has(op_trait::kAttends) && (s.results != 1 || (!s.has(OperandRole::Cache) && s.operands.size() < 3)))
      return fail("a Cache or (q, k, v), and one result with the trait attends");
    if (s.has(op_trait::kExpands) && !(s.has(op_trait::kAttends) && s.has(OperandRole::Weight)))
      return fail("a Weight and the trait attends with the trait expands");
    if (s.has(OperandRole::Slots) && !s.has(OperandRole::Cache)) return fail("a Cache with Slots");
    if (s.has(op_trait::kCorrects) && !s.has(OperandRole::Slots)) return fail("Slots with the trait corrects");
    return Status::ok();
  }

  // So many operands that are no indices, then an Index; all of them are always there, none is written.
  static bool reads_with_index(const OpSchema& s, size_t others) {
    if (s.operands.size() != others + 1 || s.results != 1) return false;
    for (size_t i = 0; i <= others; ++i) {
      const OperandSchema& o = s.operands[i];
      if (o.optional || o.mutated || (i < others ? o.is_index() : o.role != OperandRole::Index)) return false;
    }
    return true;
  }

  Result<OperandSchema> parse_operand(OperandRole role) {
    OperandSchema o;
    o.role = role;
    if (!o.is_index() && accept("(")) {
      RETURN_IF_ERROR(expect(std::string{letter(written_++), '!', ')'}));
      o.mutated = true;
    }
    o.optional = accept("?");
    ASSIGN_OR_RETURN(o.name, identifier());
    return o;
  }

  Result<AttrSchema> parse_attr() {
    AttrSchema a;
    if (accept("floats")) {
      a.kind = AttrSchema::Kind::Floats;
      a.default_value = std::vector<double>{};
    } else if (accept("float")) {
      a.kind = AttrSchema::Kind::Float;
      a.default_value = 0.0;
    } else if (accept("int")) {
      a.kind = AttrSchema::Kind::Int;
      a.default_value = int64_t{0};
    } else if (accept("str")) {
      a.kind = AttrSchema::Kind::Str;
      a.default_value = std::string();
    } else {
      return fail("Tensor, Index, int, float, floats or str");
    }
    ASSIGN_OR_RETURN(a.name, identifier());
    if (accept("=")) {
      a.has_default = true;
      skip();
      size_t end = at_;
      while (end < text_.size() && text_[end] != ',' && text_[end] != ')') ++end;
      const std::string value(text_.substr(at_, end - at_));
      at_ = end;
      switch (a.kind) {
        case AttrSchema::Kind::Int: a.default_value = static_cast<int64_t>(std::atoll(value.c_str())); break;
        case AttrSchema::Kind::Float: a.default_value = std::atof(value.c_str()); break;
        case AttrSchema::Kind::Str: a.default_value = value; break;
        case AttrSchema::Kind::Floats: break;  // the only default is the empty list
      }
    }
    return a;
  }

  static bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool next_is(std::string_view word) {
    skip();
    return text_.substr(at_).starts_with(word);
  }
  // A word ends where a name would: "Tensors" is not "Tensor".
  bool accept(std::string_view word) {
    if (!next_is(word)) return false;
    const size_t end = at_ + word.size();
    if (in_name(word.back()) && end < text_.size() && in_name(text_[end])) return false;
    at_ = end;
    return true;
  }
  Status expect(std::string_view word) { return accept(word) ? Status::ok() : fail(word); }
  Result<std::string> identifier() {
    skip();
    size_t end = at_;
    while (end < text_.size() && in_name(text_[end])) ++end;
    if (end == at_) return fail("a name");
    std::string name(text_.substr(at_, end - at_));
    at_ = end;
    return name;
  }
  Status fail(std::string_view expected) const {
    return invalid("op declaration \"{}\", column {}: expected {}", text_, at_ + 1, expected);
  }

  std::string_view text_;
  size_t at_ = 0;
  int written_ = 0;
};

std::string_view kind_name(AttrSchema::Kind kind) {
  switch (kind) {
    case AttrSchema::Kind::Int: return "int";
    case AttrSchema::Kind::Float: return "float";
    case AttrSchema::Kind::Str: return "str";
    case AttrSchema::Kind::Floats: return "floats";
  }
  return "?";
}

}  // namespace

size_t OpSchema::first(OperandRole role) const {
  return static_cast<size_t>(std::find_if(operands.begin(), operands.end(), [&](auto& o) { return o.role == role; }) -
                             operands.begin());
}

int OpSchema::min_operands() const {
  return static_cast<int>(std::count_if(operands.begin(), operands.end(), [](auto& o) { return !o.optional; }));
}

int OpSchema::mutated_operand() const {
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].mutated) return static_cast<int>(i);
  return -1;
}

std::vector<size_t> mutated_operands(const OpSchema& op) {
  std::vector<size_t> out;
  for (size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i].mutated) out.push_back(i);
  return out;
}

int continued_operand(const OpSchema& op, size_t result) {
  for (size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i].mutated && result-- == 0) return static_cast<int>(i);
  return -1;
}

Result<OpSchema> parse_schema(std::string_view decl) { return DeclParser(decl).parse(); }

Status check_attrs(const OpSchema& schema, Attrs& attrs) {
  for (auto& entry : attrs.entries()) {
    const std::string& name = entry.first;
    const bool known = std::any_of(schema.attrs.begin(), schema.attrs.end(), [&](auto& a) { return a.name == name; });
    if (!known) return invalid("{}: unknown attribute \"{}\"; declared: {}", schema.name, name, schema.decl);
  }
  Attrs complete;
  for (const AttrSchema& a : schema.attrs) {
    const AttrValue* v = attrs.find(a.name);
    if (!v && !a.has_default) return invalid("{}: attribute \"{}\" is missing", schema.name, a.name);
    const AttrValue& value = v ? *v : a.default_value;
    if (value.index() != static_cast<size_t>(a.kind))
      return invalid("{}: attribute \"{}\" must be of type {}", schema.name, a.name, kind_name(a.kind));
    complete.set(a.name, value);
  }
  attrs = std::move(complete);
  return Status::ok();
}

const OpSchema& OpRegistry::add(std::string_view decl, InferFn infer, std::string_view doc) {
  auto parsed = parse_schema(decl);
  CHECK(parsed.is_ok(), "{}", parsed.status().message());
  auto schema = std::make_unique<OpSchema>(std::move(*parsed));
  schema->infer = std::move(infer);
  schema->doc = std::string(doc);
  CHECK(!schemas_.contains(schema->name), "op {} is registered twice", schema->name);
  auto& slot = schemas_[schema->name];
  slot = std::move(schema);
  return *slot;
}

const OpSchema* OpRegistry::find(std::string_view name) const {
  auto it = schemas_.find(std::string(name));
  if (it == schemas_.end())
    if (const auto old = former_.find(std::string(name)); old != former_.end()) it = schemas_.find(old->second);
  return it == schemas_.end() ? nullptr : it->second.get();
}

void OpRegistry::renamed(std::string_view from, std::string_view to) {
  CHECK(!schemas_.contains(std::string(from)), "op {} has its old name still", from);
  former_[std::string(from)] = std::string(to);
}

std::vector<const OpSchema*> OpRegistry::all() const {
  std::vector<const OpSchema*> out;
  for (auto& [name, schema] : schemas_) out.push_back(schema.get());
  std::sort(out.begin(), out.end(), [](auto* a, auto* b) { return a->name < b->name; });
  return out;
}

}  // namespace reprise
