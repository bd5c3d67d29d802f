#include <algorithm>
#include <set>

#include "passes/house_passes.h"
#include "passes/pattern.h"

namespace reprise {
namespace {

constexpr const char* kPackLinears = "pack_parallel_linears";

bool is_own_param(const Value* v) { return v->def->is_param() && v->uses.size() == 1 && v->outputs.empty(); }

// Operands from the weight on belong to its rows, so rows of several such ops can lie one after another; what stands
// before it must be the same for all.
bool is_linear(const OpSchema& op) { return op.has(op_trait::kLinear); }
bool is_grouped(const OpSchema& op) { return op.has(OperandRole::Starts); }

// Which size of a parameter counts the rows of a matrix: a stack has its matrices in front.
int row_size(const TensorType& type) { return type.shape.rank() == 3 ? 1 : 0; }

size_t weight_operand(const OpSchema& op) { return op.first(OperandRole::Weight); }

// What two linears of one input must share to be joined: nothing when they share it, else how b differs from a.
std::string difference(const Node& a, const Node& b) {
  if (b.op != a.op) return fmt::format("it is a {}, and the first linear of its input a {}", b.op->name, a.op->name);
  for (const auto& [name, value] : a.attrs.entries())
    if (const AttrValue* other = b.attrs.find(name); !other || *other != value)
      return fmt::format("its {} is {}, and that of the first linear of its input {}", name,
                         other ? show(*other) : "absent", show(value));
  for (size_t i = 1; i < weight_operand(*a.op); ++i)
    if (b.in[i] != a.in[i])
      return fmt::format("its {} is not that of the first linear of its input", a.op->operands[i].name);
  return {};
}

// "a.b.q_proj.weight", "a.b.k_proj.weight" -> "a.b.qk_proj.weight"; "gate", "up" -> "gate_up".
std::string packed_name(const std::vector<std::string>& parts) {
  struct Path {
    std::string scope, module, leaf;
  };
  std::vector<Path> paths;
  for (const std::string& name : parts) {
    const size_t leaf = name.rfind('.');
    if (leaf == std::string::npos) return fmt::format("{}", fmt::join(parts, "+"));
    const size_t module = name.rfind('.', leaf - 1);
    const size_t begin = module == std::string::npos ? 0 : module + 1;
    paths.push_back({name.substr(0, begin), name.substr(begin, leaf - begin), name.substr(leaf)});
  }
  constexpr std::string_view kEnding = "_proj";
  bool alike = true, ending = true, letters = true;
  for (const Path& p : paths) {
    alike = alike && p.scope == paths[0].scope && p.leaf == paths[0].leaf;
    ending = ending && p.module.ends_with(kEnding);
    letters = letters && p.module.size() == kEnding.size() + 1;
  }
  if (!alike) return fmt::format("{}", fmt::join(parts, "+"));
  std::string module;
  for (const Path& p : paths) {
    if (!module.empty() && !(ending && letters)) module += "_";
    module += ending ? p.module.substr(0, p.module.size() - kEnding.size()) : p.module;
  }
  return paths[0].scope + module + (ending ? std::string(kEnding) : "") + paths[0].leaf;
}

class Packer {
 public:
  Packer(Graph& g, PassContext& c) : g_(g), c_(c), slice_(*c.ops().find("slice")), param_(*c.ops().find("param")) {}

  Status run() {
    for (Node* n = g_.first(); n;) {
      Node* next = n->next;
      if (n->op == quantize_) explain_unequal(*n);
      if (is_linear(*n->op) && n->made_by != kPackLinears) {
        explain_unlike(*n);
        const std::vector<Node*> group = parallel(n);
        if (group.size() > 1 && group[0] == n) {
          c_.count_tried();
          if (Status s = check(group); !s.is_ok()) {
            c_.refuse(*n, s.message());
          } else if (c_.may_apply(*n)) {
            ASSIGN_OR_RETURN(Node * wide, pack(group));
            next = wide->next;  // what followed n may have been a parameter of the group
          }
        }
      }
      n = next;
    }
    return Status::ok();
  }

 private:
  // Linears that could have been parallel, had their inputs been quantised with the same numbers.
  void explain_unequal(const Node& n) {
    std::vector<const Node*> all;
    for (const Use& u : n.in[0]->uses)
      if (u.user->op == n.op && u.operand == 0) all.push_back(u.user);
    const auto earlier = [&](const Node* other) { return other->result()->id < n.result()->id; };
    if (all.size() < 2 || std::any_of(all.begin(), all.end(), earlier)) return;
    std::string scales;
    for (const Node* other : all)
      scales += fmt::format("{}{}", scales.empty() ? "" : ", ", other->in[1]->def->attrs.text("name"));
    c_.count_tried();
    c_.refuse(n, fmt::format("the linears that read %{} have {} different input scales or offsets ({})", n.in[0]->id,
                             all.size(), scales));
  }

  // Linears of n's input that cannot be joined with it; asked once per input, of the first that is seen.
  void explain_unlike(const Node& n) {
    const bool grouped = is_grouped(*n.op);
    if (!seen_.emplace(n.in[0], grouped).second) return;
    for (const Use& u : n.in[0]->uses) {
      const Node& other = *u.user;
      if (u.operand != 0 || !is_linear(*other.op) || is_grouped(*other.op) != grouped || other.made_by == kPackLinears)
        continue;
      if (std::string reason = difference(n, other); !reason.empty()) {
        c_.count_tried();
        c_.refuse(other, std::move(reason));
      }
    }
  }

