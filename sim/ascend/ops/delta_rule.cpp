// The gated delta rule, row by row: RecurrentGatedDeltaRule.
//
// As the kernel of the 910B computes it (libochao-huawei/ops-transformer @ 57781440,
// recurrent_gated_delta_rule_arch22.h:270-309): in fp32, the query scaled first; each row's state goes to the slot of
// that row, rounded where states are bf16, and stays unrounded within a sequence.
#include <cmath>

#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

constexpr int64_t kMostRows = 8;                    // of a sequence
constexpr uint64_t kSystemWorkspace = 16ULL << 20;  // recurrent_gated_delta_rule_tiling.cpp:130

struct DeltaRuleCall {
  Slot query, key, value, beta, state, lengths, slots, g, gk, accepted, out;
  float scale = 1;
};

int64_t slot_at(const std::vector<int64_t>& slots, int64_t row, int64_t states) {
  if (row < 0 || row >= static_cast<int64_t>(slots.size()))
    throw DeviceFault("aclnnRecurrentGatedDeltaRule: row " + std::to_string(row) + " has no state");
  const int64_t slot = slots[static_cast<size_t>(row)];
  if (slot < 0 || slot >= states)
    throw DeviceFault("aclnnRecurrentGatedDeltaRule: state " + std::to_string(slot) + " is none of the " +
                      std::to_string(states));
  return slot;
}

// One head of one sequence, whose state is S [Dv, Dk].
struct Head {
  int64_t keys, values;
  std::vector<float> state;

  void step(const float* q, const float* k, const float* v, float fade, const float* fades, float beta, float scale,
            float* out) {
    for (int64_t i = 0; i < values; ++i) {
      float* s = state.data() + i * keys;
      float found = 0;
      for (int64_t j = 0; j < keys; ++j) {
        s[j] *= fade;
        if (fades) s[j] *= std::exp(fades[j]);
        found += s[j] * k[j];
      }
      const float change = (v[i] - found) * beta;
      float sum = 0;
      for (int64_t j = 0; j < keys; ++j) {
        s[j] += change * k[j];
        sum += s[j] * (q[j] * scale);
      }
      out[i] = sum;
    }
  }
};

void compute_rule(const DeltaRuleCall& r, const Operands& v) {
  const int64_t rows = v[r.query].dim(0), key_heads = v[r.query].dim(1), keys = v[r.query].dim(2),
                heads = v[r.value].dim(1), values = v[r.value].dim(2), states = v[r.state].dim(0),
                size = heads * values * keys;
  const std::vector<float> q = read(v[r.query]), k = read(v[r.key]), x = read(v[r.value]), beta = read(v[r.beta]);
  std::vector<float> g, gk;
  if (v[r.g].given) g = read(v[r.g]);
  if (v[r.gk].given) gk = read(v[r.gk]);
  const std::vector<int64_t> lengths = read<int64_t>(v[r.lengths]), slots = read<int64_t>(v[r.slots]);
  std::vector<int64_t> accepted;
  if (v[r.accepted].given) accepted = read<int64_t>(v[r.accepted]);
  const View& state = v[r.state];
  const auto place = [&](int64_t slot, int64_t h) { return (slot * size + h * values * keys) / keys; };
  std::vector<float> out(static_cast<size_t>(values));
  int64_t first = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    const int64_t count = lengths[b], end = first + count;
    if (count < 1 || count > kMostRows)
      throw DeviceFault(refusal(Rule::DeltaRows, "sequence " + std::to_string(b) + " has " + std::to_string(count)));
    if (end > rows) throw DeviceFault("aclnnRecurrentGatedDeltaRule: lengths of more than the rows");
    const int64_t from = slot_at(slots, first + (accepted.empty() ? 0 : accepted[b] - 1), states);
    for (int64_t h = 0; h < heads; ++h) {
      Head head{keys, values, std::vector<float>(static_cast<size_t>(values * keys))};
      for (int64_t i = 0; i < values; ++i) read_row(state, place(from, h) + i, keys, head.state.data() + i * keys);
      for (int64_t t = first; t < end; ++t) {
        const auto of_key = static_cast<size_t>((t * key_heads + h / (heads / key_heads)) * keys);
        const auto at_head = static_cast<size_t>(t * heads + h);
        head.step(&q[of_key], &k[of_key], &x[at_head * static_cast<size_t>(values)],
                  g.empty() ? 1 : std::exp(g[at_head]), gk.empty() ? nullptr : &gk[at_head * static_cast<size_t>(keys)],
                  beta[at_head], r.scale, out.data());
        write_row(v[r.out], t * heads + h, values, out.data());
        const int64_t to = slot_at(slots, t, states);
        for (int64_t i = 0; i < values; ++i) write_row(state, place(to, h) + i, keys, head.state.data() + i * keys);
      }
    }
    first = end;
  }
}

