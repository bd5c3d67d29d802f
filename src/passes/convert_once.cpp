#include <algorithm>

#include "passes/house_passes.h"

namespace reprise {
namespace {

constexpr const char* kConvertOnce = "convert_once";

class Converter {
 public:
  Converter(Graph& g, PassContext& c) : g_(g), c_(c) {}

  Status run() {
    if (!table_ || !angles_ || !index_) return Status::ok();
    for (Node* n = g_.first(); n; n = n->next)
      for (uint32_t i = 0; i < n->in.size(); ++i)
        if (const OpSchema* made = n->in[i]->def->op; (made == table_ || made == axes_) && n->op != angles_)
          RETURN_IF_ERROR(visit(n, i));
    return Status::ok();
  }

 private:
  struct Made {
    const Value* from;
    const OpSchema* op;
    Attrs attrs;
    Value* value;
  };

  // `table` is the operand of n that rope_table or rope_table_axes makes.
  Status visit(Node* n, uint32_t table) {
    const std::vector<TensorType> types = n->in_types();
    const auto number = std::find_if(types.begin(), types.end(), [](const TensorType& t) {
      return t.dtype == DType::BF16 || t.dtype == DType::F16;
    });
    if (number == types.end()) return Status::ok();
    for (const int64_t planes : {1, 0}) {
      const Attrs attrs{{"out", std::string(dtype_name(number->dtype))}, {"planes", planes}};
      const Shape& s = types[table].shape;
      const Dim rows(s[0].factor * (planes != 0 ? 2 : 1), s[0].symbol);
      if (!c_.has_kernel(*angles_, std::span(&types[table], 1), attrs).is_ok()) return Status::ok();
      std::vector<TensorType> wanted = types;
      wanted[table] = {number->dtype, {rows, s[1]}};
      const uint32_t slots = widened(*n, wanted);
      if (!c_.has_kernel(*n->op, wanted, n->attrs).is_ok()) continue;
      c_.count_tried();
      if (!c_.may_apply(*n)) return Status::ok();
      RETURN_IF_ERROR(convert(n, table, *angles_, attrs));
      if (slots != kNone) RETURN_IF_ERROR(convert(n, slots, *index_, {}));
      c_.applied(*n, fmt::format("{} reads angles in {}", n->op->name, dtype_name(number->dtype)));
      return Status::ok();
    }
    return Status::ok();
  }

  // The operand of integers that is no Index, and so may be wanted in 64 bits, or kNone; its type becomes that.
  static uint32_t widened(const Node& n, std::vector<TensorType>& types) {
    for (uint32_t i = 0; i < n.op->operands.size() && i < types.size(); ++i)
      if (n.op->operands[i].role == OperandRole::Tensor && types[i].dtype == DType::I32) {
        types[i].dtype = DType::I64;
        return i;
      }
    return kNone;
  }

  Status convert(Node* n, uint32_t operand, const OpSchema& op, const Attrs& attrs) {
    Value* from = n->in[operand];
    for (const Made& m : made_)
      if (m.from == from && m.op == &op && m.attrs == attrs) {
        g_.set_operand(n, operand, m.value);
        return Status::ok();
      }
    ASSIGN_OR_RETURN(Node * made, g_.add(op, {from}, attrs, kConvertOnce, n));
    made_.push_back({from, &op, attrs, made->result()});
    g_.set_operand(n, operand, made->result());
    return Status::ok();
  }

  static constexpr uint32_t kNone = UINT32_MAX;

  Graph& g_;
  PassContext& c_;
  const OpSchema* table_ = c_.ops().find("rope_table");
  const OpSchema* axes_ = c_.ops().find("rope_table_axes");
  const OpSchema* angles_ = c_.ops().find("rope_angles");
  const OpSchema* index_ = c_.ops().find("index_i64");
  std::vector<Made> made_;
};

}  // namespace

Pass convert_once() {
  return {kConvertOnce, false, [](Graph& g, PassContext& c) { return Converter(g, c).run(); }};
}

}  // namespace reprise
