#include <algorithm>

#include "passes/house_passes.h"

namespace reprise {
namespace {

constexpr const char* kDivisorsName = "load_quant_divisors";

class Divisors {
 public:
  Divisors(Graph& g, PassContext& c) : g_(g), c_(c) {}

  Status run() {
    const OpSchema *fused = c_.ops().find("add_rms_norm_quant_static"),
                   *divided = c_.ops().find("add_rms_norm_quant_divided");
    for (Node* n = g_.first(); n;) {
      Node* next = n->next;
      if (fused && divided && n->op == fused) RETURN_IF_ERROR(visit(n, *divided));
      n = next;
    }
    if (replaced_.empty()) return Status::ok();
    g_.remove_dead();
    std::erase_if(c_.derived(), [&](const DerivedParam& p) {
      return std::find(replaced_.begin(), replaced_.end(), p.name) != replaced_.end() && !g_.find_param(p.name);
    });
    return Status::ok();
  }

 private:
  // How the loader makes a number per column of what it makes now, or null.
  const DerivedParam* parts_of(const Value* v, std::initializer_list<Recipe> recipes) const {
    if (!v->def->is_param()) return nullptr;
    const std::string name = v->def->attrs.text("name");
    for (const DerivedParam& p : c_.derived()) {
      if (p.name != name) continue;
      const bool known = std::all_of(p.parts.begin(), p.parts.end(), [&](const ParamPart& part) {
        return std::find(recipes.begin(), recipes.end(), part.recipe) != recipes.end();
      });
      return known ? &p : nullptr;
    }
    return nullptr;
  }

  // The vector of `width` of that dtype, from what makes the operand now.
  Result<Value*> vector(const DerivedParam& from, const char* ending, TensorType type, Node* before) {
    DerivedParam made{from.name + ending, from.parts};
    if (Node* known = g_.find_param(made.name)) return known->result();
    for (ParamPart& part : made.parts) {
      if (made.parts.size() == 1) part.rows = type.shape[0].factor;
      if (part.recipe == Recipe::Reciprocals) part.recipe = Recipe::InputScales;
    }
    replaced_.push_back(from.name);
    ASSIGN_OR_RETURN(Node * source, g_.add_source(*c_.ops().find("param"), made.name, type, kDivisorsName, before));
    c_.derived().push_back(std::move(made));
    return source->result();
  }

  Status visit(Node* n, const OpSchema& divided) {
    const TensorType& x = n->in[0]->type;
    const Shape width{x.shape.back()};
    const bool bf16 = x.dtype == DType::BF16;
    const TensorType divisor{bf16 ? DType::BF16 : DType::F32, width}, zero{bf16 ? DType::BF16 : DType::I32, width};
    std::vector<TensorType> types = n->in_types();
    if (types.size() != 5) return Status::ok();  // with a bias
    types[3] = divisor, types[4] = zero;
    if (!c_.has_kernel(divided, types, n->attrs).is_ok()) return Status::ok();  // the device takes it as it is
    c_.count_tried();
    const DerivedParam* scales = parts_of(n->in[3], {Recipe::Reciprocals});
    const DerivedParam* offsets = parts_of(n->in[4], {Recipe::Numbers, Recipe::Zeros});
    if (!scales || !offsets) {
      c_.refuse(*n, "its scale and offset are not read from the checkpoint, so they are converted in every launch");
      return Status::ok();
    }
    if (!c_.may_apply(*n)) return Status::ok();
    const DerivedParam from_scales = *scales, from_offsets = *offsets;  // the list grows
    ASSIGN_OR_RETURN(Value * by, vector(from_scales, "_divisors", divisor, n));
    ASSIGN_OR_RETURN(Value * shift, vector(from_offsets, "_zeros", zero, n));
    ASSIGN_OR_RETURN(Node * made,
                     g_.add(divided, {n->in[0], n->in[1], n->in[2], by, shift}, n->attrs, kDivisorsName, n));
    c_.applied(*made, fmt::format("{}: {} in {}", from_scales.name, n->in[3]->type.shape[0].factor == 1 ? "one" : "all",
                                  dtype_name(divisor.dtype)));
    for (size_t i = 0; i < 2; ++i) g_.replace_all_uses(n->result(i), made->result(i));
    g_.erase(n);
    return Status::ok();
  }

  Graph& g_;
  PassContext& c_;
  std::vector<std::string> replaced_;
};

}  // namespace

Pass load_quant_divisors() {
  return {kDivisorsName, false, [](Graph& g, PassContext& c) { return Divisors(g, c).run(); }};
}

}  // namespace reprise
