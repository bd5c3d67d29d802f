// is_addend: what an operand of a product does to its result. A plain function over the schema.
#pragma once

#include "ops/schema.h"

namespace reprise {

// Whether an operand of a product (op_trait::kLinear) is added to the sum, once for any inner size; other operands
// scale the sum. Schemas call such operands bias and add, and no others.
inline bool is_addend(const OpSchema& op, size_t operand) {
  const std::string& name = op.operands[operand].name;
  return operand > op.first(OperandRole::Weight) && (name == "bias" || name == "add");
}

}  // namespace reprise