  // All linears of n's input that are like it, in program order.
  std::vector<Node*> parallel(const Node* n) const {
    std::vector<Node*> group;
    for (const Use& u : n->in[0]->uses)
      if (u.operand == 0 && is_linear(*u.user->op) && u.user->made_by != kPackLinears &&
          difference(*n, *u.user).empty())
        group.push_back(u.user);
    std::sort(group.begin(), group.end(), [](const Node* a, const Node* b) {
      for (const Node* x = a->next; x; x = x->next)
        if (x == b) return true;
      return false;
    });
    group.erase(std::unique(group.begin(), group.end()), group.end());
    return group;
  }

  static int64_t columns(const Node& n) { return n.result()->type.shape[1].factor; }

  Status check(const std::vector<Node*>& group) const {
    const Node& first = *group[0];
    const size_t weight = weight_operand(*first.op);
    int64_t total = 0;
    for (const Node* n : group) {
      if (n->in.size() != first.in.size()) return invalid("some have a bias and some have none");
      for (size_t i = weight; i < n->in.size(); ++i) {
        if (!is_own_param(n->in[i]))
          return invalid("%{}, operand {} of %{}, is not a parameter of its own", n->in[i]->id, i, n->result()->id);
        if (n->in[i]->type.dtype != first.in[i]->type.dtype)
          return invalid("%{} and %{} have parameters of different types", first.result()->id, n->result()->id);
      }
      total += columns(*n);
    }
    std::vector<TensorType> in = first.in_types();
    for (size_t i = weight; i < in.size(); ++i) {
      Dim& rows = in[i].shape[row_size(in[i])];  // of one matrix, or of all
      rows = Dim(rows.factor / columns(first) * total);
    }
    RETURN_IF_ERROR(c_.has_kernel(*first.op, in, first.attrs));
    const TensorType wide{first.result()->type.dtype, {first.result()->type.shape[0], Dim(total)}};
    int64_t begin = 0;
    for (const Node* n : group) {
      RETURN_IF_ERROR(c_.has_kernel(slice_, std::span(&wide, 1), {{"begin", begin}, {"size", columns(*n)}}));
      begin += columns(*n);
    }
    return Status::ok();
  }

  // Parts of operand i of all of them, one after another; of stacks so for every matrix.
  Result<std::vector<ParamPart>> joined_parts(const std::vector<Node*>& group, size_t i,
                                              const std::vector<std::string>& names) {
    std::vector<ParamPart> out;
    if (!is_grouped(*group[0]->op)) {
      for (size_t n = 0; n < group.size(); ++n)
        for (ParamPart& part : c_.take_parts(names[n], group[n]->in[i]->type.shape)) out.push_back(std::move(part));
      return out;
    }
    std::vector<std::vector<ParamPart>> parts;
    for (size_t n = 0; n < group.size(); ++n) {
      parts.push_back(c_.take_parts(names[n], group[n]->in[i]->type.shape));
      if (parts[n].size() != parts[0].size())
        return error(Code::Internal, "{} and {} are not made of as many parts", names[0], names[n]);
    }
    for (size_t part = 0; part < parts[0].size(); ++part)
      for (auto& of_one : parts) out.push_back(std::move(of_one[part]));
    return out;
  }

  Result<Node*> pack(const std::vector<Node*>& group) {
    Node* first = group[0];
    const auto weight = static_cast<ptrdiff_t>(weight_operand(*first->op));
    std::vector<Value*> in(first->in.begin(), first->in.begin() + weight);
    for (size_t i = in.size(); i < first->in.size(); ++i) {
      DerivedParam packed;
      TensorType type = first->in[i]->type;
      int64_t total = 0;
      std::vector<std::string> names;
      for (const Node* n : group) {
        names.push_back(n->in[i]->def->attrs.text("name"));
        total += n->in[i]->type.shape[row_size(type)].factor;
      }
      ASSIGN_OR_RETURN(packed.parts, joined_parts(group, i, names));
      type.shape[row_size(type)] = Dim(total);
      packed.name = packed_name(names);
      ASSIGN_OR_RETURN(Node * param, g_.add_source(param_, packed.name, type, kPackLinears, first));
      in.push_back(param->result());
      c_.derived().push_back(std::move(packed));
    }
    ASSIGN_OR_RETURN(Node * wide, g_.add(*first->op, in, first->attrs, kPackLinears, first));
    int64_t begin = 0;
    for (Node* n : group) {
      ASSIGN_OR_RETURN(Node * part, g_.add(slice_, {wide->result()}, {{"begin", begin}, {"size", columns(*n)}},
                                           kPackLinears, first));
      begin += columns(*n);
      g_.replace_all_uses(n->result(), part->result());
    }
    c_.applied(*wide, fmt::format("{} linears in one", group.size()));
    for (Node* n : group) {
      const std::vector<Value*> params(n->in.begin() + weight, n->in.end());
      g_.erase(n);
      for (Value* v : params) g_.erase(v->def);
    }
    return wide;
  }

  Graph& g_;
  PassContext& c_;
  const OpSchema& slice_;
  const OpSchema& param_;
  const OpSchema* quantize_ = c_.ops().find("quantize_static");
  std::set<std::pair<const Value*, bool>> seen_;  // inputs whose linears were compared, and whether stacks
};

}  // namespace

Pass pack_parallel_linears() {
  return {kPackLinears, false, [](Graph& g, PassContext& c) { return Packer(g, c).run(); }};
}

}  // namespace reprise
