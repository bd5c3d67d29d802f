#include "ops/args/op_args.h"

#include <vector>

#include "ops/args/rows.h"
#include "ops/kernel.h"

namespace reprise {
namespace {

std::vector<OpArgs> all_rows() {
  std::vector<OpArgs> all;
  for (const auto& rows :
       {element_args(), norm_args(), quantise_args(), rotation_args(), product_args(), attention_args(), expert_args(),
        collective_args(), draw_args(), lora_args(), encoder_args(), recurrent_args()})
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

// Operands in schema order, then results.
DType type_at(const OpCall& c, int i) {
  const auto at = static_cast<size_t>(i), operands = c.op->operands.size();
  return at < operands ? c.in[at].dtype : c.out[at - operands].dtype;
}
bool is_result(const OpCall& c, int i) { return static_cast<size_t>(i) >= c.op->operands.size(); }

}  // namespace

std::span<const OpArgs> all_op_args() {
  static const std::vector<OpArgs> all = all_rows();
  return all;
}

const OpArgs& op_args(std::string_view op) {
  for (const OpArgs& a : all_op_args())
    if (a.op == op) return a;
  check_failed("op", __FILE__, __LINE__, fmt::format("no launch arguments are declared for {}", op));
}

std::string entry_types_name(EntryTypes types) {
  if (types.typed == types.other) return std::string(dtype_name(types.typed));
  return fmt::format("{}_{}", dtype_name(types.typed), dtype_name(types.other));
}

Status accepts_types(const OpArgs& op, EntryTypes types, const OpCall& c) {
  const bool fits = type_at(c, op.typed) == types.typed && (op.other < 0 || type_at(c, op.other) == types.other);
  if (!fits && op.other >= 0 && is_result(c, op.other))
    return error(Code::Unsupported, "takes {} and gives {}; the call has {} and {}", dtype_name(types.typed),
                 dtype_name(types.other), dtype_name(type_at(c, op.typed)), dtype_name(type_at(c, op.other)));
  if (!fits && is_result(c, op.typed))
    return error(Code::Unsupported, "gives {}; the call gives {}", dtype_name(types.typed),
                 dtype_name(type_at(c, op.typed)));
  if (!fits && types.typed != types.other)
    return error(Code::Unsupported, "takes {} with a cache of {}, not {}", dtype_name(types.typed),
                 dtype_name(types.other), describe(c));
  if (!fits) return error(Code::Unsupported, "takes {}, not {}", dtype_name(types.typed), describe(c));
  return op.accepts ? op.accepts(c) : Status::ok();
}

Status want_constant_rows(const OpCall& c, size_t i) {
  const Shape& s = c.in[i].shape;
  for (int d = 1; d < s.rank(); ++d)
    if (!s[d].is_constant()) return error(Code::Unsupported, "size {} of {} is not a constant", d, describe(c));
  return Status::ok();
}

Dim product_of(const Shape& s, int from, int to) {
  Dim n(1);
  for (int i = from; i < to; ++i) {
    n.factor *= s[i].factor;
    if (s[i].symbol != 0) n.symbol = s[i].symbol;
  }
  return n;
}

}  // namespace reprise
