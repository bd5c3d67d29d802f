#include "measurement/op_instructions.h"

#include <string_view>

namespace reprise::measurement {
namespace {

// Vector instructions per element that the definition of an op asks for, apart from conversions of its operands and
// results; of fp32 vectors, which are what the peak is counted in.
double instructions(std::string_view op) {
  if (op == "silu") return 14;             // exp in ten, one more, the quotient
  if (op == "rms_norm") return 3;          // square and sum, two factors
  if (op == "rope") return 2;              // a product, a product and sum
  if (op == "quantize_static") return 5;   // product, sum, two clamps, conversion
  if (op == "quantize_dynamic") return 6;  // magnitude, largest, quotient, two clamps, conversion
  if (op == "add" || op == "mul" || op == "argmax") return 1;
  return 0;
}

// From memory to fp32, and back with ties to even: where a value is rounded, those steps are part of the definition.
// bf16 has no instruction that keeps subnormal numbers, so it takes a shift, the odd bit, two sums, NaN apart,
// narrowing.
double widening(DType t) { return t == DType::BF16 ? 2 : t == DType::F16 ? 1 : 0; }
double rounding(DType t) { return t == DType::BF16 ? 7 : t == DType::F16 ? 1 : 0; }

// Whether an op before this one has left the value in registers: it need not be widened again.
bool computed(const Value* v) {
  while (v->def->is_view() || v->def->op->name == "slice") v = v->def->in[0];
  return instructions(v->def->op->name) > 0;
}

}  // namespace

double instructions_of(const Node& n, const LiveSizes& live) {
  const double own = instructions(n.op->name);
  if (own == 0) return 0;
  double each = own + rounding(n.result()->type.dtype);
  for (const Value* v : n.in)
    if (!computed(v)) each += widening(v->type.dtype);
  return each * static_cast<double>(n.in[0]->type.shape.elements(live));
}

}  // namespace reprise::measurement
