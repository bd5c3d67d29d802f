#include "passes/house_passes.h"

namespace reprise {
namespace {

constexpr const char* kAddLora = "add_lora";
constexpr const char* kBeforeSlices = "lora_before_slices";
constexpr std::string_view kWeight = ".weight";

// Why a linear takes no adapters; empty where it does. PEFT's names of modules are those of the parameters.
std::string refusal(const Node& n) {
  if (!n.in[1]->def->is_param()) return "its weight is not a parameter";
  const std::string& name = n.in[1]->def->attrs.text("name");
  if (!name.ends_with(kWeight)) return fmt::format("{} is not named as the weight of a module", name);
  if (name == "lm_head.weight") return "the head has no adapters";
  for (const Use& u : n.in[1]->uses)
    if (u.declared().role == OperandRole::Table) return fmt::format("{} is the table of tokens as well", name);
  if (n.result()->type.dtype != n.in[0]->type.dtype) return "its result is wider than its input";
  for (const Use& u : n.result()->uses)
    if (u.user->op->has(op_trait::kRoutes)) return "its result chooses experts";
  return {};
}

class Adder {
 public:
  Adder(Graph& g, PassContext& c, const LoraSlots& slots) : g_(g), c_(c), slots_(slots) {}

  Status run() {
    const Node* ids = g_.find_input(slots_.ids);
    if (!ids) return error(Code::Internal, "the step has no input \"{}\", by which rows name adapters", slots_.ids);
    ids_ = ids->result();
    for (Node* n = g_.first(); n; n = n->next) {
      if (n->op != linear_) continue;
      c_.count_tried();
      if (std::string why = refusal(*n); !why.empty()) {
        c_.refuse(*n, std::move(why));
        continue;
      }
      RETURN_IF_ERROR(add(n));
    }
    return Status::ok();
  }

 private:
  Result<Value*> input(const std::string& name, TensorType type, Node* before) {
    if (const Node* known = g_.find_input(name)) return known->result();
    ASSIGN_OR_RETURN(Node * made, g_.add_source(*input_, name, type, kAddLora, before));
    return made->result();
  }

  Status add(Node* linear) {
    Value *x = linear->in[0], *y = linear->result();
    const std::string& weight = linear->in[1]->def->attrs.text("name");
    const std::string name = std::string(kLoraPrefix) + weight.substr(0, weight.size() - kWeight.size());
    const Dim slots(slots_.count), rank(slots_.rank), width = x->type.shape[1], columns = y->type.shape[1];
    Node* place = linear->next;
    ASSIGN_OR_RETURN(Value * a, input(name + ".a", {x->type.dtype, {slots, rank, width}}, place));
    ASSIGN_OR_RETURN(Value * b, input(name + ".b", {y->type.dtype, {slots, rank, columns}}, place));
    ASSIGN_OR_RETURN(Value * ranks, input(name + ".ranks", {DType::I32, {slots}}, place));
    ASSIGN_OR_RETURN(Value * scales, input(name + ".scales", {DType::F32, {slots}}, place));
    ASSIGN_OR_RETURN(Node * h, g_.add(*shrink_, {x, ids_, a, ranks, scales}, {}, kAddLora, place));
    ASSIGN_OR_RETURN(Node * sum, g_.add(*expand_, {y, h->result(), ids_, b, ranks}, {}, kAddLora, place));
    g_.replace_all_uses(y, sum->result());
    g_.set_operand(sum, 0, y);
    ++c_.report().matched;
    c_.applied(*sum, fmt::format("adapters of {} in {} slots of rank {}", weight, slots_.count, slots_.rank));
    return Status::ok();
  }

  Graph& g_;
  PassContext& c_;
  const LoraSlots& slots_;
  Value* ids_ = nullptr;
  const OpSchema* input_ = c_.ops().find("input");
  const OpSchema* linear_ = c_.ops().find("linear");
  const OpSchema* shrink_ = c_.ops().find("lora_shrink");
  const OpSchema* expand_ = c_.ops().find("lora_expand");
};

class Mover {
 public:
  Mover(Graph& g, PassContext& c) : g_(g), c_(c) {}

  Status run() {
    for (Node* n = g_.first(); n; n = n->next) {
      if (!n->op->has(op_trait::kLinear)) continue;
      const std::vector<Part> parts = parts_of(*n);
      if (parts.empty()) continue;
      c_.count_tried();
      if (parts.size() != n->result()->uses.size() || !n->result()->outputs.empty()) {
        c_.refuse(*n, fmt::format("{} of {} readers are slices that adapters are added to", parts.size(),
                                  n->result()->uses.size()));
        continue;
      }
      if (c_.may_apply(*n)) RETURN_IF_ERROR(move(n, parts));
    }
    return Status::ok();
  }

 private:
  struct Part {
    Node *slice = nullptr, *expand = nullptr;
  };

  std::vector<Part> parts_of(const Node& linear) const {
    std::vector<Part> out;
    for (const Use& u : linear.result()->uses) {
      if (u.user->op != slice_) continue;
      const auto& uses = u.user->result()->uses;
      if (uses.size() == 1 && uses[0].user->op == expand_ && uses[0].operand == 0)
        out.push_back({u.user, uses[0].user});
    }
    return out;
  }

  // What the products are made of besides the linear's own input comes before it.
  void bring_forward(const Node& n, Node* place) {
    for (Value* v : n.in)
      if (v->def->is_input() && v->def->attrs.text("name").starts_with(kLoraPrefix)) g_.move_before(v->def, place);
  }

  Status move(Node* linear, const std::vector<Part>& parts) {
    Value* sum = linear->result();
    Node* place = linear->next;
    for (const Part& p : parts) {
      Node* shrink = p.expand->in[1]->def;
      bring_forward(*p.expand, linear);
      bring_forward(*shrink, linear);
      g_.move_before(shrink, linear);
      Attrs attrs{{"begin", p.slice->attrs.integer("begin")}};
      std::vector<Value*> in = p.expand->in;
      in[0] = sum;
      ASSIGN_OR_RETURN(Node * added, g_.add(*expand_, std::move(in), std::move(attrs), kBeforeSlices, place));
      sum = added->result();
    }
    for (const Part& p : parts) {
      g_.set_operand(p.slice, 0, sum);
      g_.replace_all_uses(p.expand->result(), p.slice->result());
      g_.erase(p.expand);
    }
    c_.applied(*linear, fmt::format("{} adapters are added before the slices", parts.size()));
    return Status::ok();
  }

  Graph& g_;
  PassContext& c_;
  const OpSchema* slice_ = c_.ops().find("slice");
  const OpSchema* expand_ = c_.ops().find("lora_expand");
};

}  // namespace

Pass add_lora(LoraSlots slots) {
  return {kAddLora, true, [slots](Graph& g, PassContext& c) { return Adder(g, c, slots).run(); }};
}

Pass lora_before_slices() {
  return {kBeforeSlices, false, [](Graph& g, PassContext& c) { return Mover(g, c).run(); }};
}

}  // namespace reprise
