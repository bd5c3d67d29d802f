#include "see/node_cost.h"

#include <algorithm>
#include <cmath>

#include "ops/block_activations.h"
#include "ops/mutation.h"

namespace reprise::see {
namespace {

double bytes_of(const TensorType& t, const LiveSizes& live) {
  return static_cast<double>(t.shape.elements(live)) * static_cast<double>(size_of(t.dtype));
}

// [pages, 2, heads, 128, row of a head]
bool is_joint_cache(const TensorType& t) { return t.shape.rank() == 5; }
// Operand i, or the result that is the same bytes: a cache, be it of keys and values together or of rows [pages, 128,
// row] (keys, values, latents or ropes). A step touches little of those.
bool is_cache(const Node& n, size_t i) { return n.op->operands[i].role == OperandRole::Cache; }
// Operand i of an op that keeps states: of each sequence one slot is read and one is written.
bool is_state(const Node& n, size_t i) { return is_cache(n, i) && n.op->has(OperandRole::Slots); }
double slot_numbers(const TensorType& state) {
  double numbers = 1;
  for (int d = 1; d < state.shape.rank(); ++d) numbers *= static_cast<double>(state.shape[d].factor);
  return numbers;
}
double state_bytes(const Node& n, const TensorType& state, const LiveSizes& live) {
  return 2 * slot_numbers(state) * static_cast<double>(size_of(state.dtype)) *
         static_cast<double>(n.in[n.op->first(OperandRole::Slots)]->type.shape.elements(live));
}
// Per token and number of a state: its decay, what the key finds in it, the change, and what the query finds.
constexpr double kDeltaFlops = 7, kSpaceFlops = 5;  // the second where no key looks for anything
double state_flops(const Node& n) { return n.op->has(op_trait::kCorrects) ? kDeltaFlops : kSpaceFlops; }

double token_bytes(const TensorType& cache) {
  const Shape& s = cache.shape;
  const int64_t elements = is_joint_cache(cache) ? 2 * s[2].factor * s[4].factor : s[2].factor;
  return static_cast<double>(elements) * static_cast<double>(size_of(cache.dtype));
}

// Multiplications and additions of one pair of a query row and a key, over all heads: the score, of all parts that the
// query has in front of the caches, and the value's share.
double pair_flops(const Node& n) {
  const Shape& out = n.result()->type.shape;  // [T, H, V]
  const size_t queries = n.op->has(OperandRole::Cache) ? n.op->first(OperandRole::Cache) : 1;
  int64_t numbers = out[2].factor;
  for (size_t i = 0; i < queries; ++i)
    if (!n.op->operands[i].mutated) numbers += n.in[i]->type.shape[2].factor;
  return 2 * static_cast<double>(out[1].factor * numbers);
}

// Keys and values made of what the caches hold of every token.
double expansion_flops(const Node& n, const StepSizes& sizes) {
  if (!n.op->has(op_trait::kExpands)) return 0;
  double numbers = 0;
  for (size_t i = 0; i < n.in.size(); ++i)
    if (n.op->operands[i].role == OperandRole::Weight)
      numbers += static_cast<double>(n.in[i]->type.shape.elements(sizes.live));
  return 2 * sizes.cached_tokens * numbers;
}

// Whether it computes only those sequences of a prompt's step that keep the absorbed form. The device tells which those
// are while the step runs: the expanded form is counted as if it had all of them.
bool takes_what_is_left(const Node& n) {
  return !n.op->has(op_trait::kExpands) &&
         std::any_of(n.in.begin(), n.in.end(), [](const Value* v) { return v->def->op->has(op_trait::kDivides); });
}

// Whether operand 0 is a table of which only the rows that operand 1 names are read: embedding, in floats or in packed
// blocks, and a selection of rows. A schema with no third operand has nothing else to do with the two.
bool reads_named_rows(const OpSchema& op) {
  return op.operands.size() == 2 && !op.operands[0].mutated && !op.operands[0].is_index() && op.operands[1].is_index();
}
double named_row_bytes(const Node& n, const LiveSizes& live) {
  const Shape& table = n.in[0]->type.shape;
  const auto rows = static_cast<double>(table[0].value(live)),
             named = static_cast<double>(n.in[1]->type.shape.elements(live));
  return rows > 0 ? bytes_of(n.in[0]->type, live) / rows * std::min(rows, named) : 0;
}

// Numbers of a weight's row: of weights in blocks the shape has its bytes.
int64_t depth_of(const Node& n, const TensorType& weight) {
  return weight.dtype == DType::U8 ? n.in[0]->type.shape.back().factor : weight.shape.back().factor;
}
// What the numbers are multiplied as: those in blocks as the activations are.
DType multiplied_as(const Node& n, const TensorType& weight) {
  if (weight.dtype != DType::U8) return weight.dtype;
  return has_int8_activations(n.attrs) ? DType::I8 : n.in[0]->type.dtype;
}

// The share of a stack of matrices that is read: rows [T k, N] of T tokens, each of which goes to k of them, reach so
// much by chance. Other parameters are read whole.
double share_read(const Node& n, const TensorType& weight, const LiveSizes& live) {
  if (!n.op->has(OperandRole::Starts)) return 1;
  const Dim rows = n.result()->type.shape[0];
  const double each = static_cast<double>(rows.factor), matrices = static_cast<double>(weight.shape[0].factor);
  const double tokens = static_cast<double>(rows.value(live)) / each;
  return each >= matrices ? 1 : 1 - std::pow(1 - each / matrices, tokens);
}

}  // namespace

double peak_gflops(const MachineSpeed& machine, DType dtype) {
  if (dtype == DType::I8) return machine.int8_gops.value_or(machine.fp32_gflops);
  // Where the bf16 dot product is the slower way, widening to fp32 is the faster one.
  return dtype == DType::BF16 ? std::max(machine.fp32_gflops, machine.bf16_gflops.value_or(0)) : machine.fp32_gflops;
}

double NodeCost::limit_s(const MachineSpeed& machine) const {
  const double bandwidth = machine.read_GBps_all * 1e9, peak = peak_gflops(machine, dtype) * 1e9;
  return std::max(bandwidth > 0 ? (param_bytes + kv_bytes) / bandwidth : 0, peak > 0 ? flops / peak : 0);
}

NodeCost cost_of(const Node& n, const StepSizes& sizes) {
  NodeCost c;
  if (n.is_source() || n.is_view()) return c;
  if (takes_what_is_left(n)) return c;
  if (n.is_hint()) {
    c.param_bytes = static_cast<double>(n.attrs.integer("bytes"));
    return c;
  }
  c.flops += expansion_flops(n, sizes);
  const bool attends = n.op->has(op_trait::kAttends);
  if (attends && !n.op->has(OperandRole::Cache)) {  // the pairs are those of its rows
    c.flops += sizes.score_pairs * pair_flops(n);
    c.dtype = n.in[0]->type.dtype;
  }
  const LiveSizes& live = sizes.live;
  const bool lookup = reads_named_rows(*n.op);
  for (size_t i = 0; i < n.out.size(); ++i) {
    const int mutated = continued_operand(*n.op, i);
    if (mutated < 0 || !is_cache(n, static_cast<size_t>(mutated))) c.activation_bytes += bytes_of(n.out[i]->type, live);
  }
  bool scored = false;
  for (size_t i = 0; i < n.in.size(); ++i) {
    const Value& v = *n.in[i];
    const bool param = v.def->is_param();
    if (is_state(n, i)) {
      const TensorType& state = v.type;
      c.kv_bytes += state_bytes(n, state, live);
      if (state.shape.rank() == 4) c.flops += state_flops(n) * static_cast<double>(live.value[1]) * slot_numbers(state);
      c.dtype = DType::F32;
    } else if (is_cache(n, i)) {
      const bool written = n.op->operands[i].mutated;
      const double tokens = written ? static_cast<double>(live.value[1]) : sizes.cached_tokens;
      c.kv_bytes += tokens * token_bytes(v.type);
      if (attends && !written && !scored) {
        scored = true;
        c.flops += sizes.score_pairs * pair_flops(n);
        c.dtype = v.type.dtype == DType::I8 ? DType::F32 : v.type.dtype;  // integers are made floats
      }
    } else if (lookup && i == 0) {
      (param ? c.param_bytes : c.activation_bytes) += named_row_bytes(n, live);
    } else if (param) {
      const bool stack = v.type.shape.rank() == 3, weight = n.op->operands[i].role == OperandRole::Weight;
      c.param_bytes += bytes_of(v.type, live) * (stack ? share_read(n, v.type, live) : 1);
      if (stack && weight && !n.op->has(op_trait::kExpands)) {  // a row goes through one of the matrices
        const double outputs = static_cast<double>(n.result()->type.shape.elements(live));
        c.flops += 2 * outputs * static_cast<double>(depth_of(n, v.type));
        c.dtype = multiplied_as(n, v.type);
      } else if (weight && v.type.shape.rank() == 2) {
        const Shape& x = n.in[0]->type.shape;
        const double rows = static_cast<double>(x.elements(live)) / static_cast<double>(x.back().value(live));
        c.flops += 2 * rows * static_cast<double>(v.type.shape[0].factor * depth_of(n, v.type));
        c.dtype = multiplied_as(n, v.type);
      }
    } else {
      c.activation_bytes += bytes_of(v.type, live);
    }
  }
  return c;
}

}  // namespace reprise::see
