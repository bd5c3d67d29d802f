#include "measurement/op_instructions.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace reprise::measurement {
namespace {

// Vector instructions per element that the definition of an op asks for, apart from conversions of its operands and
// results; of fp32 vectors, which are what the peak is counted in. No schema has these numbers, so they stand by name.
struct OpInstructions {
  std::string_view op;
  double each = 0;  // 0: it copies, and takes none
};
constexpr OpInstructions kInstructions[] = {
    {"silu", 14},             // exp in ten, one more, the quotient
    {"rms_norm", 3},          // square and sum, two factors
    {"rope", 2},              // a product, a product and sum
    {"quantize_static", 5},   // product, sum, two clamps, conversion
    {"quantize_dynamic", 6},  // magnitude, largest, quotient, two clamps, conversion
    {"add", 1},
    {"mul", 1},
    {"argmax", 1},
    {"slice", 0},
};

// Null for an op that is bound otherwise.
const OpInstructions* known(const Node& n) {
  const auto* found = std::find_if(std::begin(kInstructions), std::end(kInstructions),
                                   [&](const OpInstructions& i) { return i.op == n.op->name; });
  return found == std::end(kInstructions) ? nullptr : found;
}

bool copies(const Node& n) {
  const OpInstructions* i = known(n);
  return n.is_view() || (i && i->each == 0);
}

// From memory to fp32, and back with ties to even: where a value is rounded, those steps are part of the definition.
// bf16 has no instruction that keeps subnormal numbers, so it takes a shift, the odd bit, two sums, NaN apart,
// narrowing.
double widening(DType t) { return t == DType::BF16 ? 2 : t == DType::F16 ? 1 : 0; }
double rounding(DType t) { return t == DType::BF16 ? 7 : t == DType::F16 ? 1 : 0; }

// Whether an op before this one has left the value in registers: it need not be widened again.
bool computed(const Value* v) {
  while (copies(*v->def)) v = v->def->in[0];
  return known(*v->def) != nullptr;
}

}  // namespace

double instructions_of(const Node& n, const LiveSizes& live) {
  const OpInstructions* own = known(n);
  if (!own || own->each == 0) return 0;
  double each = own->each + rounding(n.result()->type.dtype);
  for (const Value* v : n.in)
    if (!computed(v)) each += widening(v->type.dtype);
  return each * static_cast<double>(n.in[0]->type.shape.elements(live));
}

}  // namespace reprise::measurement
