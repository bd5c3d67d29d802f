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
  double each = 0;     // 0: it copies, and takes none
  size_t operand = 0;  // whose elements are counted
  size_t width = 0;    // the operand that has as many columns as take part in it
};
constexpr OpInstructions kInstructions[] = {
    {"silu", 14},            // exp in ten, one more, the quotient
    {"sigmoid", 12},         // exp in ten, one more, the quotient
    {"gelu", 22},            // exp in ten, the quotient, a polynomial of eight, three products
    {"gelu_tanh", 16},       // square and sum, two products, exp in ten, one more, the quotient
    {"softcap", 16},         // two quotients, exp in ten, four more
    {"swiglu_clamped", 18},  // three clamps, exp in ten, two sums, two products, the quotient
    {"relu_squared", 2},
    {"scale", 1},
    {"scale_rows", 1},
    {"add_groups", 1},
    {"pool_rows", 1},
    {"rms_norm", 3},                   // square and sum, two factors
    {"rms_norm_centred", 4},           // and one more
    {"rms_norm_gated", 18},            // silu, a product, square and sum, two factors
    {"layer_norm", 5},                 // sum, difference, square and sum, factor, weight and bias
    {"causal_conv", 18, 1, 1},         // four products and sums, silu
    {"causal_conv_biased", 18, 1, 1},  // the same, beginning with the bias
    {"rope", 2, 0, 1},                 // a product, a product and sum
    {"quantize_static", 5},            // product, sum, two clamps, conversion
    {"quantize_dynamic", 6},           // magnitude, largest, quotient, two clamps, conversion
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
// narrowing. A processor with instructions for bf16 puts bytes in their places at once, and rounds where a test finds
// no subnormal number.
double widening(DType t, bool has_bf16) { return t == DType::BF16 ? (has_bf16 ? 1 : 2) : t == DType::F16 ? 1 : 0; }
double rounding(DType t, bool has_bf16) { return t == DType::BF16 ? (has_bf16 ? 2 : 7) : t == DType::F16 ? 1 : 0; }

// Whether an op before this one has left the value in registers: it need not be widened again.
bool computed(const Value* v) {
  while (copies(*v->def)) v = v->def->in[0];
  return known(*v->def) != nullptr;
}

}  // namespace

double instructions_of(const Node& n, const LiveSizes& live, bool has_bf16) {
  const OpInstructions* own = known(n);
  if (!own || own->each == 0) return 0;
  const Shape& counted = n.in[own->operand]->type.shape;
  double each = own->each + rounding(n.out.back()->type.dtype, has_bf16);
  for (const Value* v : n.in)  // a number for each column may stay widened, but counts as if it did not
    if (!computed(v) && same_dim(v->type.shape.back(), counted.back())) each += widening(v->type.dtype, has_bf16);
  const double share = static_cast<double>(n.in[own->width]->type.shape.back().value(live)) /
                       static_cast<double>(counted.back().value(live));
  return each * share * static_cast<double>(counted.elements(live));
}

}  // namespace reprise::measurement