void check_shapes(Operator& op, const DeltaRuleCall& r) {
  for (const Slot s : {r.query, r.key, r.value, r.out}) op.rank(s, 3, 3);
  op.rank(r.state, 4, 4);
  op.rank(r.lengths, 1, 1);
  if (!op.ok()) return;
  const int64_t rows = op[r.query].dim(0), key_heads = op[r.query].dim(1), keys = op[r.query].dim(2),
                heads = op[r.value].dim(1), values = op[r.value].dim(2), sequences = op[r.lengths].dim(0);
  const auto shape = [&](Slot s, const char* name, const Dims& want) {
    op.tiled(!op.given(s) || op[s].shape == want,
             std::string(name) + " has shape " + text_of(op[s].shape) + "; it needs " + text_of(want));
  };
  shape(r.key, "key", {rows, key_heads, keys});
  shape(r.value, "value", {rows, heads, values});
  shape(r.beta, "beta", {rows, heads});
  shape(r.state, "stateRef", {op[r.state].dim(0), heads, values, keys});
  shape(r.slots, "ssmStateIndices", {rows});
  shape(r.out, "out", {rows, heads, values});
  shape(r.g, "g", {rows, heads});
  shape(r.gk, "gk", {rows, heads, keys});
  shape(r.accepted, "numAcceptedTokens", {sequences});
  op.tiled(rows > 0 && sequences > 0 && keys > 0 && values > 0, "no operand may be empty");
  const bool fit = key_heads > 0 && key_heads <= 256 && heads > 0 && heads <= 256 && keys <= 512 && values <= 512 &&
                   heads % key_heads == 0;
  op.obeys(Rule::DeltaSizes, fit,
           std::to_string(heads) + " heads of " + std::to_string(values) + ", " + std::to_string(key_heads) + " of " +
               std::to_string(keys));
  op.obeys(Rule::DeltaStates, op[r.state].dim(0) >= rows,
           std::to_string(rows) + " rows, " + std::to_string(op[r.state].dim(0)) + " states");
  // Gaps between states and heads are walked (…_tiling.cpp:582-596); they are not modelled here.
  op.tiled(op[r.state].packed(), "stateRef has gaps, which are not simulated");
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnRecurrentGatedDeltaRuleGetWorkspaceSize(Tensor query, Tensor key, Tensor value, Tensor beta,
                                                         TensorRef stateRef, Tensor actualSeqLengths,
                                                         Tensor ssmStateIndices, Tensor g, Tensor gk,
                                                         Tensor numAcceptedTokens, float scaleValue, TensorRef out,
                                                         uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnRecurrentGatedDeltaRule", workspaceSize, executor, Since::Cann91);
  DeltaRuleCall r;
  r.query = op.in("query", query), r.key = op.in("key", key), r.value = op.in("value", value);
  r.beta = op.in("beta", beta), r.state = op.ref("stateRef", stateRef, Walk::Strides);
  r.lengths = op.in("actualSeqLengths", actualSeqLengths), r.slots = op.in("ssmStateIndices", ssmStateIndices);
  r.g = op.maybe_in("g", g), r.gk = op.maybe_in("gk", gk);
  r.accepted = op.maybe_in("numAcceptedTokens", numAcceptedTokens);
  r.scale = scaleValue;
  r.out = op.out("out", out);
  op.attribute(scaleValue);
  if (!op.ok()) return op.status();
  for (const Slot s : {r.query, r.key, r.value, r.beta, r.out}) op.dtype(s, {kBf16});
  op.dtype(r.state, {kBf16, kFloat});
  for (const Slot s : {r.lengths, r.slots, r.accepted}) op.dtype(s, {kInt32});
  for (const Slot s : {r.g, r.gk}) op.dtype(s, {kFloat});
  if (!op.ok()) return op.status();
  check_shapes(op, r);
  if (!op.ok()) return op.status();
  // A state is read once for each sequence and written for each row.
  const double one = op[r.state].bytes() / static_cast<double>(op[r.state].dim(0)),
               rows = static_cast<double>(op[r.query].dim(0)), sequences = static_cast<double>(op[r.lengths].dim(0));
  const double numbers = rows * static_cast<double>(op[r.value].dim(1) * op[r.value].dim(2) * op[r.query].dim(2));
  return op.finish(
      Unit::Vector, numbers * 7, [=](const Operands& v) { compute_rule(r, v); },
      (rows + sequences) * one + op[r.query].bytes() + op[r.key].bytes() + 2 * op[r.value].bytes(), kSystemWorkspace);
}
ACLNN_PHASE2(aclnnRecurrentGatedDeltaRule);

}  // extern "C"
