// is_addend: what an operand of a product does to its result. A plain function over the schema.
#pragma once

#include "ops/schema.h"

namespace reprise {

// Of a product (op_trait::kLinear): the operand is added to the sum, once whatever the inner size, where others scale
// it. Schemas call such operands bias and add, and no others.
inline bool is_addend(const OpSchema& op, size_t operand) {
  const std::string& name = op.operands[operand].name;
  return operand > op.first(OperandRole::Weight) && (name == "bias" || name == "add");
}

}  // namespace reprise
